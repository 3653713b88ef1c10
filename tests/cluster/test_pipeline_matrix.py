"""Break every storage call on the records of a run once; the next command leaves each row once.

The calls are found by running undisturbed. Calls inside graphs are broken by the engine's own matrix; between
any two operations on a graph a run records what it is about to do, so these calls are every other moment.
`make test` tries some of the cells, `make torture` all of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError, PipelineMovedToCluster
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.lease import read_lease
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.run import RunOptions, run
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, ObjectStore, Recorder
from omnigraph.storage.stores import open_store
from tests.cluster.deployment import Deployment
from tests.cluster.pipelines import applied_pipeline, new_deployment, pipeline_text
from tests.engine.crash.faults import Fault, faulty_root
from tests.engine.crash.matrix import explain_cell
from tests.pipeline.declared.dying import POINT, ROWS, UPPER, run_or_retry
from tests.pipeline.declared.killing import kill_runs
from tests.pipeline.declared.world import PEOPLE_MAP, Growing, people

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("OMNIGRAPH_SEED") or 1)
CELLS = None if os.environ.get("OMNIGRAPH_TORTURE") else 2
"""How many calls of each scene are broken in each way."""
FILE = (
    "pipelines:\n  crm:\n    sources:\n      people: {format: csv, path: data/people.csv,"
    " watermark: {column: updated, type: date}}\n    checkpoint: watermark\n"
    f"    into: [{{graph: graphs/team.omni, mode: append, map: {PEOPLE_MAP}}}]\n"
)


@dataclass(frozen=True)
class Scene:
    """What happened before the run that is broken."""

    prepare: Callable[[Deployment], None]
    runs: int
    """How many runs are on record when all is well."""


def fail_once(deployment: Deployment) -> None:
    """Leave a run that failed and may be retried."""
    with og.open(deployment.graph("team")) as team, team.write() as tx:
        tx.insert("Person", email="a@x")
    assert run(applied_pipeline(deployment), rows_of(deployment)).status == "failed"
    with og.open(deployment.graph("team")) as team, team.write() as tx:
        tx.delete("Person", ("email", "=", "a@x"))


def run_file(deployment: Deployment) -> None:
    """Leave the records of a file that appended the rows."""
    deployment.write("file.yaml", FILE)
    file = read_pipeline(deployment.folder / "file.yaml")
    assert run(file, rows_of(deployment)).status == "succeeded"


SCENES = {
    "run": Scene(lambda _: None, 1),
    "retry": Scene(fail_once, 1),
    "adopt": Scene(run_file, 2),
}


def rows_of(deployment: Deployment) -> Growing:
    return Growing(deployment.folder, ROWS, UPPER)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Deployment]:
    """An applied deployment for each scene; no test changes it."""
    base = new_deployment(
        tmp_path_factory.mktemp("cluster") / "base", pipeline_text(more={"checkpoint": "watermark"})
    )
    assert base.import_()["ok"]
    assert base.apply("ann")["converged"]
    found = {}
    for name, scene in SCENES.items():
        found[name] = base.copy_to(base.folder.parent / name)
        scene.prepare(found[name])
    return found


def find_calls(deployment: Deployment) -> tuple[Call, ...]:
    """The storage calls on the records when the run is left alone."""
    recorder = Recorder()
    order = RunOptions(open_store=lambda at: open_store(at, recorder))
    assert run_or_retry(applied_pipeline(deployment), rows_of(deployment), order).status == "succeeded"
    return tuple(recorder.calls)


def choose(calls: tuple[Call, ...], what: str) -> list[int]:
    cells = range(len(calls))
    return list(cells) if CELLS is None else sorted(random.Random(f"{SEED}{what}").sample(cells, CELLS))


def require_converged(deployment: Deployment, scene: Scene) -> None:
    """Do what a scheduler does after a run that ended badly, and look at everything."""
    pipeline = applied_pipeline(deployment)
    done = run_or_retry(pipeline, rows_of(deployment), RunOptions())
    assert done.status == "succeeded", done.describe_failure()
    ledger = open_ledger(pipeline)
    assert people(deployment.graph("team")) == ["a@x"]
    assert ledger.read_checkpoint()["graph.team"]["people"].upper == UPPER
    assert read_lease(ledger) is None
    assert all(one.status != "running" for one in ledger.list_runs())
    assert scene.runs <= len(ledger.list_runs()) <= scene.runs + 1
    with og.open(deployment.graph("team"), read_only=True) as team:
        assert team.branches.list() == ["main"]
    if (deployment.folder / "file.yaml").exists():
        with pytest.raises(PipelineMovedToCluster):
            run(read_pipeline(deployment.folder / "file.yaml"), rows_of(deployment))
    again = run(pipeline, rows_of(deployment))
    assert again.targets["graph.team"].status == "skipped"


def faulty(fault: Fault) -> Callable[[Location], ObjectStore]:
    def open_faulty(at: Location) -> ObjectStore:
        fault.armed = True
        return faulty_root(Root.at(at), fault).objects

    return open_faulty


@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
@pytest.mark.parametrize("name", SCENES)
def test_a_broken_call_is_healed_by_the_next_command(
    scenes: dict[str, Deployment], tmp_path: Path, name: str, lost: bool
) -> None:
    calls = find_calls(scenes[name].copy_to(tmp_path / "undisturbed"))
    assert len(calls) > 10
    for number in choose(calls, f"{name}{lost}"):
        broken = scenes[name].copy_to(tmp_path / f"cell-{number}")
        fault = Fault(number, lost=lost)
        with explain_cell(f"{name}: call {number}, {calls[number].op} of {calls[number].uri}"):
            try:
                order = RunOptions(open_store=faulty(fault))
                run_or_retry(applied_pipeline(broken), rows_of(broken), order)
            except OmnigraphError:
                pass  # what it reports is not the question here; what is left is
            assert fault.fired
            require_converged(broken, SCENES[name])


def test_a_killed_call_is_healed_by_the_next_command(scenes: dict[str, Deployment], tmp_path: Path) -> None:
    cells = {}
    for name, scene in scenes.items():
        calls = find_calls(scene.copy_to(tmp_path / f"undisturbed-{name}"))
        for number in choose(calls, name):
            broken = scene.copy_to(tmp_path / "cells" / f"{name}-{number}")
            broken.write(POINT, str(number))
            cells[broken.folder.name] = (broken, SCENES[name], calls[number])
    kill_runs(tmp_path / "cells")
    for cell, (broken, of, call) in cells.items():
        with explain_cell(f"{cell}: {call.op} of {call.uri}"):
            require_converged(broken, of)
