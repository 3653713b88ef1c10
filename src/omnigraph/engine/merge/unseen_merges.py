"""Merges that are not on record: by earlier releases, or into a commit whose content is lost.

Then an older common ancestor replaces the base, and an entity can look as if only one branch had changed it
although the other one had the change too, and undid it. Such an entity is disputed: it is a conflict unless
both branches agree on it. To find them, each branch is read as it was when the other one may have merged it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.lineage import Commit, ancestors, walk_first_parents
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.patched_side import NO_IDS, compare_merge_sides, compare_patched
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.lang.schema.catalog import Catalog


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
