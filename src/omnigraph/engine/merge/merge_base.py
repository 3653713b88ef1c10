"""What the base of a merge holds, table by table.

With one base that is the state of its commit. With several, as after criss-cross merges, these are merged
with each other first, on the base that they have in common, and so on: the *virtual base*. An entity that two
bases changed to different values is disputed: it is a conflict unless both branches agree on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.saved_bases import SavedBase, SavedTable, open_saved_sides, read_saved_base
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT
from omnigraph.engine.changes.table_side import PLACES, TableSide
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.lineage import Commit, ancestors, parents, walk_first_parents
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.merge.patched_side import (
    NO_IDS,
    PatchedSide,
    compare_merge_sides,
    compare_patched,
    with_entities,
)
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


class SnapshotBase:
    """A base that is one moment, as revert and cherry-pick choose it."""

    def __init__(self, graph: OpenGraph, snapshot: Snapshot) -> None:
        self._graph = graph
        self._snapshot = snapshot

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The commit that it is."""
        return () if self._snapshot.commit is None else (self._snapshot.commit,)

    @property
    def keys(self) -> set[str]:
        """The tables that it has."""
        return set(self._snapshot.entries)

    def entry(self, key: str) -> TableEntry | None:
        """The version of a table that it is."""
        return self._snapshot.entries.get(key)

    def side(self, key: str, catalog: Catalog) -> TableSide:
        """A table as the base has it."""
        found = TableSide.of(self._graph, self._snapshot, key, catalog)
        if found is None:
            raise Conflict(f"'{self._snapshot.branch}' has no table '{key}'")
        return found


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


@dataclass(frozen=True, slots=True)
class UnseenMerges:
    """The states of either branch that may have been merged into the other one without a record."""

    ours: tuple[Commit, ...] = ()
    """Of the target."""
    theirs: tuple[Commit, ...] = ()
    """Of the source."""

    def find_disputed(
        self,
        graph: OpenGraph,
        sides: Sequence[TableSide],
        target: Snapshot,
        source: Snapshot,
        catalog: Catalog,
    ) -> pa.Array:
        """Return the ids of entities that a branch changed and undid; `sides` are base, source, target."""
        if not self.ours and not self.theirs:
            return NO_IDS
        base, there, here = sides
        theirs, ours = (
            compare_merge_sides(base, side).table.column(ID).combine_chunks() for side in (there, here)
        )
        found = [
            *_find_undone(graph, base, target, self.ours, _except(theirs, ours), catalog),
            *_find_undone(graph, base, source, self.theirs, _except(ours, theirs), catalog),
        ]
        return pc.unique(pa.concat_arrays([NO_IDS, *found]))


def find_unseen_merges(
    ancestry: Ancestry, ours: Commit, theirs: Commit, lost: Iterable[Commit]
) -> UnseenMerges:
    """Return the states to check, for bases whose content is lost and for gaps in the history."""
    lines = [
        _BranchLine(ancestry.commits, tip.id, other.id) for tip, other in ((ours, theirs), (theirs, ours))
    ]
    found: list[dict[str, Commit]] = [{}, {}]
    for blind in lost:
        for line, states in zip(lines, found, strict=True):
            _add(states, line.first_with(blind))
    for gap in ancestry.gaps(ours.id, theirs.id):
        for at, (line, other) in enumerate((lines, lines[::-1])):
            if gap.id in line.only and other.has_any_before(gap):
                _add(found[at], line.first_with(gap))
                _add(found[1 - at], other.last_before(gap))
    return UnseenMerges(tuple(found[0].values()), tuple(found[1].values()))


def _add(states: dict[str, Commit], commit: Commit | None) -> None:
    if commit is not None:
        states[commit.id] = commit


class _BranchLine:
    """The commits of a branch since two branches diverged."""

    def __init__(self, commits: Mapping[str, Commit], tip: str, other: str) -> None:
        self._commits = commits
        common = ancestors(commits, [other])
        self.only = {name: one for name, one in ancestors(commits, [tip]).items() if name not in common}
        chain = (one for one in walk_first_parents(commits, tip) if one.id in self.only)
        self.chain = sorted(chain, key=lambda one: one.order)

    def first_with(self, commit: Commit) -> Commit | None:
        """Return the first commit of the branch that includes another commit."""
        at = bisect_left(self.chain, True, key=lambda one: commit.id in ancestors(self._commits, [one.id]))
        return self.chain[at] if at < len(self.chain) else None

    def last_before(self, commit: Commit) -> Commit | None:
        """Return the last commit of the branch before a commit of another one, as far as clocks agree."""
        earlier = [one for one in self.chain if one.created_at <= commit.created_at]
        return earlier[-1] if earlier else None

    def has_any_before(self, commit: Commit) -> bool:
        """Whether this branch had a commit by then that the other one could have merged."""
        return any(one.created_at <= commit.created_at for one in self.only.values())


def _find_undone(
    graph: OpenGraph,
    base: TableSide,
    branch: Snapshot,
    states: Sequence[Commit],
    ids: pa.Array,
    catalog: Catalog,
) -> Iterator[pa.Array]:
    """Yield the ids of entities that a branch changed against the base at some state, and undid."""
    for commit in states:
        if not len(ids):
            return
        try:
            side = TableSide.of(
                graph, graph.snapshot(AtVersion(branch.branch, commit.version)), base.key, catalog
            )
            found = ids if side is None else compare_patched(base, side, ids).column(ID).combine_chunks()
        except HistoricalVersionReclaimed:
            found = ids  # unknown, so all of them are disputed
        yield found


def _except(ids: pa.Array, others: pa.Array) -> pa.Array:
    return ids.filter(pa.array(~is_among(ids, others)))
