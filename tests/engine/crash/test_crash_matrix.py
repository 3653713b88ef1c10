"""Every kind of write, broken off at every storage call it makes: the graph is as before it or as after it.

The cells are the calls that a recorder hears in a run that is left alone. `make test` takes some of them,
others each day; `make torture` takes all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import perf_counter

import pytest

from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.lineage import RECOVERY_ACTOR, Commit
from omnigraph.engine.open import open_graph
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import audit
from omnigraph.engine.root import Root
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, Recorder
from tests.engine.crash.faults import Fault, faulty_root
from tests.engine.crash.world import (
    PERSON,
    TEAM,
    View,
    look,
    make_graph,
    pending,
    reached,
    require_settled,
    rows_of,
    stray_forks,
)
from tests.engine.crash.writes import BRANCH, WRITES, Write, next_write

pytestmark = pytest.mark.crash

PROJECT = Path(__file__).parents[3]
ALL = bool(os.environ.get("OMNIGRAPH_TORTURE"))
SEED = int(os.environ.get("OMNIGRAPH_SEED") or datetime.now(UTC).toordinal())
SHARE = {"killed": 10, "failed": 20, "unanswered": 20}
"""In the short form one of so many cells is tried."""

KINDS = pytest.mark.parametrize("name", WRITES)
Property = Callable[[str, object], None]


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    """The process that starts children and lets them die."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engine.crash.killing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@dataclass(frozen=True, slots=True)
class Scene:
    """A write, a graph to try it on, and what is visible before and after it."""

    name: str
    template: Path
    before: View
    after: View
    calls: tuple[Call, ...]
    known: frozenset[str]
    """The commits before the write."""

    seconds: float
    """How long the write took."""

    @property
    def write(self) -> Write:
        return WRITES[self.name]

    def cell(self, number: int) -> str:
        """What breaking off at a call means."""
        call = self.calls[number]
        return (
            f"{self.name}: broken off at call {number}, {call.op} of {call.uri.rpartition('undisturbed')[2]}"
        )


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Scene]:
    """Scenes by name, each made once."""
    made: dict[str, Scene] = {}
    base = tmp_path_factory.mktemp("base") / "graph"
    make_graph(base)

    def scene(name: str) -> Scene:
        if name not in made:
            made[name] = _scene(name, base, tmp_path_factory.mktemp(name))
        return made[name]

    return scene


def _scene(name: str, base: Path, folder: Path) -> Scene:
    write, template = WRITES[name], _copy(base, folder / "template")
    graph = reached(template)
    write.prepare(graph)
    before = look(graph)
    recorder = Recorder()
    undisturbed = OpenGraph.open(Root.at(Location.parse(_copy(template, folder / "undisturbed")), recorder))
    recorder.clear()
    started = perf_counter()
    write.run(undisturbed)
    seconds, calls = perf_counter() - started, recorder.calls
    known = frozenset(commit.id for view in before.values() for commit in view.chain)
    return Scene(name, template, before, look(undisturbed), calls, known, seconds)


def _copy(template: Path, at: Path) -> Path:
    shutil.copytree(template, at)
    return at


def _cells(scene: Scene, how: str, tell: Property) -> range:
    every = range(len(scene.calls))
    share = 1 if ALL else SHARE[how]
    offset = (SEED + sum(scene.name.encode())) % min(share, len(every))
    chosen = every[offset::share]
    tell("crash_cells", [len(chosen), len(every), SEED])
    print(f"{scene.name} {how}: {len(chosen)} of {len(every)} cells, OMNIGRAPH_SEED={SEED}")
    return chosen


# --- the ways to break off -----------------------------------------------------------------------


@KINDS
def test_a_write_killed_at_any_call_happened_or_did_not(
    name: str,
    scenes: Callable[[str], Scene],
    killer: subprocess.Popen[str],
    tmp_path: Path,
    record_property: Property,
) -> None:
    scene = scenes(name)
    for number in _cells(scene, "killed", record_property):
        at = _copy(scene.template, tmp_path / f"{number}")
        assert _kill(killer, name, str(number), at) == "killed"
        with _explained(scene.cell(number)):
            # Half of the newcomers deal with it as they open the graph, the others as they write.
            _require_whole(scene, at, open_graph if number % 2 else OpenGraph.open)
        shutil.rmtree(at)


