"""What the crash matrix breaks off before there is a graph to write to: making one, migrating an old one."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.migrations import RUN_PREFIX
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import (
    AlreadyInitialized,
    GraphNotFound,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    OmnigraphError,
    RecoveryRequired,
)
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, Recorder
from tests.engine.crash.places import copy_graph, root_at
from tests.engine.crash.turns import turns
from tests.engine.crash.world import (
    FIRST,
    KNOWS,
    MEMBER,
    PERSON,
    SCHEMA,
    SCHEMA_ROW,
    TEAM,
    BranchView,
    Rows,
    change,
    load_rows,
    look,
    rows_of,
)
from tests.engine.old_graphs import OldGraph, require_migrated

WORK = "work"
Contents = dict[str, dict[str, Rows]]
Report = OmnigraphError | str | None
"""How it ended for its caller: well, with an error or its code; a dead process reported nothing at all."""

UNREPORTED, DONE = "unreported", "done"


@dataclass(frozen=True, slots=True)
class Opening:
    """Something done to a place, and what must hold there afterwards, however far it came."""

    make: Callable[[Location], OldGraph | None]
    """What is at the place before."""
    run: Callable[[Root], object]
    require: Callable[[Location, OldGraph | None, Report], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """An opening, a place to try it on, and the calls that it makes when it is left alone."""

    name: str
    template: Location
    old: OldGraph | None
    calls: tuple[Call, ...]

    @property
    def opening(self) -> Opening:
        return OPENINGS[self.name]

    def require(self, at: Location, report: Report) -> None:
        """What must hold at a copy of the place."""
        self.opening.require(at, self.old, report)

    @property
    def cells(self) -> int:
        """At how many calls it can be disturbed."""
        return len(self.calls)

    def moment(self, number: int) -> str:
        """A cell as a word for the process that disturbs."""
        return str(number)

    def cell(self, number: int) -> str:
        """What a fault at a call means."""
        call = self.calls[number]
        return f"{self.name}: call {number}, {call.op} of {call.uri.rpartition('undisturbed')[2]}"


def make_stage(name: str, folder: Location) -> Stage:
    """An opening at a place of its own, and how it goes when it is left alone."""
    opening, template, recorder = OPENINGS[name], folder / "template", Recorder()
    old = opening.make(template)
    undisturbed = copy_graph(template, folder / "undisturbed")
    with turns(reverse=False):
        opening.run(root_at(undisturbed, recorder))
    opening.require(undisturbed, old, None)
    return Stage(name, template, old, recorder.calls)


def outcome(stage: Stage, root: Root) -> OmnigraphError | None:
    """Do it; the error it ended with."""
    try:
        stage.opening.run(root)
    except OmnigraphError as error:
        return error
    return None


def combine_reports(stage: Stage, report: str, beside: OmnigraphError | None) -> Report:
    """What two know together who did the same at one time."""
    if stage.name in INITS:
        assert not (report == DONE and beside is None), "both made the graph"
        if InitializationIndeterminate.code in (report, _code(beside)):
            return UNREPORTED
    if report == DONE or beside is None:
        return None
    return UNREPORTED


# --- a new graph -----------------------------------------------------------------------------------


def _nothing(at: Location) -> None:
    """A place with a hidden file, which does not count: in a bucket no place is without any."""
    root_at(at).objects.write_text(at / ".notes", "mine")


def _half_made(at: Location) -> None:
    """What is left where tables were made, and no manifest yet."""
    root = root_at(at)
    create_graph(root, SCHEMA)
    root.objects.delete_prefix(root.layout.manifest)
    root.objects.write_text(root.layout.init_claim, "{}")


def _initialises(*, force: bool = False) -> Callable[[Root], object]:
    return lambda root: create_graph(root, SCHEMA, force=force)


def _require_made(at: Location, _: OldGraph | None, report: Report) -> None:
    """There is a new graph or none, as was reported; where there is none it can be made, if only by force."""
    try:
        graph = open_graph(root_at(at))
    except GraphNotFound:
        assert report is not None, "a graph was reported, and there is none"
        assert _code(report) != InitializationCommitted.code
        _make_at_last(at)
        graph = open_graph(root_at(at))
    else:
        possible = (None, UNREPORTED, InitializationCommitted.code, InitializationIndeterminate.code)
        assert _code(report) in possible, f"'{report}' was reported, and there is a graph"
    (state,) = look(graph).values()
    assert len(state.chain) == 1
    assert _rows_in(state) == 0
    load_rows(graph, FIRST, Mode.APPEND)
    again = open_graph(root_at(at))
    (state,) = look(again).values()
    assert _rows_in(state) == len(FIRST)


def _rows_in(state: BranchView) -> int:
    assert len(state.rows) == len([PERSON, TEAM, KNOWS, MEMBER, SCHEMA_ROW])
    return sum(len(rows) for key, rows in state.rows.items() if key != SCHEMA_ROW)


def _make_at_last(at: Location) -> None:
    try:
        create_graph(root_at(at), SCHEMA)
    except (AlreadyInitialized, InitializationClaimed) as refused:
        remedy = refused.remedy or ""
    else:
        return
    assert "--force" in remedy
    create_graph(root_at(at), SCHEMA, force=True)


def _code(report: Report) -> str | None:
    return report.code if isinstance(report, OmnigraphError) else report


# --- a graph of an older form ----------------------------------------------------------------------


def _old(form: int) -> Callable[[Location], OldGraph]:
    def make(at: Location) -> OldGraph:
        old = OldGraph(at, form)
        old.commit(actor="ann")
        old.branch(WORK)
        old.commit(WORK, actor="bob")
        old.commit()
        if form < 3:
            old.branch(f"{RUN_PREFIX}01")
            old.branch(f"{RUN_PREFIX}02", from_=f"{RUN_PREFIX}01")
        return old

    return make


def _old_branch(at: Location) -> OldGraph:
    """A graph whose main was migrated, and whose branch waits for its first write."""
    old = _old(1)(at)
    open_graph(root_at(at))
    return old


def _visible_rows(graph: OpenGraph) -> Contents:
    """What people see; what an old release left for itself is nothing of theirs."""
    return {name: rows for name, rows in rows_of(look(graph)).items() if not name.startswith(RUN_PREFIX)}


def _require_migrated(at: Location, old: OldGraph | None, report: Report) -> None:
    """Readers see every commit and every row at any time, and the next one to open it finishes."""
    assert old is not None
    found = copy(old)
    found.root = at
    _require_history(OpenGraph.open(root_at(at), read_only=True), found)
    if report is None:
        require_migrated(found)
    graph = open_graph(root_at(at))
    require_migrated(found)
    assert graph.branch_names() == [MAIN, WORK]
    _require_history(graph, found)
    _require_writable(at, found)


def _require_history(graph: OpenGraph, old: OldGraph) -> None:
    seen = _visible_rows(graph)
    assert seen.keys() == {MAIN, WORK}
    for branch, tables in seen.items():
        state = graph.load(branch).state
        assert state.commits == old.history(branch)
        assert len(tables["node:Person"]) == old.branches[branch].entries["node:Person"].row_count


def _require_writable(at: Location, old: OldGraph) -> None:
    """A write to main, and one to the branch, which migrates that one."""
    for branch in (MAIN, WORK):
        graph = open_graph(root_at(at))
        before = _visible_rows(graph)[branch]["node:Person"]
        done = change(graph, 'insert Person { name: "next", age: 7 }', branch).commit
        assert done is not None
        fresh = open_graph(root_at(at))
        row = {"id": "next", "name": "next", "age": 7}
        assert _visible_rows(fresh)[branch]["node:Person"] == sorted([*before, row], key=repr)
        require_migrated(old, branch)
        assert set(fresh.load(branch).state.commits) - {done.id} >= set(old.history(branch))


_LATE = 'insert Person { name: "late", age: 8 }'


def _require_branch_migrated(at: Location, old: OldGraph | None, report: Report) -> None:
    """The first write to an old branch happened or did not, and nothing of its past is lost."""
    assert old is not None
    found = copy(old)
    found.root = at
    graph = open_graph(root_at(at))
    row = {"id": "late", "name": "late", "age": 8}
    people = _visible_rows(graph)[WORK]["node:Person"]
    assert len(people) - (row in people) == found.branches[WORK].entries["node:Person"].row_count
    if _code(report) not in (UNREPORTED, RecoveryRequired.code):
        assert (row in people) == (report is None), f"'{report}' was reported"
    past = found.history(WORK)
    assert {id_: one for id_, one in graph.load(WORK).state.commits.items() if id_ in past} == past
    assert graph.load(MAIN).state.commits == found.history(MAIN)
    _require_writable(at, found)


_NEW = "new"


def _require_branched(at: Location, old: OldGraph | None, report: Report) -> None:
    """A branch made from an old one has the past of that, or is not there."""
    assert old is not None
    found = copy(old)
    found.root = at
    graph = open_graph(root_at(at))
    there = _NEW in graph.branch_names()
    assert there or report is not None
    for branch in (WORK, _NEW) if there else (WORK,):
        assert graph.load(branch).state.commits == found.history(WORK)
        assert _visible_rows(graph)[branch] == _visible_rows(graph)[WORK]
    if not there:
        create_branch(graph, _NEW, from_branch=WORK)
    assert change(graph, _LATE, _NEW).commit is not None
    _require_writable(at, found)


INITS: dict[str, Opening] = {
    "init": Opening(_nothing, _initialises(), _require_made),
    "init-force": Opening(_half_made, _initialises(force=True), _require_made),
}
MIGRATIONS: dict[str, Opening] = {
    "migrate-1": Opening(_old(1), open_graph, _require_migrated),
    "migrate-2": Opening(_old(2), open_graph, _require_migrated),
    "migrate-3": Opening(_old(3), open_graph, _require_migrated),
    "migrate-branch": Opening(
        _old_branch, lambda root: change(open_graph(root), _LATE, WORK), _require_branch_migrated
    ),
    "migrate-by-branching": Opening(
        _old_branch,
        lambda root: create_branch(open_graph(root), _NEW, from_branch=WORK),
        _require_branched,
    ),
}
OPENINGS = {**INITS, **MIGRATIONS}
