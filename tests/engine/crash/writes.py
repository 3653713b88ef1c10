"""The kinds of writes that the crash matrix breaks off at every storage call they make.

A new kind of write joins the matrix by a line in `WRITES`.
"""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.maintenance.repair import repair
from omnigraph.engine.upkeep import manifest_upkeep as upkeep
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.engine.write.pending_rows import ROWS_SETTING
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import OmnigraphError
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.references import reference_location
from omnigraph.storage.staging import commit_staged
from tests.engine.crash.embeddings import EMBEDDINGS
from tests.engine.crash.large_loads import LARGE_LOADS
from tests.engine.crash.leftovers import LEFTOVERS
from tests.engine.crash.merges import MERGES, RECOVERED_MERGES
from tests.engine.crash.new_branches import NEW_BRANCHES
from tests.engine.crash.replays import REPLAYS
from tests.engine.crash.schemas import ALL_AT_ONCE, RECOVERED_SCHEMA_CHANGES, SCHEMA_CHANGES
from tests.engine.crash.steps import (
    BRANCH,
    Step,
    Write,
    changes,
    interrupt_at,
    left_at,
    loads,
    make_branch,
    recovery,
    touch_branch,
)
from tests.engine.crash.tags import TAGS
from tests.engine.crash.text_indexes import TEXT_INDEXES
from tests.engine.crash.two_versions import RECOVERED_TWO_VERSIONS, TWO_VERSIONS
from tests.engine.crash.vector_indexes import VECTOR_INDEXES
from tests.engine.crash.world import PERSON, change


def _scatter_rows(graph: OpenGraph, branch: str = "main") -> None:
    """Rows in several fragments of two tables, beside the rows that indexes know."""
    ensure_indices(graph, Author(branch))
    for number in range(3):
        change(graph, f'insert Person {{ name: "p{number}" }}  insert Team {{ name: "t{number}" }}', branch)


def _scattered_branch(graph: OpenGraph) -> None:
    create_branch(graph, BRANCH)
    _scatter_rows(graph, BRANCH)


def _update_in_files(graph: OpenGraph) -> object:
    """An update of more rows than a mutation holds in memory."""
    with patch.dict("os.environ", {ROWS_SETTING: "1"}):
        return change(graph, "update Person set { age: 99 } where age > 0")


def _about_to_be_tidied(graph: OpenGraph) -> None:
    """As many fragments as are left alone: the next write is one too many."""
    for number in range(MIN_FRAGMENTS - 1):
        change(graph, f'insert Person {{ name: "p{number}" }}')


def _about_to_be_collected(graph: OpenGraph, branch: str = "main") -> None:
    """A manifest with as many fragments as are left alone, and old versions."""
    manifest = graph.coordinator(branch)
    while manifest.load().table.fragment_count < FRAGMENT_LIMIT:
        publish(manifest, ManifestChanges(), NewCommit(graph.root.new_id()))


def _branch_about_to_be_collected(graph: OpenGraph) -> None:
    """The same on a branch that has a branch of its own."""
    touch_branch(graph)
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


def _age_tables(graph: OpenGraph) -> None:
    """Old versions of tables, on main and on a branch."""
    touch_branch(graph)
    change(graph, 'insert Person { name: "gus" }  insert Team { name: "old" }')
    change(graph, 'update Person set { age: 1 } where name = "gus"')
    change(graph, 'insert Person { name: "hal" }', BRANCH)


def _with_orphans(graph: OpenGraph) -> None:
    """The same, and forks of a branch that is gone."""
    _age_tables(graph)
    create_branch(graph, "gone", from_branch=BRANCH)
    change(graph, ONE, "gone")
    point = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with failpoints.arm(point, failpoints.error(point)):
        delete_branch(graph, "gone")


def _over_orphans(graph: OpenGraph) -> None:
    """A branch recreated, over forks of an earlier one of its name that those of another one stand on."""
    touch_branch(graph)
    create_branch(graph, "gone", from_branch=BRANCH)
    change(graph, ONE, "gone")
    point = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with failpoints.arm(point, failpoints.error(point)):
        delete_branch(graph, "gone")
        delete_branch(graph, BRANCH)
    create_branch(graph, BRANCH)


def _half_a_branch(graph: OpenGraph) -> None:
    """The files of a branch whose creation was cut off before its reference."""
    manifest = graph.root.layout.manifest
    graph.root.forks.create(graph.load("main").table, BRANCH)
    graph.root.objects.delete(reference_location(manifest, BRANCH))


def _cleans_up(graph: OpenGraph) -> object:
    """A cleanup of everything that is past, however young it is."""
    with patch.dict("os.environ", {upkeep.SETTING: "0"}):
        return cleanup(graph, CleanupPolicy.of(1, None, 0.0))


def _indexed_past_the_door(graph: OpenGraph) -> None:
    """A table that stands above its branch, with the same rows."""
    entry = graph.load("main").state.entries()[PERSON]
    tip = graph.root.tables.tip(graph.root.layout.table(entry.path))
    commit_staged(stage_indexes(tip, [IndexSpec("age", "BTREE", "by_age")]))


def _optimizes(branch: str = "main") -> Step:
    return lambda graph: optimize(graph, Author(branch))


def _builds_indexes(branch: str = "main") -> Step:
    return lambda graph: ensure_indices(graph, Author(branch))


def _abandon_record(graph: OpenGraph) -> None:
    """A record whose branch is gone."""
    interrupt_at(failpoints.MUTATION_POST_FORK_PRE_COMMIT, ONE, BRANCH, make_branch)(graph)
    delete_branch(graph, BRANCH)


