"""Break every storage call of a command once; the next commands converge, and nothing is left behind.

The calls are found by running each command undisturbed. `make test` tries some of the cells, `make torture`
all of them. Inside graph operations processes end at the failpoints of the engine, whose own matrix breaks
its storage calls.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.cluster.root import ClusterRoot
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.cluster.deployment import GONE, SCHEMA, WIDER, Deployment, Json, new_deployment
from tests.engine.crash.faults import Fault, faulty_root
from tests.python_process import PIPE, Python

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("OMNIGRAPH_SEED") or 1)
CELLS = None if os.environ.get("OMNIGRAPH_TORTURE") else 3
"""How many calls of each command are broken in each way."""


@dataclass(frozen=True)
class Scene:
    """A command, what prepares it, and what must hold when it was repeated."""

    prepare: Callable[[Deployment], object]
    run: Callable[[Deployment], Json]
    schema: str | None = SCHEMA
    """The schema of the graph at the end; None when it is gone."""
    from_nothing: bool = False


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


SCENES = {
    "import": Scene(lambda _: None, Deployment.import_, from_nothing=True),
    "create": Scene(Deployment.import_, lambda one: one.apply("ann"), from_nothing=True),
    "schema": Scene(_widen, lambda one: one.apply("ann"), WIDER),
    "delete": Scene(_delete, lambda one: one.apply("ann"), None),
    "recover": Scene(_rolled, lambda one: one.apply("ann"), WIDER),
    "refresh": Scene(_rolled, Deployment.refresh, WIDER),
    "approve": Scene(lambda one: one.configure(GONE), lambda one: one.approve("graph.knowledge"), None),
}


def faulty(fault: Fault) -> Callable[[Location], ClusterRoot]:
    """Open roots whose storage fails once."""

    def open_root(location: Location) -> ClusterRoot:
        fault.armed = True
        return ClusterRoot(location, faulty_root(Root.at(location), fault).objects)

    return open_root


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
    if scene.schema is None:
        assert not deployment.graph().exists()
        state = deployment.state()
        used = [one for one in deployment.approvals() if one["consumed_at"] is not None]
        assert [one["approval_id"] for one in used] == list(state["approval_records"])
        assert state["observations"]["graph.knowledge"]["kind"] == "tombstone"
    else:
        assert deployment.schema_of() == scene.schema
        assert deployment.refresh()["ok"]


def _is_approved(deployment: Deployment) -> bool:
    return all(gate["satisfied"] for gate in deployment.plan()["approvals_required"])


@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
@pytest.mark.parametrize("name", SCENES)
def test_a_broken_call_is_healed_by_running_again(
    template: Deployment, tmp_path: Path, name: str, lost: bool
) -> None:
    scene = SCENES[name]
    base = new_deployment(tmp_path / "base") if scene.from_nothing else template.copy_to(tmp_path / "base")
    scene.prepare(base)
    recorder = Recorder()
    undisturbed = base.copy_to(tmp_path / "undisturbed")
    watched = Deployment(undisturbed.folder, lambda at: ClusterRoot.at(at, recorder))
    assert scene.run(watched)["ok"]
    calls = recorder.calls
    assert len(calls) > 4
    cells = range(len(calls))
    chosen = cells if CELLS is None else sorted(random.Random(f"{SEED}{name}{lost}").sample(cells, CELLS))
    for number in chosen:
        broken = base.copy_to(tmp_path / f"cell-{number}")
        fault = Fault(number, lost=lost)
        try:
            scene.run(Deployment(broken.folder, faulty(fault)))
            assert fault.fired
            converge(broken, scene)
        except BaseException as error:
            error.add_note(f"{name}: call {number}, {calls[number].op} of {calls[number].uri}")
            raise


INSIDE = {
    "create": (
        failpoints.INIT_AFTER_SCHEMA_PG_WRITTEN,
        failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN,
        failpoints.INIT_AFTER_COORDINATOR_INIT,
        failpoints.INIT_MANIFEST_CREATE_ACK_LOST,
    ),
    "schema": (
        failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT,
        failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE,
        failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE,
        failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT,
        failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
        failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
        failpoints.RECOVERY_SIDECAR_WRITE,
        failpoints.RECOVERY_SIDECAR_CONFIRM,
        failpoints.RECOVERY_SIDECAR_DELETE,
    ),
}


FEW = [
    ("create", failpoints.INIT_AFTER_COORDINATOR_INIT),
    ("schema", failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND),
    ("schema", failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT),
]
ALL = [(name, point) for name, points in INSIDE.items() for point in points]


@pytest.mark.parametrize(("name", "point"), ALL if CELLS is None else FEW)
def test_process_that_ends_inside_a_graph_operation_is_healed(
    template: Deployment, tmp_path: Path, name: str, point: str
) -> None:
    scene = SCENES[name]
    killed = new_deployment(tmp_path / "one") if scene.from_nothing else template.copy_to(tmp_path / "one")
    scene.prepare(killed)
    with Python(
        *("-m", "omnigraph", "cluster", "apply", "--config", str(killed.folder), "--as", "ann"),
        env={**os.environ, failpoints.SETTING: f"{point}=exit"},
        stdout=PIPE,
        stderr=PIPE,
    ) as process:
        _, errors = process.communicate()
    assert process.returncode == failpoints.EXIT_STATUS, errors
    assert len(killed.sidecars()) == 1
    converge(killed, scene)


KILLS = {
    "create": failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE,
    "schema": failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY,
    "delete": failpoints.CLUSTER_APPLY_AFTER_GRAPH_DELETE,
}


@pytest.mark.parametrize("name", KILLS if CELLS is None else ["schema"])
def test_a_killed_apply_leaves_its_lock_and_is_healed_after_force_unlock(
    template: Deployment, tmp_path: Path, name: str
) -> None:
    scene = SCENES[name]
    killed = new_deployment(tmp_path / "one") if scene.from_nothing else template.copy_to(tmp_path / "one")
    scene.prepare(killed)
    command = [sys.executable, "-m", "omnigraph", "cluster", "apply", "--config", str(killed.folder)]
    environment = {**os.environ, failpoints.SETTING: f"{KILLS[name]}=exit"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300)
    assert done.returncode == failpoints.EXIT_STATUS, done.stderr
    observed = killed.plan()
    assert [one["code"] for one in observed["diagnostics"]] == ["state_lock_held"]
    assert len(killed.sidecars()) == 1
    converge(killed, scene)
