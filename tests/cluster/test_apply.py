"""Applying a deployment: what is created, changed, deleted, blocked and recorded."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph import graph as graphs
from omnigraph.cluster.apply import require_approvals
from omnigraph.cluster.diagnostics import Stopped
from omnigraph.cluster.plan import DELETE_REASON, Action, Change, Disposition, Gate, Plan
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.serving import read_serving
from omnigraph.engine.graph.root import Root
from omnigraph.errors import HistoricalVersionReclaimed, StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from tests.cluster.deployment import (
    CONFIG,
    GONE,
    GRAPH_POLICY,
    IMPOSSIBLE,
    MAILS,
    NARROWER,
    QUERY,
    SCHEMA,
    TWO_GRAPHS,
    WIDER,
    Deployment,
    Json,
    codes,
    outcomes,
    statuses,
)

BOUND = CONFIG.replace("policies:", "policies:\n  own: {file: own.yaml, applies_to: [knowledge]}")


def test_the_first_apply_makes_graphs_and_publishes_files(applied: Deployment) -> None:
    state = applied.state()
    assert (state["version"], state["state_revision"]) == (1, 2)
    assert state["applied_revision"]["resources"]["policy.server"]["applies_to"] == ["cluster"]
    provider = state["applied_revision"]["resources"]["provider.embedding.local"]
    assert provider["embedding_profile"] == {"kind": "mock"}
    assert (applied.control / "state.json").read_text(encoding="utf-8").endswith("}\n")
    assert applied.schema_of() == SCHEMA
    digest = state["applied_revision"]["resources"]["query.knowledge.people"]["digest"]
    at = applied.control / "resources" / "query" / "knowledge" / "people" / f"{digest}.gq"
    assert at.read_text(encoding="utf-8") == QUERY
    assert applied.sidecars() == []
    assert not (applied.control / "lock.json").exists()
    assert set(statuses(applied.status()).values()) == {"applied"}


def test_applying_again_writes_nothing(applied: Deployment) -> None:
    before = (applied.control / "state.json").read_bytes()
    result = applied.apply()
    assert (result["ok"], result["converged"], result["state_written"]) == (True, True, False)
    assert (applied.control / "state.json").read_bytes() == before


def test_apply_needs_a_ledger(fresh: Deployment) -> None:
    result = fresh.apply()
    assert codes(result) == ["state_missing"]
    assert not result["ok"]


def test_a_schema_and_a_query_that_needs_it_go_together(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    applied.write("queries/mails.gq", MAILS)
    planned = {one["resource"]: one for one in applied.plan()["changes"]}
    steps = planned["schema.knowledge"]["migration"]
    assert steps["supported"]
    assert [step["kind"] for step in steps["steps"]] == ["add_property"]
    result = applied.apply("ann")
    assert outcomes(result) == {
        "graph.knowledge": "update derived",
        "query.knowledge.mails": "create applied",
        "schema.knowledge": "update applied",
    }
    assert result["converged"]
    assert applied.schema_of() == WIDER
    with graphs.open(applied.graph(), read_only=True) as graph:
        newest = graph.commits.list(limit=1)[0]
        assert newest.actor == "ann"
    assert applied.plan()["changes"] == []


def test_a_text_that_means_the_same_is_recorded_and_stays_applied(applied: Deployment) -> None:
    applied.write("knowledge.pg", "// who we know\n" + SCHEMA)
    assert applied.apply()["converged"]
    assert applied.schema_of() == SCHEMA, "the engine keeps a schema whose meaning did not change"
    assert statuses(applied.refresh())["schema.knowledge"] == "applied"
    assert applied.plan()["changes"] == []


def test_a_schema_that_cannot_be_applied_blocks_what_depends_on_it(applied: Deployment) -> None:
    applied.write("knowledge.pg", IMPOSSIBLE)
    applied.write("queries/more.gq", QUERY.replace("people", "more"))
    applied.configure(BOUND)
    applied.write("own.yaml", GRAPH_POLICY)
    applied.write("server.yaml", (applied.folder / "server.yaml").read_text(encoding="utf-8") + "# new\n")
    result = applied.apply("ann")
    assert not result["ok"]
    assert "schema_apply_failed" in codes(result, "error")
    assert outcomes(result) == {
        "graph.knowledge": "update blocked dependency_not_applied",
        "policy.own": "create blocked dependency_not_applied",
        "policy.server": "update applied",
        "query.knowledge.more": "create blocked dependency_not_applied",
        "schema.knowledge": "update blocked schema_apply_failed",
    }
    assert applied.sidecars() == [], "a refused plan fails before there is a recovery file"
    assert statuses(result)["schema.knowledge"] == "blocked schema_apply_failed"
    assert (result["converged"], result["state_written"]) == (False, True)
    assert applied.state()["applied_revision"]["config_digest"] != result["desired_revision"]["config_digest"]


def test_a_schema_refused_because_of_branches_leaves_no_recovery_file(applied: Deployment) -> None:
    with graphs.open(applied.graph()) as graph:
        graph.branches.create("draft")
    applied.write("knowledge.pg", WIDER)
    result = applied.apply()
    assert "schema_apply_failed" in codes(result, "error")
    assert any("draft" in one["message"] for one in result["diagnostics"])
    assert applied.sidecars() == []
    with graphs.open(applied.graph()) as graph:
        graph.branches.delete("draft")
    assert applied.apply()["converged"]


def test_the_first_failure_stops_other_graph_work_and_nothing_else(fresh: Deployment) -> None:
    fresh.configure(TWO_GRAPHS)
    assert fresh.import_()["ok"]
    (fresh.folder / "graphs").mkdir()
    fresh.graph().mkdir()
    (fresh.graph() / "strange.txt").write_text("not a graph", encoding="utf-8")
    result = fresh.apply()
    assert "graph_create_failed" in codes(result, "error")
    assert "graph_create_skipped" in codes(result, "warning")
    found = outcomes(result)
    assert found["graph.knowledge"] == "create blocked graph_create_failed"
    assert found["graph.second"] == "create blocked dependency_not_applied"
    assert found["policy.server"] == "create applied"
    (fresh.graph() / "strange.txt").unlink()
    fresh.graph().rmdir()
    assert fresh.apply()["converged"], "the operator removed what was in the way"


def test_a_failure_skips_schema_changes_and_deletes_of_other_graphs(applied: Deployment) -> None:
    applied.configure(TWO_GRAPHS)
    assert applied.apply()["converged"]
    applied.configure(TWO_GRAPHS.replace("second", "first"))
    applied.write("knowledge.pg", WIDER)
    assert applied.approve("graph.second")["ok"]
    applied.graph("first").mkdir()
    (applied.graph("first") / "strange.txt").write_text("not a graph", encoding="utf-8")
    result = applied.apply("ann")
    assert codes(result, "error") == ["graph_create_failed"]
    assert {"schema_apply_skipped", "graph_delete_skipped"} <= set(codes(result, "warning"))
    assert outcomes(result)["graph.second"] == "delete blocked dependency_not_applied"
    assert applied.schema_of() == SCHEMA
    (applied.graph("first") / "strange.txt").unlink()
    assert applied.apply("ann")["converged"], "the approval of the delete still holds"
    assert not applied.graph("second").exists()


def test_a_graph_is_not_deleted_under_a_writer(applied: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0.05")
    # The provider stays: without it the graph would have another digest than the approved one.
    applied.configure(GONE + "providers: {embedding: {local: {kind: mock}}}\n")
    assert applied.approve("graph.knowledge")["ok"]
    results: list[Json] = []
    with Root.at(Location.parse(applied.graph())).locks.hold(["main"]):
        thread = threading.Thread(target=lambda: results.append(applied.apply("ann")))
        thread.start()
        thread.join()
    assert codes(results[0], "error") == ["graph_delete_failed"]
    assert applied.sidecars() == []
    assert applied.graph().exists()
    assert applied.apply("ann")["converged"]


def failing(deployment: Deployment, op: str, part: str) -> Deployment:
    """The deployment with storage that refuses one kind of call."""

    def observe(called: str, uri: str, /) -> None:
        if called == op and part in uri:
            raise StorageFailure("injected", kind=FailureKind.TRANSIENT, uri=uri)

    return Deployment(deployment.folder, lambda at: ClusterRoot.at(at, observe))


def test_what_cannot_be_tidied_up_is_a_warning_and_tidied_by_the_next_command(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    result = failing(applied, "write_text", "approvals").apply("ann")
    assert (result["ok"], result["converged"]) == (True, True)
    assert "approval_write_failed" in codes(result, "warning")
    assert applied.approvals()[0]["consumed_at"] is None
    applied.configure(CONFIG)
    result = failing(applied, "delete", "recoveries").apply("ann")
    assert result["converged"]
    assert "recovery_sidecar_cleanup_failed" in codes(result, "warning")
    assert len(applied.sidecars()) == 1
    assert applied.apply()["ok"]
    assert applied.sidecars() == []
    assert applied.approvals()[0]["consumed_by_operation"] == "apply", "the ledger knows it"


def test_a_gated_change_never_runs_without_its_approval() -> None:
    change = Change("graph.g", Action.DELETE, "x", disposition=Disposition.APPLIED)
    plan = Plan("c", None, (change,), (Gate("graph.g", DELETE_REASON, satisfied=False),))
    with pytest.raises(Stopped) as stopped:
        require_approvals(plan)
    assert stopped.value.found.code == "apply_approval_invariant_violation"


def test_a_delete_needs_its_approval_and_leaves_a_tombstone(applied: Deployment) -> None:
    applied.configure(GONE)
    result = applied.apply("ann")
    assert result["ok"], "a partial apply is no failure"
    assert outcomes(result)["graph.knowledge"] == "delete blocked approval_required"
    assert applied.graph().exists()
    assert codes(applied.approve("graph.knowledge", None)) == ["actor_required"]
    assert codes(applied.approve("schema.knowledge")) == ["approval_not_required"]
    approved = applied.approve("graph.knowledge")
    assert approved["ok"]
    assert applied.plan()["approvals_required"][0]["satisfied"]
    result = applied.apply("ann")
    assert result["converged"]
    assert not applied.graph().exists()
    state = applied.state()
    assert state["applied_revision"]["resources"] == {}
    tombstone = state["observations"]["graph.knowledge"]
    assert (tombstone["kind"], tombstone["approval_id"]) == ("tombstone", approved["approval_id"])
    record = state["approval_records"][approved["approval_id"]]
    (file,) = applied.approvals()
    assert (file["consumed_at"], file["consumed_by_operation"]) == (record["consumed_at"], "apply")


def test_what_a_graph_needs_stays_until_it_is_deleted(applied: Deployment) -> None:
    """Without its provider no server would start, and without its policy everybody could read it."""
    applied.write("own.yaml", GRAPH_POLICY)
    applied.configure(BOUND)
    assert applied.apply("ann")["converged"]
    applied.configure(GONE)
    result = applied.apply("ann")
    found = outcomes(result)
    assert found["policy.own"] == "delete blocked dependency_not_applied"
    assert found["provider.embedding.local"] == "delete blocked dependency_not_applied"
    assert found["policy.server"] == "delete applied"
    [served] = read_serving(str(applied.folder)).graphs
    assert served.policy is not None
    assert served.embedding == {"kind": "mock"}
    assert applied.approve("graph.knowledge")["ok"]
    assert applied.apply("ann")["converged"]


def test_an_approval_outlives_a_delete_that_failed(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]

    def refuse(op: str, uri: str, /) -> None:
        if op == "delete_prefix":
            raise StorageFailure("busy", kind=FailureKind.TRANSIENT, uri=uri)

    failing = Deployment(applied.folder, lambda at: ClusterRoot.at(at, refuse))
    result = failing.apply("ann")
    assert codes(result, "error") == ["graph_delete_failed"]
    assert outcomes(result)["provider.embedding.local"] == "delete blocked dependency_not_applied"
    assert applied.apply("ann")["converged"], "nothing has to be approved again"


def test_a_graph_behind_a_link_is_deleted_with_the_link(applied: Deployment, tmp_path: Path) -> None:
    elsewhere = applied.graph().rename(tmp_path / "elsewhere")
    applied.graph().symlink_to(elsewhere)
    assert applied.refresh()["ok"]
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    assert applied.apply("ann")["converged"]
    assert not applied.graph().is_symlink()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "omnigraph:recovery"])
def test_a_name_that_cannot_be_an_actor_changes_nothing(applied: Deployment, name: str) -> None:
    applied.configure(GONE)
    assert codes(applied.approve("graph.knowledge", name)) == ["actor_required"]
    assert codes(applied.apply(name)) == ["actor_required"]
    assert applied.approvals() == []


def test_an_approval_is_bound_to_the_configuration_it_was_given_for(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    applied.configure(GONE + "metadata: {name: other}\n")
    result = applied.apply("ann")
    assert "approval_stale" in codes(result, "warning")
    assert applied.graph().exists()


def test_an_approval_that_cannot_be_read_authorizes_nothing(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    (at,) = (applied.control / "approvals").iterdir()
    at.write_text(at.read_text(encoding="utf-8").replace("approved_by", "approved_of"), encoding="utf-8")
    result = applied.apply("ann")
    assert "invalid_approval" in codes(result, "warning")
    assert applied.graph().exists()


def test_data_loss_is_approved_for_exactly_one_apply(applied: Deployment) -> None:
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "bo", age: 7 } }')
        version = graph.snapshot().version
    assert codes(applied.approve("schema.knowledge", allow_data_loss=True)) == ["approval_not_required"]
    applied.write("knowledge.pg", NARROWER)
    assert codes(applied.approve("schema.knowledge")) == ["approval_not_required"]
    approved = applied.approve("schema.knowledge", allow_data_loss=True)
    assert approved["operation"] == "update"
    planned = {one["resource"]: one for one in applied.plan()["changes"]}
    assert planned["schema.knowledge"]["migration"]["data_loss_approved"]
    assert applied.apply("ann")["converged"]
    assert approved["approval_id"] in applied.state()["approval_records"]
    with graphs.open(applied.graph(), read_only=True) as graph, pytest.raises(HistoricalVersionReclaimed):
        graph.at(version=version).rows("Person")


def test_an_approved_removal_never_runs_as_a_soft_one(applied: Deployment) -> None:
    applied.write("knowledge.pg", NARROWER)
    assert applied.approve("schema.knowledge", allow_data_loss=True)["ok"]

    def refuse(op: str, uri: str, /) -> None:
        if op == "read_text_if_exists" and "approvals" in uri:
            raise StorageFailure("busy", kind=FailureKind.TRANSIENT, uri=uri)

    failing = Deployment(applied.folder, lambda at: ClusterRoot.at(at, refuse))
    assert codes(failing.apply("ann")) == ["storage_failure"]
    assert applied.schema_of() == SCHEMA
    assert applied.apply("ann")["converged"]
    assert len(applied.state()["approval_records"]) == 1


def test_dropped_data_stays_readable_without_an_approval(applied: Deployment) -> None:
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "bo", age: 7 } }')
        version = graph.snapshot().version
    applied.write("knowledge.pg", NARROWER)
    assert applied.apply("ann")["converged"]
    with graphs.open(applied.graph(), read_only=True) as graph:
        assert graph.at(version=version).rows("Person").column("age").to_pylist() == [7]


def test_the_applied_policy_decides_about_the_next_schema(applied: Deployment) -> None:
    applied.configure(BOUND)
    applied.write("own.yaml", GRAPH_POLICY)
    assert applied.apply()["converged"]
    # The desired policy would let everybody in; what counts is the applied one.
    applied.write("own.yaml", GRAPH_POLICY.replace("[ann]", "[ann, bob]"))
    applied.write("knowledge.pg", WIDER)
    result = applied.apply()
    assert "actor_required" in codes(result, "error")
    assert outcomes(result)["schema.knowledge"] == "update blocked schema_apply_failed"
    assert "schema_apply_failed" in codes(applied.apply("bob"), "error")
    assert applied.schema_of() == SCHEMA
    assert applied.apply("ann")["converged"]


def test_a_stored_plan_is_refused_once_something_moved(applied: Deployment, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    applied.write("knowledge.pg", WIDER)
    assert applied.plan(out)["ok"]
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "bo" } }')
    applied.write("queries/more.gq", QUERY.replace("people", "more"))
    result = applied.apply(plan_file=out)
    assert codes(result, "error") == ["plan_stale"]
    assert "the configuration moved" in result["diagnostics"][-1]["message"]
    (applied.folder / "queries" / "more.gq").unlink()
    with graphs.open(applied.graph()) as graph:
        graph.apply_schema(WIDER.replace("mail", "phone"))
    assert "live schema of graph 'knowledge'" in applied.apply(plan_file=out)["diagnostics"][-1]["message"]
    assert applied.refresh()["ok"]
    assert "the ledger" in applied.apply(plan_file=out)["diagnostics"][-1]["message"]
    out.write_text("{}", encoding="utf-8")
    assert codes(applied.apply(plan_file=out), "error") == ["invalid_plan_file"]
    assert codes(applied.apply(plan_file=tmp_path / "none.json"), "error") == ["invalid_plan_file"]


def test_data_may_move_between_plan_and_apply(applied: Deployment, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    applied.write("knowledge.pg", WIDER)
    assert applied.plan(out)["ok"]
    assert json.loads(out.read_text(encoding="utf-8"))["live"].keys() == {"knowledge"}
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "bo" } }')
    assert applied.apply(plan_file=out)["converged"]


def test_a_schema_that_moves_while_apply_runs_is_refused(applied: Deployment) -> None:
    applied.configure(TWO_GRAPHS)
    applied.write("knowledge.pg", WIDER)

    def move_schema() -> None:
        with graphs.open(applied.graph()) as graph:
            graph.apply_schema(WIDER.replace("mail", "phone"))

    with failpoints.arm(failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE, move_schema):
        result = applied.apply()
    assert "graph_schema_moved" in codes(result, "error")
    assert outcomes(result)["schema.knowledge"] == "update blocked schema_apply_failed"
    assert applied.sidecars() == []


@pytest.mark.parametrize(
    ("point", "file"),
    [
        (failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE, "knowledge.pg"),
        (failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE, "queries/people.gq"),
    ],
)
def test_a_file_that_changes_while_apply_runs_is_not_used(fresh: Deployment, point: str, file: str) -> None:
    assert fresh.import_()["ok"]
    with failpoints.arm(point, lambda: fresh.write(file, "// edited\n" + SCHEMA)):
        result = fresh.apply()
    assert "resource_content_changed" in codes(result, "error")
    assert not result["converged"]


def test_a_preview_that_fails_is_a_warning(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    (applied.graph() / "_schema.pg").rename(applied.folder / "kept.pg")
    result = applied.plan()
    assert result["ok"]
    assert "schema_preview_unavailable" in codes(result, "warning")
