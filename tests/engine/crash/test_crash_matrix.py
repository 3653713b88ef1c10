"""Every kind of write, disturbed at every storage call it makes: the graph is as before it or as after it.

The cells are the calls that a recorder hears in a run that is left alone. `make test` kills the writes of
every day at each of theirs. Of all else it takes some cells, others each day, of kinds that resemble each
other one, and in a bucket only some kinds; `make torture` takes all.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from _pytest.mark.structures import ParameterSet

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import WriterBusy
from omnigraph.storage.location import Location
from tests.engine.crash import openings
from tests.engine.crash.faults import Fault, faulty_root
from tests.engine.crash.matrix import (
    Scene,
    explain_cell,
    make_scene,
    outcome,
    require_both,
    require_true_report,
    require_whole,
    write_beside,
)
from tests.engine.crash.openings import OPENINGS, Stage, make_stage
from tests.engine.crash.places import ENDLESS, copy_graph, drop_graph, root_at
from tests.engine.crash.steps import BRANCH, Step, changes
from tests.engine.crash.world import (
    PERSON,
    change,
    look,
    make_graph,
    open_unrecovered,
    pending,
    require_settled,
)
from tests.engine.crash.writes import IN_TURN, WRITES, next_write
from tests.storage.conftest import s3_server, use_s3

pytestmark = pytest.mark.crash

PROJECT = Path(__file__).parents[3]
ALL = bool(os.environ.get("OMNIGRAPH_TORTURE"))
SEED = int(os.environ.get("OMNIGRAPH_SEED") or datetime.now(UTC).toordinal())
SHARE = {"killed": 60, "failed": 120, "unanswered": 120, "interrupted": 60, "pressed": 12, "held": 120}
"""In the short form one of so many cells is tried, and in a bucket one of three times as many."""

EVERY_DAY = (
    "insert-two-tables",
    "update",
    "delete-cascade",
    "load-append",
    "load-merge",
    "load-overwrite",
    "branch-create",
    "branch-delete",
)
"""The kinds that the short form kills at every call, in a folder."""

IN_BUCKET = (
    "insert-two-tables",
    "first-touch-two-tables",
    "load",
    "branch",
    "recover-back",
)
"""The kinds that the short form tries in a bucket, where everything takes longer."""

TURNS = {
    **IN_TURN,
    "load": ("load-append", "load-merge", "load-overwrite"),
    "branch": ("branch-create", "branch-delete"),
}
"""The groups of which the short form takes one kind; the last ones are groups in a bucket only."""

PATIENT = (
    "insert-two-tables",
    "update",
    "delete-cascade",
    "first-touch-two-tables",
    "load-overwrite",
    "merge-three-way",
    "schema-apply",
    "ensure-indices",
)
"""Kinds of which Ctrl-C waits for the end."""

BUCKET = "-s3"
"""Makes names in buckets others than those in folders. Pytest puts equal ones together, and would make every
place again between them.
"""

ANY = "init-or-migrate"
"""Of what is done before there is a graph the short form tries one, another each day."""

Property = Callable[[str, object], None]


def kinds() -> list[ParameterSet]:
    alike = {name for group in IN_TURN.values() for name in group}
    short = [*(name for name in WRITES if name not in alike), *IN_TURN]
    return [
        *(pytest.param("folder", name, id=name) for name in (WRITES if ALL else short)),
        *(
            pytest.param("s3", f"{name}{BUCKET}", id=f"{name}{BUCKET}", marks=pytest.mark.s3)
            for name in (WRITES if ALL else IN_BUCKET)
        ),
    ]


def opened_kinds() -> list[ParameterSet]:
    return [
        *(pytest.param("folder", name, id=name) for name in (OPENINGS if ALL else [ANY])),
        *(
            pytest.param("s3", f"{name}{BUCKET}", id=f"{name}{BUCKET}", marks=pytest.mark.s3)
            for name in (OPENINGS if ALL else ())
        ),
    ]


# Without the scope `place`, and all that is made in it, would be made for each name again.
KINDS = pytest.mark.parametrize(("place", "name"), kinds(), indirect=["place"], scope="module")
OPENINGS_TRIED = pytest.mark.parametrize(
    ("place", "name"), opened_kinds(), indirect=["place"], scope="module"
)
PLACES = pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Location]]:
    """Makes empty places for graphs, in a folder or in buckets of a server."""
    if request.param == "folder":
        yield lambda: Location.parse(tmp_path_factory.mktemp("crash"))
        return
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        patch.setenv("OMNIGRAPH_LOCK_WAIT", ENDLESS)
        yield lambda: use_s3(endpoint, patch)


@pytest.fixture(scope="module")
def killer(place: Callable[[], Location]) -> Iterator[subprocess.Popen[str]]:
    """The process that starts children and disturbs them."""
    place()  # so that it knows the server
    with (
        TemporaryDirectory() as left_behind,  # the dead do not remove their files
        subprocess.Popen(
            [sys.executable, "-m", "tests.engine.crash.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            env={**os.environ, "TMPDIR": left_behind},
            text=True,
        ) as process,
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


Scenes = Callable[[str], Scene]


@pytest.fixture(scope="module")
def scenes(place: Callable[[], Location]) -> Scenes:
    """Scenes by name, each made once; of a group, the one whose turn it is."""
    made: dict[str, Scene] = {}
    base = place() / "base"
    make_graph(base)

    def scene(name: str) -> Scene:
        name = name.removesuffix(BUCKET)
        if name in TURNS and not ALL:  # a group may have the name of one of its kinds
            name = TURNS[name][SEED % len(TURNS[name])]
        if name not in made:
            made[name] = make_scene(name, base, place())
        return made[name]

    return scene


Stages = Callable[[str], Stage]


@pytest.fixture(scope="module")
def stages(place: Callable[[], Location]) -> Stages:
    """The same for what is done before there is a graph to write to."""

    @cache
    def stage(name: str) -> Stage:
        name = name.removesuffix(BUCKET)
        return make_stage(list(OPENINGS)[SEED % len(OPENINGS)] if name == ANY else name, place())

    return stage


_COPIES = itertools.count()


def copy_of(scene: Scene | Stage) -> Location:
    """The graph of a scene, for one disturbed write."""
    folder = Location(scene.template.uri.rpartition("/")[0])
    return copy_graph(scene.template, folder / f"copy{next(_COPIES)}")


def cells(scene: Scene | Stage, how: str, tell: Property) -> range:
    every = range(scene.cells)
    share = 1 if ALL else _share(scene, how)
    offset = (SEED + sum(scene.name.encode())) % min(share, len(every))
    chosen = every[offset::share]
    tell("crash_cells", [len(chosen), len(every), SEED])
    print(f"{scene.name} {how}: {len(chosen)} of {len(every)} cells, OMNIGRAPH_SEED={SEED}")
    return chosen


def _share(scene: Scene | Stage, how: str) -> int:
    if not scene.template.is_local:
        return 3 * SHARE[how]
    return 1 if how == "killed" and scene.name in EVERY_DAY else SHARE[how]


# --- the ways to disturb -------------------------------------------------------------------------


@KINDS
def test_a_write_killed_at_any_call_happened_or_did_not(
    name: str, scenes: Scenes, killer: subprocess.Popen[str], record_property: Property
) -> None:
    scene = scenes(name)
    for number in cells(scene, "killed", record_property):
        at = copy_of(scene)
        assert disturb(killer, f"{scene.name} {scene.moment(number)} {at.uri}") == "killed"
        with explain_cell(scene.cell(number)):
            # Half of the newcomers deal with it as they open the graph, the others as they write.
            require_whole(scene, at, open_graph if number % 2 else OpenGraph.open)
        drop_graph(at)


@PLACES
@pytest.mark.parametrize("part", range(20 if ALL else 1))
def test_a_write_killed_at_any_moment_happened_or_did_not(
    part: int, scenes: Scenes, killer: subprocess.Popen[str]
) -> None:
    """Inside of calls, too, where no observer reaches."""
    random = Random(f"{SEED} {part}")
    for _ in range(40 if ALL else 3):
        scene = scenes(random.choice(list(WRITES if ALL else IN_BUCKET)))
        moment = random.randrange(int(1.5e6 * scene.seconds))
        at = copy_of(scene)
        assert disturb(killer, f"{scene.name} @{moment} {at.uri}") in ("killed", "done")
        with explain_cell(f"{scene.name}: killed after {moment} microseconds, OMNIGRAPH_SEED={SEED}"):
            require_whole(scene, at, open_graph)
        drop_graph(at)


def again(graph: OpenGraph) -> Callable[[Root], OpenGraph]:
    """Instead of opening the graph again: the handle there is."""
    return lambda _: graph


@KINDS
@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
def test_a_write_with_one_bad_call_happened_or_did_not_and_the_same_handle_goes_on(
    name: str, lost: bool, scenes: Scenes, record_property: Property
) -> None:
    scene = scenes(name)
    for number in cells(scene, "unanswered" if lost else "failed", record_property):
        at = copy_of(scene)
        fault = Fault(scene.call_number(number), lost=lost)
        graph = OpenGraph.open(faulty_root(root_at(at), fault))
        fault.armed = True
        with explain_cell(scene.cell(number)):
            with scene.in_turn(number):
                error = outcome(scene, graph)
            assert fault.fired, "the call did not fail"
            require_true_report(scene, graph, error)
            require_whole(scene, at, again(graph))
        drop_graph(at)


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("place", ["folder"], indirect=True)
@pytest.mark.parametrize("name", WRITES if ALL else ("insert-two-tables", "load-overwrite"))
def test_a_write_given_up_at_any_call_happened_or_did_not_and_the_same_handle_goes_on(
    name: str, scenes: Scenes, record_property: Property
) -> None:
    """Ctrl-C, pressed until it is heard: no handler of errors takes part, and the process lives on."""
    scene = scenes(name)
    for number in cells(scene, "interrupted", record_property):
        at = copy_of(scene)
        fault = Fault(scene.call_number(number), interrupts=True)
        graph = OpenGraph.open(faulty_root(root_at(at), fault))
        fault.armed = True
        with explain_cell(scene.cell(number)):
            with pytest.raises(KeyboardInterrupt), scene.in_turn(number):
                outcome(scene, graph)
            require_whole(scene, at, again(graph))
        drop_graph(at)


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("place", ["folder"], indirect=True)
@pytest.mark.parametrize("name", PATIENT if ALL else PATIENT[:1])
def test_ctrl_c_at_any_call_leaves_no_end_open(name: str, scenes: Scenes, record_property: Property) -> None:
    """Before the first effect nothing is done, and from then on all of it."""
    scene = scenes(name)
    for number in cells(scene, "pressed", record_property):
        at = copy_of(scene)
        fault = Fault(scene.call_number(number), presses=True)
        graph = OpenGraph.open(faulty_root(root_at(at), fault))
        fault.armed = True
        with explain_cell(scene.cell(number)):
            with pytest.raises(KeyboardInterrupt), scene.in_turn(number):
                outcome(scene, graph)
            assert pending(graph) == []
            require_whole(scene, at, again(graph))
        drop_graph(at)


@KINDS
def test_a_write_held_at_any_call_and_one_that_acts_meanwhile_both_report_the_truth(
    name: str,
    scenes: Scenes,
    killer: subprocess.Popen[str],
    record_property: Property,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a folder the other is refused where the first has the lock; in a bucket it takes the lease over."""
    scene = scenes(name)
    for number in cells(scene, "held", record_property):
        at = copy_of(scene)
        with explain_cell(scene.cell(number)):
            assert disturb(killer, f"{scene.name} ={scene.moment(number)} {at.uri}") == "held"
            with monkeypatch.context() as patch:
                if at.is_local:
                    patch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
                beside = write_beside(scene, at)
            report = disturb(killer, "")
            assert beside is None or isinstance(beside, WriterBusy), beside
            require_both(scene, at, report, beside, open_graph if number % 2 else OpenGraph.open)
        drop_graph(at)


