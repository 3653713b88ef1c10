"""Break every storage call of a command once; the next commands converge, and nothing is left behind.

The calls, those inside graphs too, are found by running each command undisturbed. `make test` tries some of
the cells, others each day, and `make torture` all of them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.storage.objects import Call
from tests.cluster.deployment import Deployment
from tests.cluster.scenes import SCENES, converge, faulty, find_calls, make_base
from tests.engine.crash.faults import Fault
from tests.engine.crash.matrix import explain_cell
from tests.python_process import PIPE, PROJECT, Python

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("OMNIGRAPH_SEED") or datetime.now(UTC).toordinal())
CELLS = None if os.environ.get("OMNIGRAPH_TORTURE") else 2
"""How many calls of each command are broken in each way."""


def choose(calls: tuple[Call, ...], what: str) -> list[int]:
    """Return the calls that are broken today."""
    cells = range(len(calls))
    chosen = list(cells) if CELLS is None else sorted(random.Random(f"{SEED}{what}").sample(cells, CELLS))
    print(f"{what}: {len(chosen)} of {len(calls)} cells, OMNIGRAPH_SEED={SEED}")
    return chosen


@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
@pytest.mark.parametrize("name", SCENES)
def test_a_broken_call_is_healed_by_running_again(
    template: Deployment, tmp_path: Path, name: str, lost: bool
) -> None:
    scene, base = SCENES[name], make_base(name, template, tmp_path / "base")
    calls = find_calls(name, base, tmp_path / "undisturbed")
    assert len(calls) > 4
    for number in choose(calls, f"{name} {'unanswered' if lost else 'failed'}"):
        broken = base.copy_to(tmp_path / f"cell-{number}")
        fault = Fault(number, lost=lost)
        with explain_cell(f"{name}: call {number}, {calls[number].op} of {calls[number].uri}"):
            scene.run(Deployment(broken.folder, faulty(fault)))
            assert fault.fired
            converge(broken, scene)


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    """The process that starts children and kills them."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.killing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("name", SCENES)
def test_a_command_killed_at_a_call_is_healed_by_running_again(
    template: Deployment, tmp_path: Path, name: str, killer: subprocess.Popen[str]
) -> None:
    scene, base = SCENES[name], make_base(name, template, tmp_path / "base")
    calls = find_calls(name, base, tmp_path / "undisturbed")
    for number in choose(calls, f"{name} killed"):
        killed = base.copy_to(tmp_path / f"cell-{number}")
        with explain_cell(f"{name}: killed at call {number}, {calls[number].op} of {calls[number].uri}"):
            assert killer.stdin is not None
            assert killer.stdout is not None
            killer.stdin.write(f"{name} {number} {killed.folder}\n")
            killer.stdin.flush()
            assert killer.stdout.readline() == "killed\n"
            converge(killed, scene)


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
    scene, killed = SCENES[name], make_base(name, template, tmp_path / "one")
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
    scene, killed = SCENES[name], make_base(name, template, tmp_path / "one")
    command = [sys.executable, "-m", "omnigraph", "cluster", "apply", "--config", str(killed.folder)]
    environment = {**os.environ, failpoints.SETTING: f"{KILLS[name]}=exit"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300)
    assert done.returncode == failpoints.EXIT_STATUS, done.stderr
    observed = killed.plan()
    assert [one["code"] for one in observed["diagnostics"]] == ["state_lock_held"]
    assert len(killed.sidecars()) == 1
    converge(killed, scene)
