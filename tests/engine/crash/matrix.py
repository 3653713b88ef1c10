"""A write to break off, and what must hold afterwards: the graph is as before it or as after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import audit
from omnigraph.engine.graph.export_marks import MARKS
from omnigraph.engine.graph.lineage import RECOVERY_ACTOR, Commit
from omnigraph.engine.graph.merge_pins import PINS, list_pinned_commits
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root, wall_clock
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.engine.maintenance.cleanup.staged_files import LONGEST_LOAD, find_staged_loads
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.storage.concurrency import take_turns
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, Recorder
from tests.engine.crash.places import copy_graph, drop_graph, root_at
from tests.engine.crash.steps import BRANCH, Step, Write
from tests.engine.crash.turns import Groups, turns
from tests.engine.crash.world import (
    MEMBER,
    PERSON,
    TEAM,
    BranchView,
    Rows,
    View,
    change,
    look,
    open_unrecovered,
    pending,
    require_settled,
    rows_of,
    stray_forks,
)
from tests.engine.crash.writes import WRITES, next_write

Contents = dict[str, dict[str, Rows]]
"""Rows by branch and table."""

_LONG = 30 * 24 * 3600 * 1_000_000
"""A month, in microseconds."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A write, a graph to try it on, and what is visible before and after it."""

    name: str
    template: Location
    before: View
    after: View
    halfway: View | None
    """What is visible when only the first part of it was done."""
    begun: View | None
    """What is visible when it made its branch, and no more."""
    forward: tuple[Call, ...]
    """The calls it makes; those that it makes at the same time one after another."""
    backward: tuple[Call, ...]
    """The same, with those that it makes at the same time in the reverse order."""
    reversed_calls: tuple[int, ...]
    """Which of these are made at the same time as others."""
    known: frozenset[str]
    """The commits before the write."""

    seconds: float
    """How long the write took."""

    @property
    def write(self) -> Write:
        return WRITES[self.name]

    @property
    def about_a_branch(self) -> bool:
        """Whether it makes or deletes one."""
        return self.name.startswith("branch")

    @property
    def makes_its_branch(self) -> bool:
        """Whether there may be no branch to write to before it."""
        return self.begun is not None

    @property
    def outcomes(self) -> list[Contents]:
        """What may be there afterwards."""
        return [*self.refused, *self.done]

    @property
    def refused(self) -> list[Contents]:
        """What may be there after a write that reported a refusal."""
        return [rows_of(view) for view in (self.before, self.begun) if view is not None]

    @property
    def done(self) -> list[Contents]:
        """What may be there after a write that reported success."""
        return [rows_of(view) for view in (self.after, self.halfway) if view is not None]

    @property
    def recovered(self) -> list[Contents]:
        """What may be there when the end was open: recovery does not do the second part of a write."""
        return [*self.refused, rows_of(self.halfway or self.after)]

    @property
    def cells(self) -> int:
        """At how many calls it can be disturbed: all of one order, and of the other what differs."""
        return len(self.forward) + len(self.reversed_calls)

    def place(self, number: int) -> tuple[int, bool]:
        """The number of the call that a cell is about, and whether it is one of the reverse order."""
        beyond = number - len(self.forward)
        return (number, False) if beyond < 0 else (self.reversed_calls[beyond], True)

    def moment(self, number: int) -> str:
        """The same as a word for the process that disturbs."""
        at, reverse = self.place(number)
        return f"{at}<" if reverse else f"{at}"

    def call_number(self, number: int) -> int:
        """The number of the call that a cell is about."""
        return self.place(number)[0]

    def in_turn(self, number: int) -> AbstractContextManager[None]:
        """Makes the calls in the order of a cell."""
        return turns(reverse=self.place(number)[1], dies=False)

    def cell(self, number: int) -> str:
        """What a fault at a call means."""
        at, reverse = self.place(number)
        call = (self.backward if reverse else self.forward)[at]
        order = " in reverse order" if reverse else ""
        return f"{self.name}: call {at}{order}, {call.op} of {call.uri.rpartition('undisturbed')[2]}"


def make_scene(name: str, base: Location, folder: Location) -> Scene:
    """A write on a copy of a graph, and how it goes when it is left alone."""
    write, template = WRITES[name], copy_graph(base, folder / "template")
    graph = open_unrecovered(template)
    write.prepare(graph)
    before = look(graph)
    recorder = Recorder()
    undisturbed = OpenGraph.open(root_at(copy_graph(template, folder / "undisturbed"), recorder))
    recorder.clear()
    started = perf_counter()
    with turns(reverse=False):
        write.run(undisturbed)
    seconds, calls = perf_counter() - started, recorder.calls
    backward, together = _calls_in_reverse(write, template, folder / "reversed")
    known = frozenset(commit.id for view in before.values() for commit in view.chain)
    halfway = None if write.halfway is None else _seen_after(write.halfway, template, folder / "halfway")
    begun = None if write.begins is None else _seen_after(write.begins, template, folder / "begun")
    return Scene(
        name, template, before, look(undisturbed), halfway, begun, calls, backward, together, known, seconds
    )