# --- a process that lost its lease, and deletes ---------------------------------------------------

ZED = 'insert Person { name: "zed" }'


def make_again(graph: OpenGraph) -> None:
    """The branch, deleted if it is there, made again and written to."""
    if BRANCH in graph.branch_names():
        delete_branch(graph, BRANCH)
    create_branch(graph, BRANCH)
    change(graph, ZED, BRANCH)


LATE: dict[str, Step] = {
    "first-touch-over-orphans": changes(ZED, BRANCH),
    "branch-delete": make_again,
    "branch-create-over-residue": make_again,
    "cleanup-orphan-forks": make_again,
}
"""Kinds that delete what may have the name of something new when the request arrives, and what makes that."""


@pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param("s3", name, id=f"{name}{BUCKET}", marks=pytest.mark.s3)
        for name in (LATE if ALL else [list(LATE)[SEED % len(LATE)]])
    ],
    indirect=["place"],
    scope="module",
)
def test_deletes_under_a_lost_lease_spare_what_its_next_holder_made(
    name: str, scenes: Scenes, killer: subprocess.Popen[str]
) -> None:
    scene = scenes(name)
    deletes = [number for number, call in enumerate(scene.forward) if call.op in ("delete", "delete_prefix")]
    assert deletes
    for number in deletes:
        at = copy_of(scene)
        with explain_cell(scene.cell(number)):
            assert disturb(killer, f"{scene.name} ={number} {at.uri}") == "held"
            LATE[name](open_unrecovered(at))
            disturb(killer, "")
            found = open_graph(root_at(at))
            assert "zed" in {row["id"] for row in look(found)[BRANCH].rows[PERSON]}
            next_write(found, BRANCH)
            require_settled(found)
        drop_graph(at)


