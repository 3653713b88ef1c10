"""Every row of the recovery table, reached by an interrupted apply or by what an operator did."""

from __future__ import annotations

import json
import shutil

import pytest

from omnigraph import failpoints
from omnigraph import graph as graphs
from omnigraph.cluster.recovery import ROWS, Seen
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.sidecars import Operation
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from tests.cluster.deployment import (
    GONE,
    SCHEMA,
    WIDER,
    Deployment,
    Json,
    codes,
    outcomes,
    statuses,
)

CREATE_POINTS = (
    failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE,
    failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE,
    failpoints.CLUSTER_APPLY_AFTER_PAYLOAD_PHASE,
    failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE,
)
SCHEMA_POINTS = (
    failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY,
    failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY,
    failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE,
)
DELETE_POINTS = (
    failpoints.CLUSTER_APPLY_BEFORE_GRAPH_DELETE,
    failpoints.CLUSTER_APPLY_AFTER_GRAPH_DELETE,
    failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE,
)


def interrupt(deployment: Deployment, point: str) -> None:
    """Let an apply die at a point; the ledger stays as it was."""
    before = deployment.state()
    with failpoints.arm(point, failpoints.error(point)):
        result = deployment.apply("ann")
    assert codes(result, "error") == ["injected_failpoint"]
    assert deployment.state() == before
    assert not result["state_written"]


def keep_sidecar(deployment: Deployment, kind: Operation, digest: str, **facts: object) -> None:
    """Write the recovery file of an operation as a command that died later would have left it."""
    folder = deployment.control / "recoveries"
    folder.mkdir(exist_ok=True)
    sidecar: Json = {
        "schema_version": 1,
        "operation_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "started_at": "2030-01-01T00:00:00Z",
        "actor": "ann",
        "kind": kind.value,
        "graph_id": "knowledge",
        "graph_uri": str(deployment.graph()),
        "observed_manifest_version": None,
        "expected_manifest_version": None,
        "desired_schema_digest": digest,
        "state_cas_base": None,
        "approval_id": None,
        **facts,
    }
    (folder / f"{sidecar['operation_id']}.json").write_text(json.dumps(sidecar), encoding="utf-8")


def digest_of(deployment: Deployment, address: str = "schema.knowledge") -> str:
    found: str = deployment.validate()["resource_digests"][address]
    return found


def test_the_table_has_a_row_for_everything_that_can_be_seen() -> None:
    moves = set(Seen) - {Seen.ABSENT_RECORDED, Seen.PRESENT}
    expected = {(kind, seen) for kind in (Operation.CREATE, Operation.SCHEMA) for seen in moves}
    deletes = (Seen.ABSENT, Seen.ABSENT_RECORDED, Seen.PRESENT, Seen.UNREACHABLE)
    expected |= {(Operation.DELETE, seen) for seen in deletes}
    assert ROWS.keys() == expected


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_an_interrupted_create_is_healed_by_the_next_apply(fresh: Deployment, point: str) -> None:
    assert fresh.import_()["ok"]
    interrupt(fresh, point)
    assert len(fresh.sidecars()) == 1
    assert "cluster_recovery_pending" in codes(fresh.plan())
    result = fresh.apply("ann")
    assert result["converged"]
    rolled = "cluster_recovery_rolled_forward" in codes(result)
    assert rolled == (point != failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE)
    assert fresh.sidecars() == []
    records = fresh.state()["recovery_records"].values()
    assert [one["kind"] for one in records] == (["graph_create"] if rolled else [])
    assert fresh.schema_of() == SCHEMA


def test_a_create_that_died_inside_the_engine_is_repeated(fresh: Deployment) -> None:
    assert fresh.import_()["ok"]
    point = failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN

    def die() -> None:
        raise KeyboardInterrupt

    with failpoints.arm(point, die), pytest.raises(KeyboardInterrupt):
        fresh.apply("ann")
    assert fresh.graph().exists()
    assert len(fresh.sidecars()) == 1
    assert fresh.apply("ann")["converged"]
    assert fresh.sidecars() == []


def test_what_an_unfinished_creation_left_is_replaced_whatever_runs_in_between(fresh: Deployment) -> None:
    """A refresh, a failed apply and an import know that a later apply has to begin over the files."""
    assert fresh.import_()["ok"]
    point = failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN

    def die() -> None:
        raise KeyboardInterrupt

    def refuse(op: str, uri: str, /) -> None:
        if op == "write_text" and "recoveries" in uri:
            raise StorageFailure("full", kind=FailureKind.TRANSIENT, uri=uri)

    with failpoints.arm(point, die), pytest.raises(KeyboardInterrupt):
        fresh.apply("ann")
    failing = Deployment(fresh.folder, lambda at: ClusterRoot.at(at, refuse))
    assert codes(failing.apply("ann"), "error") == ["graph_create_failed"]
    assert statuses(fresh.refresh())["graph.knowledge"] == "drifted graph_missing"
    (fresh.control / "state.json").unlink()
    assert fresh.import_()["ok"]
    declared = (fresh.folder / "cluster.yaml").read_text(encoding="utf-8")
    fresh.configure(GONE)
    assert codes(fresh.apply("ann")) == ["cluster_recovery_pending"]
    fresh.configure(declared)
    assert fresh.apply("ann")["converged"]
    assert (fresh.sidecars(), fresh.schema_of()) == ([], SCHEMA)