@pytest.mark.parametrize("part", range(20 if ALL else 1))
def test_a_write_killed_at_any_moment_happened_or_did_not(
    part: int, scenes: Callable[[str], Scene], killer: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Inside of calls, too, where no observer reaches."""
    random = Random(f"{SEED} {part}")
    for number in range(40 if ALL else 5):
        scene = scenes(random.choice(list(WRITES)))
        moment = random.randrange(int(1.5e6 * scene.seconds))
        at = _copy(scene.template, tmp_path / f"{number}")
        assert _kill(killer, scene.name, f"@{moment}", at) in ("killed", "done")
        with _explained(f"{scene.name}: killed after {moment} microseconds, OMNIGRAPH_SEED={SEED}"):
            _require_whole(scene, at, open_graph)
        shutil.rmtree(at)


@KINDS
@pytest.mark.parametrize("lost", [False, True], ids=["failed", "unanswered"])
def test_a_write_with_one_bad_call_happened_or_did_not_and_the_same_handle_goes_on(
    name: str,
    lost: bool,
    scenes: Callable[[str], Scene],
    tmp_path: Path,
    record_property: Property,
) -> None:
    scene = scenes(name)
    for number in _cells(scene, "unanswered" if lost else "failed", record_property):
        at = _copy(scene.template, tmp_path / f"{number}")
        fault = Fault(number, lost=lost)
        graph = OpenGraph.open(faulty_root(at, fault))
        fault.armed = True
        with _explained(scene.cell(number)):
            error = _outcome(scene, graph)
            assert fault.fired, "the call did not fail"
            _require_told_right(scene, graph, error)
            _require_whole(scene, at, lambda _, graph=graph: graph)
        shutil.rmtree(at)


def _kill(killer: subprocess.Popen[str], name: str, moment: str, at: Path) -> str:
    assert killer.stdin is not None
    assert killer.stdout is not None
    killer.stdin.write(f"{name} {moment} {at}\n")
    killer.stdin.flush()
    return killer.stdout.readline().strip()


@contextmanager
def _explained(cell: str) -> Iterator[None]:
    """Says in which cell something was wrong."""
    try:
        yield
    except BaseException as error:
        error.add_note(cell)
        raise


# --- what must hold afterwards -------------------------------------------------------------------


def _outcome(scene: Scene, graph: OpenGraph) -> OmnigraphError | None:
    try:
        scene.write.run(graph)
    except OmnigraphError as error:
        return error
    return None


def _require_told_right(scene: Scene, graph: OpenGraph, error: OmnigraphError | None) -> None:
    """Who was told of success sees it; who was told of anything but an open end sees nothing."""
    seen = rows_of(look(graph))
    if error is None:
        assert seen == rows_of(scene.after)
    elif scene.write.recovers or scene.name.startswith("branch"):
        assert seen in (rows_of(scene.before), rows_of(scene.after))
    elif isinstance(error, RecoveryRequired):
        assert pending(graph) == [error.operation_id]
        assert seen == rows_of(scene.before), "the end was open, and something was visible"
    else:
        assert seen == rows_of(scene.before), f"told of '{error}', and it happened"
        assert pending(graph) == [], "nothing had happened, and a record is left"


def _require_whole(scene: Scene, at: Path, opened: Callable[[Root], OpenGraph]) -> None:
    """A newcomer sees all or nothing; then the next write works, and nothing is left to do."""
    interrupted = pending(reached(at))
    assert look(reached(at)).keys() in (scene.before.keys(), scene.after.keys())
    graph = opened(Root.at(Location.parse(at)))
    found = look(graph)
    happened = _require_one_of(scene, found)
    branch = _branch_to_write(scene, graph)
    next_write(graph, branch)
    newcomer = open_graph(Root.at(Location.parse(at)))
    last = look(newcomer)
    _require_next(rows_of(last), scene, branch)
    require_settled(newcomer)
    _require_audit(scene, newcomer, interrupted, last, branch)
    if not scene.name.startswith("branch") and "orphan" not in scene.name:
        assert stray_forks(newcomer) == []
    assert happened is not None


def _require_one_of(scene: Scene, found: View) -> bool:
    """Whether the write happened; fails when it did in part."""
    rows = rows_of(found)
    assert rows in (rows_of(scene.before), rows_of(scene.after)), "half of the write is visible"
    return rows == rows_of(scene.after)


def _branch_to_write(scene: Scene, graph: OpenGraph) -> str:
    """The branch for the next write; for writes that are about a branch, one made anew."""
    if not scene.name.startswith("branch"):
        return scene.write.branch
    if BRANCH in graph.branch_names():
        delete_branch(graph, BRANCH)
    create_branch(graph, BRANCH)
    return BRANCH


def _require_next(rows: dict[str, dict[str, list[dict[str, object]]]], scene: Scene, branch: str) -> None:
    """Everything is as before or as after the write, but for what the next write changed."""
    for view in (scene.before, scene.after):
        expected = {name: dict(tables) for name, tables in rows_of(view).items()}
        if scene.name.startswith("branch"):
            expected[BRANCH] = dict(expected["main"])
        if branch not in expected:
            continue
        tables = expected[branch]
        tables[PERSON] = [row | {"age": 77} if row["id"] == "bo" else row for row in tables[PERSON]]
        tables[TEAM] = [row | {"title": "next"} if row["id"] == "core" else row for row in tables[TEAM]]
        if _sorted(rows) == _sorted(expected):
            return
    raise AssertionError(f"the next write did not simply add to what was there: {rows}")


def _sorted(rows: dict[str, dict[str, list[dict[str, object]]]]) -> object:
    return {b: {k: sorted(map(repr, found)) for k, found in t.items()} for b, t in rows.items()}


def _require_audit(scene: Scene, graph: OpenGraph, interrupted: list[str], last: View, branch: str) -> None:
    """Each interrupted write is noted once, with the commits that it really ended in."""
    notes = audit.read_all(graph.root)
    new = [commit for commit in _commits(last) if commit.id not in scene.known]
    written, made = new[0], new[1:]
    assert written.actor != RECOVERY_ACTOR, "the next write is the newest"
    assert len({note.operation_id for note in notes}) == len(notes)
    if not scene.write.recovers:
        assert [note.operation_id for note in notes] == interrupted
    else:
        assert len(notes) == 1
    if not notes:
        assert all(commit.actor != RECOVERY_ACTOR for commit in made)
        return
    (note,) = notes
    assert note.commit_id in {commit.id for commit in made}
    if note.kind == "RolledBack":
        assert all(commit.actor == RECOVERY_ACTOR for commit in made)
        assert len(made) <= 2
    elif note.kind == "RolledForward":
        assert len(made) == 1


def _commits(view: View) -> list[Commit]:
    found = {commit.id: commit for one in view.values() for commit in one.chain}
    return sorted(found.values(), key=lambda commit: commit.created_at, reverse=True)
