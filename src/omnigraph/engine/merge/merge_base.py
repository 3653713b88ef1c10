"""What the base of a merge holds, table by table.

With one base that is the state of its commit. With several, as after criss-cross merges, these are merged
with each other first, on the base that they have in common, and so on: the *virtual base*. An entity that two
bases changed to different values is disputed: it is a conflict unless both branches agree on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.branches.saved_bases import SavedBase, SavedTable, open_saved_sides, read_saved_base
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT
from omnigraph.engine.changes.table_side import PLACES, TableSide
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.lineage import Commit, ancestors, parents
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.patched_side import NO_IDS, PatchedSide, compare_merge_sides, with_entities
from omnigraph.engine.merge.row_rule import SOURCE, TARGET, MergeSides, apply_row_rule
from omnigraph.errors import BranchNotFound, Conflict, HistoricalVersionReclaimed, InternalError
from omnigraph.lang.schema.catalog import Catalog


class MergeBase:
    """The state that both branches of a merge started from."""

    def __init__(self, graph: OpenGraph, ancestry: Ancestry, commits: Sequence[Commit]) -> None:
        self._graph = graph
        self._ancestry = ancestry
        self.commits, self.lost = _replace_lost(graph, ancestry, commits)
        """The commits it is made of, and those they replace because their content is lost."""
        self._states: dict[str, Snapshot | SavedBase] = {}
        self._sides: dict[tuple[str, tuple[str, ...]], TableSide] = {}

    @property
    def keys(self) -> set[str]:
        """The tables that it has; of bases with different types, all of them."""
        return {key for commit in self.commits for key in self._tables(commit)}

    def entry(self, key: str) -> TableEntry | None:
        """The version of a table that it is; None when no stored version holds it."""
        found = [self._tables(commit).get(key) for commit in self.commits]
        places = {(one.owner, one.version) if isinstance(one, TableEntry) else None for one in found}
        first = found[0]
        return first if len(places) == 1 and isinstance(first, TableEntry) else None

    def side(self, key: str, catalog: Catalog) -> TableSide:
        """A table as the base has it."""
        return self._merged_side(key, self.commits, catalog)

    def _merged_side(self, key: str, commits: Sequence[Commit], catalog: Catalog) -> TableSide:
        at = (key, tuple(commit.id for commit in commits))
        if at not in self._sides:
            self._sides[at] = self._merge_commits(key, commits, catalog)
        return self._sides[at]

    def _merge_commits(self, key: str, commits: Sequence[Commit], catalog: Catalog) -> TableSide:
        first, *others = commits
        found, taken = self._side(key, first, catalog), [first.id]
        for commit in others:
            side = self._side(key, commit, catalog)
            if not _is_same(found, side):
                wanted = self._ancestry.merge_bases(taken, [commit.id])
                bases, lost = _replace_lost(self._graph, self._ancestry, wanted)
                base = self._merged_side(key, bases, catalog)
                found = _dispute_all(found, side) if lost else _merge_sides(base, found, side)
            taken.append(commit.id)
        return found

    def _side(self, key: str, commit: Commit, catalog: Catalog) -> TableSide:
        state = self._state(commit)
        found = (
            _open_kept_side(self._graph, state, commit, key, catalog)
            if isinstance(state, SavedBase)
            else TableSide.of(self._graph, state, key, catalog)
        )
        if found is None:
            raise Conflict(f"commit '{commit.id}' has no table '{key}'")
        return found

    def _tables(self, commit: Commit) -> Mapping[str, TableEntry | SavedTable]:
        state = self._state(commit)
        return state.tables if isinstance(state, SavedBase) else state.entries

    def _state(self, commit: Commit) -> Snapshot | SavedBase:
        if commit.id not in self._states:
            found = find_state(self._graph, self._ancestry, commit)
            if found is None:
                raise HistoricalVersionReclaimed(commit.branch, commit.version)
            self._states[commit.id] = found
        return self._states[commit.id]


def _open_kept_side(
    graph: OpenGraph, kept: SavedBase, commit: Commit, key: str, catalog: Catalog
) -> TableSide | None:
    found = open_saved_sides(graph, kept, commit, key, catalog)
    if found is None:
        return None
    stored, changed, places = found
    return with_entities(stored, changed, places, NO_IDS) if places.num_rows else stored


def _is_same(left: TableSide, right: TableSide) -> bool:
    if isinstance(left, PatchedSide) or isinstance(right, PatchedSide):
        return False
    return left.owned_version == right.owned_version and left.table.incarnation == right.table.incarnation


def _merge_sides(base: TableSide, ours: TableSide, theirs: TableSide) -> TableSide:
    """Two states of a table merged into one; what they disagree on is disputed."""
    if _is_same(base, ours):
        return theirs
    if _is_same(base, theirs):
        return ours
    delta = apply_row_rule(
        MergeSides(base, theirs, ours), compare_merge_sides(base, theirs), compare_merge_sides(base, ours)
    )
    contested = delta.contested.places
    # One of the rows is needed for conflict images, and for the choice `base`.
    missing = contested.filter(contested.column(TARGET).is_null())
    taken = [
        table.select([ID, SOURCE]).rename_columns(PLACES.names).cast(PLACES)
        for table in (delta.taken, missing)
    ]
    disputed = contested.column(ID).combine_chunks()
    return with_entities(ours, theirs, pa.concat_tables(taken), disputed)


def _dispute_all(ours: TableSide, theirs: TableSide) -> TableSide:
    """Combine two states when it is unknown what each of them changed: every difference is disputed."""
    pairs = compare_merge_sides(ours, theirs).table
    missing = pairs.filter(pairs.column(LEFT).is_null()).select([ID, RIGHT]).rename_columns(PLACES.names)
    return with_entities(ours, theirs, missing.cast(PLACES), pairs.column(ID).combine_chunks())


def _replace_lost(
    graph: OpenGraph, ancestry: Ancestry, commits: Sequence[Commit]
) -> tuple[tuple[Commit, ...], tuple[Commit, ...]]:
    """Return commits whose content can be read, and the lost commits that they replace."""
    known, found, lost = ancestry.commits, {one.id: one for one in commits}, dict[str, Commit]()
    while unread := [one for one in found.values() if not _is_readable(graph, ancestry, one)]:
        lost |= {one.id: one for one in unread}
        older = {name: known[name] for one in unread for name in parents(one) if name in known}
        found = {name: one for name, one in {**found, **older}.items() if name not in lost}
        covered = ancestors(known, [name for one in found.values() for name in parents(one)])
        found = {name: one for name, one in found.items() if name not in covered}
    newest = sorted(found.values(), key=lambda one: (one.created_at, one.id), reverse=True)
    return tuple(newest), tuple(lost.values())


def _is_readable(graph: OpenGraph, ancestry: Ancestry, commit: Commit) -> bool:
    return (
        _branch_showing(graph, ancestry, commit) is not None or read_saved_base(graph, commit.id) is not None
    )


def find_state(graph: OpenGraph, ancestry: Ancestry, commit: Commit) -> Snapshot | SavedBase | None:
    """Return the content of a commit, from a branch or from a saved base; None when it is lost."""
    branch = _branch_showing(graph, ancestry, commit)
    if branch is None:
        return read_saved_base(graph, commit.id)
    return graph.snapshot(AtVersion(branch, commit.version))


def _branch_showing(graph: OpenGraph, ancestry: Ancestry, commit: Commit) -> str | None:
    """Return a branch whose manifest has a commit; None when its branch was deleted."""
    for branch, state in ancestry.states.items():
        if commit.id in state.commits:
            return branch
    try:
        shown = commit.id in graph.load(commit.branch).state.commits
    except (BranchNotFound, InternalError):
        return None
    return commit.branch if shown else None