def _calls_in_reverse(
    write: Write, template: Location, at: Location
) -> tuple[tuple[Call, ...], tuple[int, ...]]:
    """The calls of a write when those that it makes at the same time are made in reverse; which they are."""
    recorder = Recorder()
    graph = OpenGraph.open(root_at(copy_graph(template, at), recorder))
    recorder.clear()
    groups = Groups(recorder)
    with take_turns(groups.run):
        write.run(graph)
    drop_graph(at)
    return recorder.calls, tuple(sorted(groups.numbers))


def _seen_after(step: Step, template: Location, at: Location) -> View:
    graph = open_unrecovered(copy_graph(template, at))
    step(graph)
    return look(graph)


@contextmanager
def explain_cell(cell: str) -> Iterator[None]:
    """Says in which cell something was wrong."""
    try:
        yield
    except BaseException as error:
        error.add_note(cell)
        raise


# --- what must hold afterwards -------------------------------------------------------------------


def outcome(scene: Scene, graph: OpenGraph) -> OmnigraphError | None:
    """Run the write; the error it ended with."""
    try:
        scene.write.run(graph)
    except OmnigraphError as error:
        return error
    return None


def require_true_report(scene: Scene, graph: OpenGraph, error: OmnigraphError | None) -> None:
    """After success the write is visible; after any error but an open end nothing is."""
    seen = rows_of(look(graph))
    if error is None:
        assert seen in scene.done
    elif scene.write.recovers or scene.about_a_branch:
        assert seen in (rows_of(scene.before), rows_of(scene.after))
    elif isinstance(error, RecoveryRequired):
        assert pending(graph) == [error.operation_id]
        # A schema is visible before its files are in place.
        visible = scene.outcomes if scene.name.startswith("schema-apply") else scene.refused[-1:]
        assert seen in visible, "the end was open, and something was visible"
    else:
        assert seen in scene.refused, f"reported '{error}', and it happened"
        assert pending(graph) == [], "nothing had happened, and a record is left"


def require_whole(scene: Scene, at: Location, opened: Callable[[Root], OpenGraph]) -> None:
    """A newcomer sees all or nothing; then the next write works, and nothing is left to do."""
    interrupted = pending(open_unrecovered(at))
    branch, newcomer, last = _next(scene, at, opened, scene.outcomes)
    require_settled(newcomer)
    _require_audit(scene, newcomer, interrupted, last, branch)
    _require_removable(at)
    if scene.write.requires is not None:
        scene.write.requires(newcomer)
    if scene.write.again:
        _require_again(scene, newcomer, branch, last)


def _require_removable(at: Location) -> None:
    """Staged rows of a dead writer do not disturb others, and a cleanup long after removes them."""
    root = root_at(at)
    waiting = sorted(root.objects.list_folders(root.layout.staging))
    if waiting:
        later = OpenGraph.open(replace(root, clock=lambda: wall_clock() + _LONG), read_only=True)
        abandoned = [one.load for one in find_staged_loads(later, LONGEST_LOAD)]
        assert abandoned == [name for name in waiting if name not in (PINS, MARKS)]
        assert list_pinned_commits(later) == frozenset()


def _require_again(scene: Scene, graph: OpenGraph, branch: str, last: View) -> None:
    """Asked for once more it is done, whether it was before or not, and it was done once."""
    scene.write.run(graph)
    again = look(graph)
    _require_next(rows_of(again), scene, branch, [rows_of(scene.after)])
    require_settled(graph)
    if scene.write.requires is not None:
        scene.write.requires(graph)
    meant, taken, found = (_merge_commits(view[branch]) for view in (scene.after, last, again))
    assert len(found) == len(meant), "a branch was taken in twice, or without a trace"
    if _sort_rows(rows_of(last)) == _sort_rows(rows_of(again)) and scene.outcomes[0] != scene.outcomes[1]:
        assert taken == found, "it was done, and does not tell what it took in"


def _merge_commits(view: BranchView) -> list[Commit]:
    return [commit for commit in view.chain if commit.merged_parent is not None]


def _next(
    scene: Scene, at: Location, opened: Callable[[Root], OpenGraph], outcomes: Sequence[Contents]
) -> tuple[str, OpenGraph, View]:
    """One of the outcomes is there, and the next write works; its branch, and what is seen after it."""
    assert look(open_unrecovered(at)).keys() in [found.keys() for found in outcomes]
    graph = opened(root_at(at))
    assert rows_of(look(graph)) in outcomes, "what is visible is neither of the outcomes"
    branch = _branch_to_write(scene, graph)
    next_write(graph, branch)
    newcomer = open_graph(root_at(at))
    last = look(newcomer)
    _require_next(rows_of(last), scene, branch, outcomes)
    if not scene.about_a_branch and scene.halfway is None and "orphan" not in scene.name:
        assert stray_forks(newcomer) == []
    return branch, newcomer, last


