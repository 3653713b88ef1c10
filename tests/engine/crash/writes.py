"""The kinds of writes that the crash matrix breaks off at every storage call they make.

A new kind of write joins the matrix by a line in `WRITES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine import upkeep
from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.indexing import ensure_indices
from omnigraph.engine.open import open_graph
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.optimize import optimize
from omnigraph.engine.publish import Changes, Lineage, publish
from omnigraph.engine.tiers import FEWEST
from omnigraph.engine.upkeep import FRAGMENT_LIMIT
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import OmnigraphError, RecoveryRequired
from tests.engine.crash.world import change, load_rows

BRANCH = "draft"

Step = Callable[[OpenGraph], object]


@dataclass(frozen=True, slots=True)
class Write:
    """A write, the graph it starts from, and where it is."""

    run: Step
    prepare: Step = lambda graph: None
    branch: str = "main"
    recovers: bool = False
    """It is a recovery: `prepare` leaves an interrupted write, and `run` deals with it."""


def _branched(graph: OpenGraph) -> None:
    create_branch(graph, BRANCH)


def _touched(graph: OpenGraph) -> None:
    create_branch(graph, BRANCH)
    change(graph, 'insert Person { name: "fay" }  insert Knows { from: "fay", to: "ada" }', BRANCH)


def _interrupted(point: str, text: str, branch: str = "main", before: Step = lambda graph: None) -> Step:
    """A step that leaves the record of a mutation that came as far as a failpoint."""
    return _left_at(point, _changes(text, branch), before)


def _left_at(point: str, run: Step, before: Step = lambda graph: None) -> Step:
    """A step that leaves the record of a write that came as far as a failpoint."""

    def step(graph: OpenGraph) -> None:
        before(graph)
        with failpoints.armed(point, failpoints.error(point)):
            try:
                run(graph)
            except RecoveryRequired:
                return
        raise AssertionError(f"the write did not come to '{point}'")

    return step


def _scattered(graph: OpenGraph, branch: str = "main") -> None:
    """Rows in several fragments of two tables, beside the rows that indexes know."""
    ensure_indices(graph, Author(branch))
    for number in range(3):
        change(graph, f'insert Person {{ name: "p{number}" }}  insert Team {{ name: "t{number}" }}', branch)


def _scattered_branch(graph: OpenGraph) -> None:
    create_branch(graph, BRANCH)
    _scattered(graph, BRANCH)


def _about_to_be_tidied(graph: OpenGraph) -> None:
    """As many fragments as are left alone: the next write is one too many."""
    for number in range(FEWEST - 1):
        change(graph, f'insert Person {{ name: "p{number}" }}')


def _about_to_be_collected(graph: OpenGraph, branch: str = "main") -> None:
    """A manifest with as many fragments as are left alone, and old versions."""
    manifest = graph.coordinator(branch)
    while manifest.load().table.fragment_count < FRAGMENT_LIMIT:
        publish(manifest, Changes(), Lineage(graph.root.new_id()))


def _branch_about_to_be_collected(graph: OpenGraph) -> None:
    """The same on a branch that has a branch of its own."""
    _touched(graph)
    create_branch(graph, f"{BRANCH}-of-{BRANCH}", from_branch=BRANCH)
    _about_to_be_collected(graph, BRANCH)


def _collects(text: str, branch: str = "main") -> Step:
    """A change after which old versions of the manifest go, however young and few they are."""

    def step(graph: OpenGraph) -> object:
        with (
            patch.dict("os.environ", {upkeep.SETTING: "0"}),
            patch.object(upkeep, "COLLECTED_AT_ONCE", 4),
        ):
            return change(graph, text, branch)

    return step


def _optimizes(branch: str = "main") -> Step:
    return lambda graph: optimize(graph, Author(branch))


def _builds_indexes(branch: str = "main") -> Step:
    return lambda graph: ensure_indices(graph, Author(branch))


def _abandoned(graph: OpenGraph) -> None:
    """A record whose branch is gone."""
    _interrupted(failpoints.MUTATION_POST_FORK_PRE_COMMIT, ONE, BRANCH, _branched)(graph)
    delete_branch(graph, BRANCH)


def _changes(text: str, branch: str = "main") -> Step:
    return lambda graph: change(graph, text, branch)


def _loads(mode: Mode, branch: str = "main") -> Step:
    rows = (
        {"type": "Person", "data": {"name": "bo" if mode is not Mode.APPEND else "gil", "age": 21}},
        {"type": "Person", "data": {"name": "hal"}},
        {"edge": "Knows", "from": "hal", "to": "hal", "data": {"id": "k9"}},
    )
    if mode is Mode.OVERWRITE:
        # The persons whom other rows need stay.
        rows += (
            {"type": "Person", "data": {"name": "ada"}},
            {"type": "Team", "data": {"name": "core", "title": "Anew"}},
        )
    return lambda graph: load_rows(graph, rows, mode, branch)


def _recovery(graph: OpenGraph) -> None:
    open_graph(graph.root)


ONE = 'insert Person { name: "eve", age: 5 }'
TWO = 'insert Person { name: "eve" }  insert Knows { from: "eve", to: "ada", since: 7 }'
UPDATE = 'update Person set { age: 99 } where name = "bo"'
CASCADE = 'delete Person where name = "ada"'

COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
FORKED = failpoints.MUTATION_POST_FORK_PRE_COMMIT
INDEXES_STAGED = failpoints.ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE
INDEXED = failpoints.ENSURE_INDICES_POST_EFFECTS_PRE_CONFIRM
INDEXES_CONFIRMED = failpoints.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT
OPTIMIZING = failpoints.OPTIMIZE_BEFORE_COMPACT
REINDEXING = failpoints.OPTIMIZE_INJECT_REINDEX_CONFLICT
OPTIMIZED = failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT

WRITES: dict[str, Write] = {
    "insert": Write(_changes(ONE)),
    "insert-two-tables": Write(_changes(TWO)),
    "update": Write(_changes(UPDATE)),
    "delete-cascade": Write(_changes(CASCADE)),
    "first-touch": Write(_changes(ONE, BRANCH), _branched, BRANCH),
    "first-touch-two-tables": Write(_changes(TWO, BRANCH), _branched, BRANCH),
    "second-touch": Write(_changes(TWO, BRANCH), _touched, BRANCH),
    "first-touch-delete-cascade": Write(_changes(CASCADE, BRANCH), _branched, BRANCH),
    "load-append": Write(_loads(Mode.APPEND)),
    "load-merge": Write(_loads(Mode.MERGE)),
    "load-overwrite": Write(_loads(Mode.OVERWRITE)),
    "load-append-first-touch": Write(_loads(Mode.APPEND, BRANCH), _branched, BRANCH),
    "branch-create": Write(lambda graph: create_branch(graph, BRANCH)),
    "branch-delete": Write(lambda graph: delete_branch(graph, BRANCH), _touched),
    "recover-back": Write(_recovery, _interrupted(COMMITTED, TWO), recovers=True),
    "recover-forward": Write(_recovery, _interrupted(CONFIRMED, TWO), recovers=True),
    "recover-first-touch": Write(_recovery, _interrupted(FORKED, TWO, BRANCH, _branched), BRANCH, True),
    "recover-first-touch-moved": Write(
        _recovery, _interrupted(COMMITTED, TWO, BRANCH, _branched), BRANCH, True
    ),
    "recover-orphan": Write(_recovery, _abandoned, recovers=True),
    "ensure-indices": Write(_builds_indexes()),
    "ensure-indices-first-touch": Write(_builds_indexes(BRANCH), _branched, BRANCH),
    "optimize": Write(_optimizes(), _scattered),
    "optimize-branch": Write(_optimizes(BRANCH), _scattered_branch, BRANCH),
    "automatic-upkeep": Write(_changes(TWO), _about_to_be_tidied),
    "collecting": Write(_collects(ONE), _about_to_be_collected),
    "collecting-branch": Write(_collects(ONE, BRANCH), _branch_about_to_be_collected, BRANCH),
    "recover-indices-back": Write(_recovery, _left_at(COMMITTED, _builds_indexes()), recovers=True),
    "recover-indices-staged": Write(_recovery, _left_at(INDEXES_STAGED, _builds_indexes()), recovers=True),
    "recover-indices-unconfirmed": Write(_recovery, _left_at(INDEXED, _builds_indexes()), recovers=True),
    "recover-indices-forward": Write(
        _recovery, _left_at(INDEXES_CONFIRMED, _builds_indexes()), recovers=True
    ),
    "recover-optimize-back": Write(_recovery, _left_at(COMMITTED, _optimizes(), _scattered), recovers=True),
    "recover-optimize-begun": Write(_recovery, _left_at(OPTIMIZING, _optimizes(), _scattered), recovers=True),
    "recover-optimize-compacted": Write(
        _recovery, _left_at(REINDEXING, _optimizes(), _scattered), recovers=True
    ),
    "recover-optimize-forward": Write(
        _recovery, _left_at(OPTIMIZED, _optimizes(), _scattered), recovers=True
    ),
}


def next_write(graph: OpenGraph, branch: str) -> None:
    """What must simply work after a crash: a write that reads, over two tables, on the same branch."""
    try:
        change(
            graph,
            'update Person set { age: 77 } where name = "bo"  update Team set { title: "next" } '
            'where name = "core"',
            branch,
        )
    except OmnigraphError as error:
        raise AssertionError(f"the next write failed: {error}") from error
