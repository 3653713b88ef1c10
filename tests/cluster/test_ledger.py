"""The ledger, its lock, and the copies it vouches for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph import graph as graphs
from tests.cluster.deployment import CONFIG, SCHEMA, WIDER, Deployment, Json, codes, outcomes, statuses

LOCK = {"version": 1, "lock_id": "L", "operation": "apply", "created_at": "2030-01-01T00:00:00Z", "pid": 7}


def lock(deployment: Deployment, **facts: object) -> None:
    deployment.control.mkdir(exist_ok=True)
    (deployment.control / "lock.json").write_text(json.dumps({**LOCK, **facts}), encoding="utf-8")


def test_a_held_lock_refuses_every_command_that_may_write(applied: Deployment) -> None:
    lock(applied)
    for run in (applied.plan, applied.apply, applied.refresh, applied.import_):
        result = run()
        assert codes(result, "error") == ["state_lock_held"]
        assert "force-unlock L" in result["diagnostics"][-1]["message"]
        observed = result["state_observations"]
        assert (observed["locked"], observed["lock_id"], observed["lock_acquired"]) == (True, "L", False)
        assert observed["lock_pid"] == 7
    assert codes(applied.approve("graph.knowledge")) == ["state_lock_held"]
    assert applied.validate()["ok"]
    standing = applied.status()
    assert standing["ok"]
    assert standing["state_observations"]["lock_operation"] == "apply"
    assert codes(applied.force_unlock("M")) == ["state_lock_id_mismatch"]
    assert applied.force_unlock("L")["lock_removed"]
    assert codes(applied.force_unlock("L")) == ["state_lock_missing"]
    assert applied.apply()["ok"]


def test_a_lock_that_is_not_ours_is_not_removed(applied: Deployment) -> None:
    for facts, code in (
        ({"version": 2}, "unsupported_state_lock_version"),
        ({"host": "x"}, "invalid_state_lock"),
    ):
        lock(applied, **facts)
        assert codes(applied.force_unlock("L")) == [code]
        assert codes(applied.plan(), "error") == [code]
        assert applied.status()["ok"]


def test_the_lock_can_be_switched_off(applied: Deployment) -> None:
    applied.configure(CONFIG + "state: {lock: false}\n")
    lock(applied)
    result = applied.apply()
    assert codes(result) == ["state_lock_disabled"]
    assert not result["state_observations"]["lock_acquired"]


def test_a_command_that_holds_the_lock_says_so(applied: Deployment) -> None:
    observed = applied.plan()["state_observations"]
    assert observed["lock_acquired"]
    assert len(observed["acquired_lock_id"]) == 26
    assert not (applied.control / "lock.json").exists()


def test_a_state_write_lost_to_a_rival_keeps_what_the_next_run_needs(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    before = statuses(applied.status())

    def interfere() -> None:
        applied.edit_state(lambda state: state.update(state_revision=40))

    with failpoints.arm(failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE, interfere):
        result = applied.apply()
    assert codes(result, "error") == ["state_cas_mismatch"]
    assert statuses(result) == before
    assert not result["state_written"]
    assert len(applied.sidecars()) == 1
    assert applied.apply()["converged"]
    assert applied.state()["state_revision"] == 41


def _forge_graph(state: Json) -> None:
    state["applied_revision"]["resources"]["graph.knowledge"]["external_blob_policy"] = {"mode": "allow"}


def _add_version(state: Json) -> None:
    state["observations"]["graph.knowledge"] = {"manifest_version": 1, "graph_manifest_version": 2}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda state: state.update(version=2), "unsupported_state_version"),
        (lambda state: state.update(shape=1), "invalid_state"),
        (lambda state: state.pop("applied_revision"), "invalid_state"),
        (_add_version, "conflicting_graph_manifest_observation"),
        (_forge_graph, "external_blob_policy_digest_mismatch"),
    ],
)
def test_a_ledger_that_is_not_ours_stops_a_command(
    applied: Deployment, change: Callable[[Json], object], code: str
) -> None:
    applied.edit_state(change)
    before = applied.state()
    assert codes(applied.apply(), "error") == [code]
    assert codes(applied.refresh(), "error") == [code]
    assert applied.state() == before


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("state.json", "invalid_state"),
        ("lock.json", "invalid_state_lock"),
        ("recoveries/01J.json", "invalid_recovery_sidecar"),
        ("approvals/01J.json", "invalid_approval"),
        ("../plan.json", "invalid_plan_file"),
    ],
)
def test_bottomless_files_are_findings(applied: Deployment, name: str, code: str) -> None:
    applied.write(f"__cluster/{name}", "[" * 200_000)
    assert code in codes(applied.apply("ann", applied.folder / "plan.json"))


def test_old_ledgers_are_read(applied: Deployment) -> None:
    def age(state: Json) -> None:
        for name in ("state_revision", "resource_statuses", "approval_records", "recovery_records"):
            del state[name]
        resources = state["applied_revision"]["resources"]
        del resources["policy.server"]["applies_to"]
        del resources["provider.embedding.local"]["embedding_profile"]
        state["observations"] = {"graph.knowledge": {"manifest_version": 3}}

    applied.edit_state(age)
    assert applied.status()["observations"]["graph.knowledge"]["graph_manifest_version"] == 3
    result = applied.apply()
    assert outcomes(result) == {
        "policy.server": "update applied",
        "provider.embedding.local": "update applied",
    }
    assert result["converged"]
    assert applied.state()["applied_revision"]["resources"]["policy.server"]["applies_to"] == ["cluster"]


def test_a_lost_copy_is_published_again(applied: Deployment) -> None:
    (at,) = (applied.control / "resources" / "query" / "knowledge" / "people").iterdir()
    text = at.read_text(encoding="utf-8")
    for spoil, code, condition in (
        (at.unlink, "catalog_payload_missing", "drifted payload_missing"),
        (
            lambda: at.write_text("other", encoding="utf-8"),
            "catalog_payload_mismatch",
            "drifted payload_mismatch",
        ),
    ):
        spoil()
        standing = applied.status()
        assert standing["ok"]
        assert codes(standing) == [code]
        refreshed = applied.refresh()
        assert refreshed["ok"]
        assert statuses(refreshed)["query.knowledge.people"] == condition
        assert "query.knowledge.people" not in refreshed["resource_digests"]
        planned = {one["resource"]: one["operation"] for one in applied.plan()["changes"]}
        assert planned == {"graph.knowledge": "update", "query.knowledge.people": "create"}
        assert applied.apply()["converged"]
        assert at.read_text(encoding="utf-8") == text


def test_a_copy_that_cannot_be_read_is_an_error(applied: Deployment) -> None:
    (at,) = (applied.control / "resources" / "policy" / "server").iterdir()
    at.unlink()
    at.symlink_to(at)
    assert codes(applied.status(), "error") == ["catalog_payload_read_error"]
    result = applied.refresh()
    assert statuses(result)["policy.server"] == "error payload_read_error"
    assert "policy.server" in result["resource_digests"]
    assert applied.state()["resource_statuses"]["policy.server"]["status"] == "error"
    applied.write("server.yaml", (applied.folder / "server.yaml").read_text(encoding="utf-8") + "# x\n")
    assert applied.apply()["ok"]


def test_a_copy_that_cannot_be_written_stops_before_the_ledger_moves(applied: Deployment) -> None:
    folder = applied.control / "resources" / "query" / "knowledge"
    (folder / "more").write_text("a file where a folder belongs", encoding="utf-8")
    before = applied.state()
    applied.write("queries/more.gq", "query more() { match { $p: Person } return { $p.name } }\n")
    assert codes(applied.apply(), "error") == ["payload_write_error"]
    assert applied.state() == before


def test_status_without_a_ledger_is_a_warning(fresh: Deployment) -> None:
    result = fresh.status()
    assert result["ok"]
    assert codes(result) == ["state_missing"]
    assert codes(fresh.refresh(), "error") == ["state_missing"]


def test_import_observes_graphs_that_are_there(fresh: Deployment) -> None:
    with graphs.init(fresh.graph(), schema=SCHEMA) as graph:
        version = graph.snapshot().version
    result = fresh.import_()
    assert result["ok"]
    assert statuses(result) == {"graph.knowledge": "applied", "schema.knowledge": "applied"}
    seen = result["observations"]["graph.knowledge"]
    assert (seen["exists"], seen["schema_matches_desired"]) == (True, True)
    assert seen["graph_manifest_version"] == seen["manifest_version"] == version
    assert fresh.state()["state_revision"] == 1
    assert codes(fresh.import_(), "error") == ["state_already_exists"]
    assert outcomes(fresh.apply())["query.knowledge.people"] == "create applied"


def test_import_writes_nothing_after_an_error(fresh: Deployment) -> None:
    fresh.graph().mkdir(parents=True)
    (fresh.graph() / "nodes").mkdir()
    (fresh.graph() / "nodes" / "x").write_text("not a table", encoding="utf-8")
    result = fresh.import_()
    assert codes(result, "error") == ["graph_observation_error"]
    assert not (fresh.control / "state.json").exists()


def test_refresh_sees_a_lost_graph_and_the_plan_creates_it_again(applied: Deployment, tmp_path: Path) -> None:
    applied.graph().rename(tmp_path / "aside")
    result = applied.refresh()
    assert result["ok"]
    assert statuses(result)["graph.knowledge"] == "drifted graph_missing"
    planned = {one["resource"]: one["operation"] for one in applied.plan()["changes"]}
    assert planned == {"graph.knowledge": "create", "schema.knowledge": "create"}
    assert applied.apply()["converged"]


def test_refresh_records_errors_and_fails(applied: Deployment) -> None:
    (applied.graph() / "_schema.pg").unlink()
    result = applied.refresh()
    assert codes(result, "error") == ["graph_observation_error"]
    assert statuses(result)["graph.knowledge"] == "error graph_observation_error"
    assert applied.state()["observations"]["graph.knowledge"]["error"]


def test_a_file_in_the_place_of_the_control_folder_is_a_finding(fresh: Deployment) -> None:
    fresh.write("__cluster", "a file")
    result: dict[str, Any] = fresh.import_()
    assert codes(result, "error") == ["storage_failure"]
