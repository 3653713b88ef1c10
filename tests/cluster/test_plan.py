"""What a plan says about each change; nothing here opens a graph."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from omnigraph.cluster.approvals import VERSION, Approval, Approvals
from omnigraph.cluster.desired import Desired, load_desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.entries import Entry
from omnigraph.cluster.explain import explain, join
from omnigraph.cluster.plan import Action, Change, Migration, Plan
from omnigraph.cluster.planner import Circumstances, build_plan
from omnigraph.cluster.state import State
from tests.cluster.deployment import CONFIG, GONE, GRAPH_POLICY, TWO_GRAPHS, Deployment, new_deployment

GRAPH, SCHEMA, QUERY = "graph.knowledge", "schema.knowledge", "query.knowledge.people"
POLICY, PROVIDER = "policy.server", "provider.embedding.local"
BOUND = CONFIG.replace("policies:", "policies:\n  own: {file: own.yaml, applies_to: [knowledge]}")


def load(at: Path, config: str = CONFIG) -> Desired:
    made = new_deployment(at)
    made.write("own.yaml", GRAPH_POLICY)
    made.configure(config)
    findings = Findings()
    desired = load_desired(at, findings)
    assert findings.ok
    assert desired is not None
    return desired


def recorded(desired: Desired, without: Iterable[str] = (), changed: Iterable[str] = ()) -> State:
    """The ledger of an earlier revision: some resources are missing, some were different."""
    entries = {
        address: Entry("before") if address in changed else one.entry
        for address, one in desired.resources.items()
        if address not in without
    }
    return State(resources=entries)


def approval(change: Change, desired: Desired) -> Approval:
    question = change.question(desired.config_digest)
    return Approval(
        VERSION,
        "A",
        question.resource,
        question.operation,
        "why",
        question.config_digest,
        question.before_digest,
        question.after_digest,
        "ann",
        "2030-01-01T00:00:00Z",
    )


def verdicts(plan: Plan) -> dict[str, str]:
    return {
        one.resource: " ".join(str(part) for part in (one.operation, one.disposition, one.reason) if part)
        for one in plan.changes
    }


ROWS: dict[str, tuple[dict[str, Iterable[str]], set[str], dict[str, str]]] = {
    "everything is new": (
        {"without": (GRAPH, SCHEMA, QUERY, POLICY, PROVIDER)},
        set(),
        {
            GRAPH: "create applied",
            POLICY: "create applied",
            PROVIDER: "create applied",
            QUERY: "create applied",
            SCHEMA: "create applied",
        },
    ),
    "a new graph that waits for recovery": (
        {"without": (GRAPH, SCHEMA, QUERY)},
        {"knowledge"},
        {
            GRAPH: "create blocked cluster_recovery_pending",
            SCHEMA: "create blocked cluster_recovery_pending",
            QUERY: "create blocked cluster_recovery_pending",
        },
    ),
    "another schema": (
        {"changed": (GRAPH, SCHEMA)},
        set(),
        {GRAPH: "update derived", SCHEMA: "update applied"},
    ),
    "another schema that waits": (
        {"changed": (GRAPH, SCHEMA)},
        {"knowledge"},
        {GRAPH: "update derived", SCHEMA: "update blocked cluster_recovery_pending"},
    ),
    "a schema without its graph": (
        {"without": (SCHEMA, QUERY), "changed": (GRAPH,)},
        set(),
        {
            GRAPH: "update deferred apply_unsupported_kind",
            SCHEMA: "create blocked cluster_recovery_pending",
            QUERY: "create blocked dependency_not_applied",
        },
    ),
    "another query": ({"changed": (GRAPH, QUERY)}, set(), {GRAPH: "update derived", QUERY: "update applied"}),
    "another provider": ({"changed": (PROVIDER,)}, set(), {PROVIDER: "update applied"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_change_gets_its_disposition(tmp_path: Path, name: str) -> None:
    ledger, pending, expected = ROWS[name]
    desired = load(tmp_path)
    circumstances = Circumstances(pending=frozenset(pending))
    assert verdicts(build_plan(desired, recorded(desired, **ledger), circumstances, Findings())) == expected


def test_a_policy_waits_for_the_recovery_of_a_bound_graph(tmp_path: Path) -> None:
    desired = load(tmp_path, BOUND)
    state = recorded(desired, without=("policy.own", POLICY))
    plan = build_plan(desired, state, Circumstances(pending=frozenset({"knowledge"})), Findings())
    assert verdicts(plan) == {
        "policy.own": "create blocked cluster_recovery_pending",
        POLICY: "create applied",
    }


def test_deletes_need_one_approval_for_each_graph(tmp_path: Path) -> None:
    before, after = load(tmp_path / "a", TWO_GRAPHS), load(tmp_path / "b", CONFIG)
    state, findings = recorded(before), Findings()
    plan = build_plan(after, state, Circumstances(), findings)
    second = ("graph.second", "query.second.people", "schema.second")
    assert verdicts(plan) == dict.fromkeys(second, "delete blocked approval_required")
    assert [(gate.resource, gate.satisfied) for gate in plan.gates] == [("graph.second", False)]
    assert [one.code for one in findings.found] == ["apply_dependency_blocked"] * 3
    assert plan.blast_radius["graph.second"] == ()

    change = plan.find("graph.second")
    assert change is not None
    approvals = Approvals((approval(change, after),))
    plan = build_plan(after, state, Circumstances(approvals=approvals), Findings())
    assert verdicts(plan) == dict.fromkeys(second, "delete applied")
    assert plan.gates[0].satisfied

    pending = Circumstances(pending=frozenset({"second"}), approvals=approvals)
    assert set(verdicts(build_plan(after, state, pending, Findings())).values()) == {
        "delete blocked cluster_recovery_pending"
    }


def test_an_approval_of_other_digests_authorizes_nothing(tmp_path: Path) -> None:
    before, after = load(tmp_path / "a", TWO_GRAPHS), load(tmp_path / "b", CONFIG)
    state = recorded(before)
    change = build_plan(after, state, Circumstances(), Findings()).find("graph.second")
    assert change is not None
    stale = approval(change, before)
    findings = Findings()
    plan = build_plan(after, state, Circumstances(approvals=Approvals((stale,))), findings)
    assert not plan.gates[0].satisfied
    assert findings.has("approval_stale")
    consumed = Approvals((approval(change, after),), frozenset({"A"}))
    assert consumed.find(change.question(after.config_digest)) is None


def test_a_schema_that_is_deleted_alone_is_gated_and_deferred(tmp_path: Path) -> None:
    desired = load(tmp_path)
    state = recorded(desired)
    orphan = State(resources={**state.resources, "schema.old": Entry("x"), "dashboard.old": Entry("y")})
    findings = Findings()
    plan = build_plan(desired, orphan, Circumstances(), findings)
    assert verdicts(plan) == {
        "dashboard.old": "delete deferred apply_unsupported_kind",
        "schema.old": "delete deferred apply_unsupported_kind",
    }
    assert [gate.resource for gate in plan.gates] == ["schema.old"]
    assert [one.code for one in findings.found] == ["apply_unsupported_change"] * 2


def test_bindings_and_profiles_that_were_never_recorded_are_changes(tmp_path: Path) -> None:
    desired = load(tmp_path)
    state = recorded(desired)
    old = {
        address: Entry(entry.digest) if address in (POLICY, PROVIDER) else entry
        for address, entry in state.resources.items()
    }
    plan = build_plan(desired, State(resources=old), Circumstances(), Findings())
    found = {one.resource: one.to_json() for one in plan.changes}
    assert found[POLICY]["metadata_change"] == "policy_bindings"
    assert found[POLICY]["binding_change"] is True
    assert found[PROVIDER]["metadata_change"] == "embedding_profile"
    assert "binding_change" not in found[PROVIDER]


def test_a_plan_is_explained_as_a_diff(tmp_path: Path) -> None:
    before, after = load(tmp_path / "a", TWO_GRAPHS), load(tmp_path / "b", CONFIG)
    state = recorded(before, changed=(SCHEMA, GRAPH))
    plan = build_plan(after, state, Circumstances(), Findings())
    lines = join(explain(plan)).splitlines()
    assert lines[0] == "cluster plan: 5 change(s), 1 approval gate(s)"
    assert "  ~ Update graph.knowledge (follows from its parts)" in lines
    assert "  - Delete graph.second (needs an approval)" in lines
    assert "      affects query.knowledge.people" in lines
    assert lines[-1].startswith("  approval of graph.second: delete may remove deployed graph")
    empty = build_plan(after, recorded(after), Circumstances(), Findings())
    assert join(explain(empty)).splitlines()[1:] == ["  no changes"]


def test_drops_are_explained() -> None:
    migration = Migration(True, ({"kind": "drop_property"},), ("- P.x",))
    change = Change("schema.g", Action.UPDATE, migration=migration)
    text = join(explain(Plan("c", None, (change,))))
    assert "what is dropped stays readable in older commits" in text


def test_a_configuration_without_graphs_has_no_changes(fresh: Deployment) -> None:
    fresh.configure(GONE)
    assert fresh.plan()["changes"] == []
