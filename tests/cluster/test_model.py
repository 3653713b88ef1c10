"""Random edits, applies, crashes and refreshes against a plain model of what should be deployed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import failpoints
from omnigraph import graph as graphs
from omnigraph.cluster.serving import read_serving
from tests.cluster.deployment import (
    GRAPH_POLICY,
    NARROWER,
    QUERY,
    SCHEMA,
    WIDER,
    Deployment,
    codes,
)
from tests.examples import EXAMPLES

pytestmark = pytest.mark.fuzz

GRAPHS = ("one", "two")
SCHEMAS = (SCHEMA, WIDER, NARROWER)
POINTS = (
    failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE,
    failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE,
    failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY,
    failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY,
    failpoints.CLUSTER_APPLY_AFTER_PAYLOAD_PHASE,
    failpoints.CLUSTER_APPLY_BEFORE_GRAPH_DELETE,
    failpoints.CLUSTER_APPLY_AFTER_GRAPH_DELETE,
    failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE,
)


@dataclass(frozen=True)
class Edit:
    """What the files say about one graph from now on; None takes it out."""

    graph_id: str
    schema: int | None
    query: bool = False
    policy: bool = False


@dataclass(frozen=True)
class Apply:
    """An apply, which may be interrupted."""

    crash: str | None = None


@dataclass(frozen=True)
class Approve:
    """A person approves all that waits."""


@dataclass(frozen=True)
class Refresh:
    """The ledger is compared with what is there."""


Step = Edit | Apply | Approve | Refresh
EDITS = st.builds(
    Edit, st.sampled_from(GRAPHS), st.sampled_from((0, 1, 2, None)), st.booleans(), st.booleans()
)
STEPS = st.lists(
    st.one_of(
        EDITS,
        st.builds(Apply, st.one_of(st.none(), st.sampled_from(POINTS))),
        st.just(Approve()),
        st.just(Refresh()),
    ),
    min_size=2,
    max_size=8,
)


@dataclass
class Model:
    """What the files declare, what was approved under which files, and the graphs that must be there."""

    declared: dict[str, Edit] = field(default_factory=dict)
    approved: set[tuple[str, frozenset[Edit]]] = field(default_factory=set)
    existing: dict[str, set[str]] = field(default_factory=dict)
    """The schemas that each graph may have: several after a crash."""
    filled: set[str] = field(default_factory=set)
    """The graphs that have a row."""

    def files(self) -> frozenset[Edit]:
        return frozenset(self.declared.values())

    def apply(self, *, crashed: bool) -> None:
        for graph_id, edit in self.declared.items():
            wanted = SCHEMAS[edit.schema or 0]
            before = self.existing.get(graph_id)
            if not crashed:
                self.existing[graph_id] = {wanted}
            elif before is not None:
                self.existing[graph_id] = {*before, wanted}

    def may_vanish(self, graph_id: str) -> bool:
        """Whether a graph is allowed to be gone: only by an approved delete."""
        return graph_id not in self.declared and (graph_id, self.files()) in self.approved


def write_files(deployment: Deployment, declared: Mapping[str, Edit]) -> None:
    lines = ["version: 1", "graphs:" if declared else "graphs: {}"]
    for graph_id, edit in sorted(declared.items()):
        deployment.write(f"{graph_id}.pg", SCHEMAS[edit.schema or 0])
        query = ", queries: {people: {file: people.gq}}" if edit.query else ""
        lines.append(f"  {graph_id}: {{schema: {graph_id}.pg{query}}}")
    bound = [graph_id for graph_id, edit in sorted(declared.items()) if edit.policy]
    if bound:
        lines += ["policies:", f"  ops: {{file: ops.yaml, applies_to: [{', '.join(bound)}]}}"]
    deployment.configure("\n".join(lines) + "\n")


def run(deployment: Deployment, model: Model, step: Step) -> None:
    match step:
        case Edit(graph_id=graph_id, schema=schema):
            if schema is None:
                model.declared.pop(graph_id, None)
            else:
                model.declared[graph_id] = step
            write_files(deployment, model.declared)
        case Apply(crash=crash):
            armed = nullcontext() if crash is None else failpoints.arm(crash, failpoints.error(crash))
            with armed:
                result = deployment.apply("ann")
            crashed = "injected_failpoint" in codes(result, "error")
            assert crashed or result["ok"], result["diagnostics"]
            model.apply(crashed=crashed)
        case Approve():
            for gate in deployment.plan()["approvals_required"]:
                assert deployment.approve(gate["resource"])["ok"]
                model.approved.add((gate["resource"].partition(".")[2], model.files()))
        case Refresh():
            assert deployment.refresh()["ok"]


def look(deployment: Deployment, model: Model) -> None:
    """Compare the graphs with the model; a new one gets a row, which must stay as long as the graph."""
    for graph_id in GRAPHS:
        place = deployment.graph(graph_id)
        if not (place / "__manifest").exists():
            if graph_id in model.existing:
                assert model.may_vanish(graph_id), f"{graph_id} was removed without an approval"
                del model.existing[graph_id]
                model.filled.discard(graph_id)
            continue
        with graphs.open(place) as graph:
            known = model.existing.setdefault(graph_id, {graph.schema_source})
            assert graph.schema_source in known
            assert len(graph.query(QUERY)) == int(graph_id in model.filled), "rows outlive everything else"
            if graph_id not in model.filled:
                graph.mutate('query q() { insert Person { name: "kept" } }')
                model.filled.add(graph_id)
            model.existing[graph_id] = {graph.schema_source}


def require_converged(deployment: Deployment, model: Model) -> None:
    """Approve and apply what is left; then files, ledger, graphs and what is served agree."""
    run(deployment, model, Approve())
    result = deployment.apply("ann")
    if not result["converged"]:
        # The recovery of a crash may change what an approval is bound to.
        run(deployment, model, Approve())
        result = deployment.apply("ann")
    assert result["converged"], result
    assert deployment.sidecars() == []
    assert deployment.plan()["changes"] == []
    assert {one.stem for one in (deployment.folder / "graphs").glob("*.omni")} == set(model.declared)
    for graph_id, edit in model.declared.items():
        assert deployment.schema_of(graph_id) == SCHEMAS[edit.schema or 0]
    if model.declared:
        served = read_serving(str(deployment.folder))
        assert {one.id: (bool(one.queries), one.policy is not None) for one in served.graphs} == {
            graph_id: (edit.query, edit.policy) for graph_id, edit in model.declared.items()
        }


@settings(max_examples=max(4, EXAMPLES // 20))
@given(STEPS)
def test_what_was_declared_is_deployed_whatever_happens_on_the_way(steps: list[Step]) -> None:
    folder = Path(mkdtemp(prefix="cluster-model-"))
    try:
        deployment, model = Deployment(folder), Model()
        write_files(deployment, {})
        deployment.write("people.gq", QUERY)
        deployment.write("ops.yaml", GRAPH_POLICY)
        assert deployment.import_()["ok"]
        for step in steps:
            run(deployment, model, step)
            look(deployment, model)
        require_converged(deployment, model)
    finally:
        shutil.rmtree(folder)