def test_a_graph_with_rows_whose_manifest_is_gone_is_never_replaced(applied: Deployment) -> None:
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Ada" } }')
    shutil.rmtree(applied.graph() / "__manifest")
    keep_sidecar(applied, Operation.CREATE, digest_of(applied))
    assert codes(applied.apply("ann"), "error") == ["graph_create_incomplete"]
    assert list((applied.graph() / "nodes").rglob("*.lance"))


@pytest.mark.parametrize("point", SCHEMA_POINTS)
def test_an_interrupted_schema_change_is_healed_by_the_next_apply(applied: Deployment, point: str) -> None:
    applied.write("knowledge.pg", WIDER)
    interrupt(applied, point)
    result = applied.apply("ann")
    assert result["converged"]
    assert ("cluster_recovery_rolled_forward" in codes(result)) == (
        point != failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY
    )
    assert applied.sidecars() == []
    assert applied.schema_of() == WIDER


@pytest.mark.parametrize("point", DELETE_POINTS)
def test_an_interrupted_delete_is_healed_under_its_approval(applied: Deployment, point: str) -> None:
    applied.configure(GONE)
    approval_id = applied.approve("graph.knowledge")["approval_id"]
    interrupt(applied, point)
    assert applied.approvals()[0]["consumed_at"] is None, "a failed run consumes nothing"
    result = applied.apply("ann")
    assert result["converged"]
    before = point == failpoints.CLUSTER_APPLY_BEFORE_GRAPH_DELETE
    expected = "graph_delete_incomplete" if before else "cluster_recovery_rolled_forward"
    assert expected in codes(result)
    assert applied.sidecars() == []
    assert applied.approvals()[0]["consumed_by_operation"] == "apply"
    assert applied.state()["observations"]["graph.knowledge"]["approval_id"] == approval_id