ONE = 'insert Person { name: "eve", age: 5 }'
TWO = 'insert Person { name: "eve" }  insert Knows { from: "eve", to: "ada", since: 7 }'
UPDATE = 'update Person set { age: 99 } where name = "bo"'
UPDATE_EDGES = 'update Knows set { since: 9 } where from = "ada"'
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
    "insert": Write(changes(ONE)),
    "insert-two-tables": Write(changes(TWO)),
    "update": Write(changes(UPDATE)),
    "update-edges": Write(changes(UPDATE_EDGES)),
    "update-large": Write(_update_in_files),
    "delete-cascade": Write(changes(CASCADE)),
    "first-touch": Write(changes(ONE, BRANCH), make_branch, BRANCH),
    "first-touch-two-tables": Write(changes(TWO, BRANCH), make_branch, BRANCH),
    "first-touch-over-orphans": Write(changes(TWO, BRANCH), _over_orphans, BRANCH),
    "second-touch": Write(changes(TWO, BRANCH), touch_branch, BRANCH),
    "first-touch-delete-cascade": Write(changes(CASCADE, BRANCH), make_branch, BRANCH),
    "load-append": Write(loads(Mode.APPEND)),
    "load-merge": Write(loads(Mode.MERGE)),
    "load-patch": Write(loads(Mode.PATCH)),
    "load-overwrite": Write(loads(Mode.OVERWRITE)),
    "load-append-first-touch": Write(loads(Mode.APPEND, BRANCH), make_branch, BRANCH),
    "branch-create": Write(lambda graph: create_branch(graph, BRANCH)),
    "branch-create-over-residue": Write(lambda graph: create_branch(graph, BRANCH), _half_a_branch),
    "branch-delete": Write(lambda graph: delete_branch(graph, BRANCH), touch_branch),
    "recover-back": Write(recovery, interrupt_at(COMMITTED, TWO), recovers=True),
    "recover-forward": Write(recovery, interrupt_at(CONFIRMED, TWO), recovers=True),
    "recover-first-touch": Write(recovery, interrupt_at(FORKED, TWO, BRANCH, make_branch), BRANCH, True),
    "recover-first-touch-moved": Write(
        recovery, interrupt_at(COMMITTED, TWO, BRANCH, make_branch), BRANCH, True
    ),
    "recover-orphan": Write(recovery, _abandon_record, recovers=True),
    "ensure-indices": Write(_builds_indexes()),
    "ensure-indices-first-touch": Write(_builds_indexes(BRANCH), make_branch, BRANCH),
    "optimize": Write(_optimizes(), _scatter_rows),
    "optimize-branch": Write(_optimizes(BRANCH), _scattered_branch, BRANCH),
    "automatic-upkeep": Write(changes(TWO), _about_to_be_tidied),
    "collecting": Write(_collects(ONE), _about_to_be_collected),
    "collecting-branch": Write(_collects(ONE, BRANCH), _branch_about_to_be_collected, BRANCH),
    "cleanup": Write(_cleans_up, _age_tables),
    "cleanup-orphan-forks": Write(_cleans_up, _with_orphans),
    "schema-apply": ALL_AT_ONCE,
    "repair": Write(lambda graph: repair(graph, confirm=True), _indexed_past_the_door),
    "recover-indices-back": Write(recovery, left_at(COMMITTED, _builds_indexes()), recovers=True),
    "recover-indices-staged": Write(recovery, left_at(INDEXES_STAGED, _builds_indexes()), recovers=True),
    "recover-indices-unconfirmed": Write(recovery, left_at(INDEXED, _builds_indexes()), recovers=True),
    "recover-indices-forward": Write(recovery, left_at(INDEXES_CONFIRMED, _builds_indexes()), recovers=True),
    "recover-optimize-back": Write(recovery, left_at(COMMITTED, _optimizes(), _scatter_rows), recovers=True),
    "recover-optimize-begun": Write(
        recovery, left_at(OPTIMIZING, _optimizes(), _scatter_rows), recovers=True
    ),
    "recover-optimize-compacted": Write(
        recovery, left_at(REINDEXING, _optimizes(), _scatter_rows), recovers=True
    ),
    "recover-optimize-forward": Write(
        recovery, left_at(OPTIMIZED, _optimizes(), _scatter_rows), recovers=True
    ),
    **MERGES,
    **RECOVERED_MERGES,
    **REPLAYS,
    **TAGS,
    **SCHEMA_CHANGES,
    **RECOVERED_SCHEMA_CHANGES,
    **LARGE_LOADS,
    **EMBEDDINGS,
    **TEXT_INDEXES,
    **VECTOR_INDEXES,
    **TWO_VERSIONS,
    **RECOVERED_TWO_VERSIONS,
    **NEW_BRANCHES,
    **LEFTOVERS,
}

IN_TURN: dict[str, tuple[str, ...]] = {
    "merge": tuple(MERGES),
    "recover-merge": tuple(RECOVERED_MERGES),
    "replay": tuple(REPLAYS),
    "tag": tuple(TAGS),
    "schema-change": tuple(SCHEMA_CHANGES),
    "recover-schema": tuple(RECOVERED_SCHEMA_CHANGES),
    "load-large": tuple(LARGE_LOADS),
    "embed": tuple(EMBEDDINGS),
    "optimize-texts": tuple(TEXT_INDEXES),
    "vectors-and-leftovers": (*VECTOR_INDEXES, *LEFTOVERS),
    "in-two": (*TWO_VERSIONS, *RECOVERED_TWO_VERSIONS),
    "onto-new": tuple(NEW_BRANCHES),
}
"""Kinds that resemble each other: the short form takes one of each of these groups."""


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
