"""Commands of an operator that the crash matrix breaks off at every storage call they make.

The calls are those on the ledger and its neighbours, and those inside the graphs that a command creates,
changes, deletes or looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from omnigraph import failpoints
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, Observer, Recorder
from tests.cluster.deployment import (
    GONE,
    NARROWER,
    SCHEMA,
    WIDER,
    Deployment,
    Json,
    leave_sidecar,
    new_deployment,
)
from tests.engine.crash.faults import Fault, faulty_root


@dataclass(frozen=True)
class Scene:
    """A command, what prepares it, and what must hold when it was repeated."""

    prepare: Callable[[Deployment], object]
    run: Callable[[Deployment], Json]
    schema: str | None = SCHEMA
    """The schema of the graph at the end; None when it is gone."""
    from_nothing: bool = False
    loses_data: bool = False
    """Whether the schema change has an approval to remove what it drops for good."""


def _delete(deployment: Deployment) -> None:
    deployment.configure(GONE)
    assert deployment.approve("graph.knowledge")["ok"]


def _widen(deployment: Deployment) -> None:
    deployment.write("knowledge.pg", WIDER)


def _rolled(deployment: Deployment) -> None:
    """Leave a schema change that took effect and was not recorded."""
    _widen(deployment)
    point = failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY
    with failpoints.arm(point, failpoints.error(point)):
        deployment.apply("ann")
    assert deployment.sidecars()


def _narrow(deployment: Deployment) -> None:
    with og.open(deployment.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Ada", age: 1 } }')
    deployment.write("knowledge.pg", NARROWER)
    assert deployment.approve("schema.knowledge", allow_data_loss=True)["ok"]


def _unfinished(deployment: Deployment) -> None:
    """Leave an initialisation that died before there was a graph."""
    deployment.import_()
    root = Root.at(Location.parse(deployment.graph()))
    root.objects.write_text(root.layout.init_claim, "{}")
    digest = deployment.validate()["resource_digests"]["schema.knowledge"]
    leave_sidecar(deployment, kind="graph_create", desired_schema_digest=digest)


SCENES = {
    "import": Scene(lambda _: None, Deployment.import_, from_nothing=True),
    "create": Scene(Deployment.import_, lambda one: one.apply("ann"), from_nothing=True),
    "create-again": Scene(_unfinished, lambda one: one.apply("ann"), from_nothing=True),
    "schema": Scene(_widen, lambda one: one.apply("ann"), WIDER),
    "lose-data": Scene(_narrow, lambda one: one.apply("ann"), NARROWER, loses_data=True),
    "delete": Scene(_delete, lambda one: one.apply("ann"), None),
    "recover": Scene(_rolled, lambda one: one.apply("ann"), WIDER),
    "refresh": Scene(_rolled, Deployment.refresh, WIDER),
    "approve": Scene(lambda one: one.configure(GONE), lambda one: one.approve("graph.knowledge"), None),
}


def watching(observe: Observer) -> OpenRoot:
    """Open roots whose storage calls, and those inside their graphs, are observed."""

    def open_root(location: Location) -> ClusterRoot:
        plain = ClusterRoot.at(location, observe)
        return ClusterRoot(location, plain.objects, open_graph_root=lambda at: Root.at(at, observe))

    return open_root


def faulty(fault: Fault) -> OpenRoot:
    """Open roots whose storage, or that of their graphs, fails once."""

    def open_root(location: Location) -> ClusterRoot:
        fault.armed = True
        objects = faulty_root(Root.at(location), fault).objects
        return ClusterRoot(location, objects, open_graph_root=lambda at: faulty_root(Root.at(at), fault))

    return open_root


def make_base(name: str, template: Deployment, folder: Path) -> Deployment:
    """A deployment that is about to run the command of a scene."""
    scene = SCENES[name]
    base = new_deployment(folder) if scene.from_nothing else template.copy_to(folder)
    scene.prepare(base)
    return base


def find_calls(name: str, base: Deployment, folder: Path) -> tuple[Call, ...]:
    """The storage calls of a command that is left alone, on a copy of a deployment."""
    recorder = Recorder()
    watched = Deployment(base.copy_to(folder).folder, watching(recorder))
    assert SCENES[name].run(watched)["ok"]
    return recorder.calls


def converge(deployment: Deployment, scene: Scene) -> None:
    """Do what an operator does after a command failed, and look at everything."""
    held = deployment.status()["state_observations"].get("lock_id")
    if held is not None:
        assert deployment.force_unlock(held)["lock_removed"]
    if not (deployment.control / "state.json").exists():
        assert deployment.import_()["ok"]
    if scene.schema is None and deployment.graph().exists() and not _is_approved(deployment):
        assert deployment.approve("graph.knowledge")["ok"]
    result = deployment.apply("ann")
    assert result["ok"], result["diagnostics"]
    assert result["converged"]
    assert deployment.sidecars() == []
    assert deployment.plan()["changes"] == []
    assert not deployment.apply()["state_written"]
    state = deployment.state()
    used = [one["approval_id"] for one in deployment.approvals() if one["consumed_at"] is not None]
    assert used == list(state["approval_records"])
    assert len(used) == (scene.schema is None or scene.loses_data)
    if scene.schema is None:
        assert not deployment.graph().exists()
        assert state["observations"]["graph.knowledge"]["kind"] == "tombstone"
    else:
        assert deployment.schema_of() == scene.schema
        assert deployment.refresh()["ok"]
        _require_graph_writes(deployment)


def _require_graph_writes(deployment: Deployment) -> None:
    """The graph is whole: it takes a row, and its recovery finds nothing to do."""
    with og.open(deployment.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Zoe" } }')
        assert (
            "Zoe"
            in graph.query("query q() { match { $p: Person } return { $p.name } }")
            .to_arrow()["p.name"]
            .to_pylist()
        )


def _is_approved(deployment: Deployment) -> bool:
    return all(gate["satisfied"] for gate in deployment.plan()["approvals_required"])