def test_a_delete_found_incomplete_is_drifted_until_it_runs_again(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    interrupt(applied, failpoints.CLUSTER_APPLY_BEFORE_GRAPH_DELETE)
    result = applied.refresh()
    assert statuses(result)["graph.knowledge"] == "drifted graph_delete_incomplete"
    assert applied.sidecars() == []
    assert applied.apply("ann")["converged"]


def test_files_of_operations_that_ended_are_retired(applied: Deployment) -> None:
    before = applied.state()
    for kind in (Operation.CREATE, Operation.SCHEMA):
        keep_sidecar(applied, kind, digest_of(applied))
        result = applied.apply()
        assert (result["ok"], result["state_written"]) == (True, False)
        assert applied.sidecars() == []
    assert applied.state() == before


def test_the_file_of_a_delete_that_was_recorded_is_retired(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    assert applied.apply("ann")["converged"]
    keep_sidecar(applied, Operation.DELETE, "")
    result = applied.apply()
    assert codes(result) == []
    assert applied.sidecars() == []


def test_a_graph_that_was_created_in_part_is_kept_and_blocks_itself_alone(fresh: Deployment) -> None:
    assert fresh.import_()["ok"]
    interrupt(fresh, failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE)
    for at in (fresh.graph() / "__manifest" / "_versions").iterdir():
        at.write_bytes(b"")
    result = fresh.apply()
    assert not result["ok"]
    assert codes(result, "error") == ["graph_create_incomplete"]
    found = outcomes(result)
    assert found["graph.knowledge"] == "create blocked cluster_recovery_pending"
    assert found["policy.server"] == "create applied"
    assert statuses(result)["graph.knowledge"] == "error graph_create_incomplete"
    assert len(fresh.sidecars()) == 1
    refreshed = fresh.refresh()
    assert set(codes(refreshed, "error")) == {"graph_create_incomplete", "graph_observation_error"}
    assert statuses(refreshed)["graph.knowledge"] == "error graph_create_incomplete"
    shutil.rmtree(fresh.graph())
    assert fresh.apply()["converged"]
    assert fresh.sidecars() == []


def test_a_graph_that_does_not_open_keeps_the_file_of_its_schema_change(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    interrupt(applied, failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY)
    (applied.graph() / "_schema.pg").rename(applied.folder / "kept.pg")
    result = applied.apply()
    assert result["ok"]
    assert "cluster_recovery_pending" in codes(result, "warning")
    assert outcomes(result)["schema.knowledge"] == "update blocked cluster_recovery_pending"
    assert statuses(result)["schema.knowledge"] == "applied", "the sweep leaves its status"
    assert len(applied.sidecars()) == 1
    (applied.folder / "kept.pg").rename(applied.graph() / "_schema.pg")
    assert applied.apply()["converged"]


@pytest.mark.parametrize("kind", Operation)
def test_a_failure_of_the_storage_is_no_damage_of_the_graph(applied: Deployment, kind: Operation) -> None:
    """Nothing tells the operator to remove a graph that could not be looked at."""
    keep_sidecar(applied, kind, digest_of(applied))

    def open_root(location: Location) -> ClusterRoot:
        return ClusterRoot.at(location, refuse)

    def refuse(op: str, uri: str, /) -> None:
        if op == "exists" and uri == str(applied.graph()):
            raise StorageFailure("unreachable", kind=FailureKind.TRANSIENT, uri=uri)

    before = applied.state()["resource_statuses"]
    result = Deployment(applied.folder, open_root).apply("ann")
    assert codes(result) == ["cluster_recovery_pending"]
    assert "unreachable" in result["diagnostics"][0]["message"]
    assert (applied.state()["resource_statuses"], len(applied.sidecars())) == (before, 1)
    assert "graph_delete_incomplete" in codes(applied.apply("ann")) or kind is not Operation.DELETE
    assert applied.sidecars() == []


def test_a_schema_change_of_a_graph_that_is_gone_is_forgotten_after_a_refresh(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    interrupt(applied, failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY)
    shutil.rmtree(applied.graph())
    result = applied.apply("ann")
    assert "cluster_recovery_pending" in codes(result)
    assert len(applied.sidecars()) == 1, "the disk may not be there"
    assert statuses(applied.refresh())["graph.knowledge"] == "drifted graph_missing"
    result = applied.apply("ann")
    assert result["converged"]
    assert (applied.sidecars(), applied.schema_of()) == ([], WIDER)


def test_a_query_of_a_graph_that_waits_is_deleted_as_reported(applied: Deployment) -> None:
    keep_sidecar(applied, Operation.SCHEMA, digest_of(applied))
    (applied.graph() / "_schema.pg").rename(applied.folder / "kept.pg")
    (applied.folder / "queries/people.gq").write_text("", encoding="utf-8")
    result = applied.apply("ann")
    assert outcomes(result)["query.knowledge.people"] == "delete applied"
    assert "query.knowledge.people" not in applied.state()["applied_revision"]["resources"]
    (applied.folder / "kept.pg").rename(applied.graph() / "_schema.pg")
    assert applied.apply("ann")["converged"]


def test_a_schema_changed_by_someone_else_waits_for_refresh(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    interrupt(applied, failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY)
    with graphs.open(applied.graph()) as graph:
        graph.apply_schema(SCHEMA.replace("}", " phone: String? }"))
    result = applied.apply()
    assert "cluster_recovery_pending" in codes(result, "warning")
    assert statuses(result)["graph.knowledge"] == "drifted actual_applied_state_pending"
    assert len(applied.sidecars()) == 1
    refreshed = applied.refresh()
    assert statuses(refreshed)["schema.knowledge"] == "drifted schema_mismatch"
    result = applied.apply()
    assert applied.sidecars() == []
    assert result["converged"]
    assert applied.schema_of() == WIDER


def test_import_takes_up_pending_operations_and_consumed_approvals(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    interrupt(applied, failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY)
    consumed = {
        "schema_version": 1,
        "approval_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "resource": "graph.old",
        "operation": "delete",
        "reason": "why",
        "bound_config_digest": "x",
        "bound_before_digest": "y",
        "bound_after_digest": None,
        "approved_by": "ann",
        "created_at": "2030-01-01T00:00:00Z",
        "consumed_at": "2030-01-02T00:00:00Z",
        "consumed_by_operation": "apply",
    }
    folder = applied.control / "approvals"
    folder.mkdir(exist_ok=True)
    (folder / f"{consumed['approval_id']}.json").write_text(json.dumps(consumed), encoding="utf-8")
    (applied.control / "state.json").unlink()
    result = applied.import_()
    assert result["ok"]
    assert statuses(result)["schema.knowledge"] == "applied"
    assert applied.sidecars() == []
    state = applied.state()
    assert state["state_revision"] == 1
    assert state["approval_records"]["01ARZ3NDEKTSV4RRFFQ69G5FAV"]["consumed_by_operation"] == "apply"
    assert [one["kind"] for one in state["recovery_records"].values()] == ["schema_apply"]
    assert applied.apply()["converged"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_recovery_sidecar"),
        ('{"schema_version": 1, "shape": 2}', "invalid_recovery_sidecar"),
        ('{"schema_version": 2}', "unsupported_recovery_sidecar_version"),
    ],
)
def test_a_recovery_file_that_is_not_ours_stays(applied: Deployment, text: str, code: str) -> None:
    at = applied.control / "recoveries" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    at.parent.mkdir(exist_ok=True)
    at.write_text(text, encoding="utf-8")
    result = applied.apply()
    assert codes(result) == [code]
    assert result["ok"]
    assert at.read_text(encoding="utf-8") == text


def test_a_recovery_file_that_cannot_be_read_stays(applied: Deployment) -> None:
    at = applied.control / "recoveries" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    at.parent.mkdir(exist_ok=True)
    at.write_bytes(b"\xff\xfe")
    assert codes(applied.status()) == ["recovery_sidecar_read_error"]