def _branch_to_write(scene: Scene, graph: OpenGraph) -> str:
    """The branch for the next write; for writes that are about a branch, a recreated one."""
    if scene.makes_its_branch and BRANCH not in graph.branch_names():
        create_branch(graph, BRANCH)
    if not scene.about_a_branch:
        return scene.write.branch
    if BRANCH in graph.branch_names():
        delete_branch(graph, BRANCH)
    create_branch(graph, BRANCH)
    return BRANCH


def _require_next(rows: Contents, scene: Scene, branch: str, outcomes: Sequence[Contents]) -> None:
    """Everything is as in one of the outcomes, but for what the next write changed."""
    for found in outcomes:
        expected = {name: dict(tables) for name, tables in found.items()}
        if scene.about_a_branch or (scene.makes_its_branch and BRANCH not in expected):
            expected[BRANCH] = dict(expected["main"])
        if branch not in expected:
            continue
        tables = expected[branch]
        tables[PERSON] = [row | {"age": 77} if row["id"] == "bo" else row for row in tables[PERSON]]
        tables[TEAM] = [row | {"title": "next"} if row["id"] == "core" else row for row in tables[TEAM]]
        if _sort_rows(rows) == _sort_rows(expected):
            return
    raise AssertionError(f"the next write did not simply add to what was there: {rows}")


def _sort_rows(rows: Contents) -> object:
    return {b: {k: sorted(map(repr, found)) for k, found in t.items()} for b, t in rows.items()}


def _require_audit(scene: Scene, graph: OpenGraph, interrupted: list[str], last: View, branch: str) -> None:
    """Each interrupted write is noted once, with the commits that it really ended in."""
    notes = audit.read_audit(graph.root)
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
    published = scene.write.recovers and note.commit_id in scene.known
    assert published or note.commit_id in {commit.id for commit in made}
    if note.kind == "RolledBack":
        assert all(commit.actor == RECOVERY_ACTOR for commit in made)
        assert len(made) <= 2
    elif note.kind == "RolledForward":
        assert len(made) == (0 if published else 1)


def _commits(view: View) -> list[Commit]:
    found = {commit.id: commit for one in view.values() for commit in one.chain}
    return sorted(found.values(), key=lambda commit: commit.created_at, reverse=True)


# --- somebody else acts in between ---------------------------------------------------------------

_ALL_TABLES = """
insert Person { name: "zed" }  insert Knows { from: "zed", to: "bo" }
insert Team { name: "last" }  insert MemberOf { from: "zed", to: "last" }
"""
BEGIN_AT_HEAD = ("branch-create", "branch-create-over-residue")
"""Kinds whose branch begins at main as it is, and so has what was written beside them."""
_LATE = {"id": "(new)", "src": "bo", "dst": "core"}


def write_beside(scene: Scene, at: Location) -> OmnigraphError | None:
    """Another write to the same branch, whose rows no write of the matrix touches; why it was refused."""
    try:
        change(open_unrecovered(at), 'insert MemberOf { from: "bo", to: "core" }', _branch_beside(scene))
    except OmnigraphError as error:
        return error
    return None


def _branch_beside(scene: Scene) -> str:
    return "main" if scene.about_a_branch or scene.makes_its_branch else scene.write.branch


def require_both(
    scene: Scene,
    at: Location,
    report: str,
    beside: OmnigraphError | None,
    opened: Callable[[Root], OpenGraph],
) -> None:
    """Both writes are there or not, as they reported; then the next write works."""
    before, after = rows_of(scene.before), rows_of(scene.after)
    possible = {"done": scene.done, RecoveryRequired.code: scene.recovered}.get(report, scene.refused)
    if scene.write.recovers or scene.about_a_branch:
        possible = [before, after]
    outcomes = possible if beside else [late for one in possible for late in _with_late(scene, one)]
    branch, newcomer, _ = _next(scene, at, opened, outcomes)
    # A recovery that was overtaken may restore a table once more; the next write to that table settles it.
    change(newcomer, _ALL_TABLES, branch)
    require_settled(newcomer)
    notes = audit.read_audit(newcomer.root)
    assert len({note.operation_id for note in notes}) == len(notes), "an operation was recovered twice"


def _with_late(scene: Scene, contents: Contents) -> Iterator[Contents]:
    """Contents with the row of the write beside; a branch made meanwhile may have it or not.

    A write that restores older content removes the row if it began after it.
    """
    if scene.write.restores and contents in scene.done:
        yield contents
    branch = _branch_beside(scene)
    found = {**contents, branch: _plus(contents[branch])}
    yield found
    if (scene.name in BEGIN_AT_HEAD or scene.makes_its_branch) and BRANCH in contents:
        yield {**found, BRANCH: _plus(contents[BRANCH])}


def _plus(tables: dict[str, Rows]) -> dict[str, Rows]:
    return {**tables, MEMBER: sorted([*tables[MEMBER], _LATE], key=repr)}