# --- before there is a graph to write to ---------------------------------------------------------


@pytest.mark.parametrize("name", OPENINGS)
def test_an_opening_left_alone_does_what_is_required(name: str, tmp_path: Path) -> None:
    """Of all openings, each day: the short form disturbs only one of them."""
    assert make_stage(name, Location.parse(tmp_path)).calls


@OPENINGS_TRIED
def test_a_graph_whose_making_or_migration_was_killed_at_any_call_is_whole_or_can_be_made(
    name: str, stages: Stages, killer: subprocess.Popen[str], record_property: Property
) -> None:
    stage = stages(name)
    for number in cells(stage, "killed", record_property):
        at = copy_of(stage)
        with explain_cell(stage.cell(number)):
            assert disturb(killer, f"{stage.name} {stage.moment(number)} {at.uri}") == "killed"
            stage.require(at, openings.UNREPORTED)
        drop_graph(at)


@OPENINGS_TRIED
@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
def test_making_or_migrating_a_graph_with_one_bad_call_tells_the_truth(
    name: str, lost: bool, stages: Stages, record_property: Property
) -> None:
    stage = stages(name)
    for number in cells(stage, "unanswered" if lost else "failed", record_property):
        at, fault = copy_of(stage), Fault(number, lost=lost)
        fault.armed = True
        with explain_cell(stage.cell(number)):
            error = openings.outcome(stage, faulty_root(root_at(at), fault))
            assert fault.fired, "the call did not fail"
            stage.require(at, error)
        drop_graph(at)


@OPENINGS_TRIED
def test_two_that_make_or_migrate_one_graph_both_report_the_truth(
    name: str,
    stages: Stages,
    killer: subprocess.Popen[str],
    record_property: Property,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stages(name)
    for number in cells(stage, "held", record_property):
        at = copy_of(stage)
        with explain_cell(stage.cell(number)):
            assert disturb(killer, f"{stage.name} ={stage.moment(number)} {at.uri}") == "held"
            with monkeypatch.context() as patch:
                if at.is_local:
                    patch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
                beside = openings.outcome(stage, root_at(at))
            report = disturb(killer, "")
            stage.require(at, openings.combine_reports(stage, report, beside))
        drop_graph(at)


def disturb(killer: subprocess.Popen[str], line: str) -> str:
    """Tell the process what to do; what became of the child."""
    assert killer.stdin is not None
    assert killer.stdout is not None
    killer.stdin.write(f"{line}\n")
    killer.stdin.flush()
    return killer.stdout.readline().strip()
