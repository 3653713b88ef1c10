"""Rewrite a table into fewer fragments and update its indexes; the rows stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.upkeep.index_catch_up import LaggingIndex, plan_catch_up
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.index_files import find_misplaced_indexes
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.indexes import (
    IndexSpec,
    OnRefusedIndex,
    catch_up_text_indexes,
    log_refused_index,
    plan_rebuilds,
    stage_buildable,
)
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import (
    TARGET_ROWS,
    RewrittenFragments,
    commit_compaction,
    plan_compaction,
    rewrite_fragments,
)


@dataclass(frozen=True, slots=True)
class RewriteTable:
    """The rows of a table in fewer fragments, then all of them under indexes; they stay the same rows."""

    table: Table
    rewritten: RewrittenFragments | None
    """The new files, written beforehand; None when there is nothing to put together."""
    indexes: tuple[IndexSpec, ...] = ()
    """Those that are built over the whole table."""
    lagging: tuple[LaggingIndex, ...] = ()
    """Those that are updated."""
    build: BuildParts | None = field(default=None, repr=False)
    """Who builds these, if not the process that commits."""
    refused: OnRefusedIndex = field(default=log_refused_index, repr=False, compare=False)
    """Called with every index that cannot be built; the others are."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose indexes are built or updated."""
        return (*(one.wish.column for one in self.lagging), *(spec.column for spec in self.indexes))


def commit_rewrite(rewritten: RewrittenFragments, held: HeldLocks) -> Table:
    """The table after a compaction whose files are written; callers hold the branch's lock."""
    held.require()
    try:
        return commit_compaction(rewritten).table
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.CONFLICT:
            raise
        # Even so it took numbers for its fragments, and with that a version: the same rows.
        return rewritten.table.latest()


def drop_broken_indexes(table: Table, held: HeldLocks) -> Table:
    """The table without indexes whose files are missing; callers hold the branch's lock."""
    astray = find_misplaced_indexes(table)
    if astray is None:
        return table
    staged = astray.stage_repair()
    held.require()
    return commit_staged(staged)


def rewrite_table(effect: RewriteTable, held: HeldLocks) -> Table:
    """Carry out all steps on one table; each leaves the rows as they are, so it may end after any of them."""
    failpoints.reach(failpoints.OPTIMIZE_BEFORE_COMPACT)
    table = drop_broken_indexes(effect.table, held)
    repaired = table is not effect.table
    if effect.rewritten is not None and not repaired:
        table = commit_rewrite(effect.rewritten, held)
    if effect.columns:
        table = _update_indexes(table, effect, held)
    elif not repaired:
        return table
    # Only fragments that the same indexes cover go together: now more of them do.
    again = plan_compaction(table)
    return table if again.is_empty else commit_rewrite(rewrite_fragments(again), held)


def _update_indexes(table: Table, effect: RewriteTable, held: HeldLocks) -> Table:
    found = plan_catch_up(table, effect.lagging)
    wanted = (*found.extended, *plan_rebuilds(table, effect.indexes))
    if wanted:
        staged = stage_buildable(table, wanted, effect.refused, effect.build)
        failpoints.reach(failpoints.OPTIMIZE_INJECT_REINDEX_CONFLICT)
        held.require()
        table = table if staged is None else commit_staged(staged)
    if found.texts:
        held.require()
        table = catch_up_text_indexes(table, found.texts)
    return table


@dataclass(frozen=True, slots=True)
class Tier:
    """Fragments below some size, and how many of them may be saved before it is worth the effort."""

    rows: int
    spare: int


TIERS = (Tier(1 << 8, 24), Tier(1 << 12, 30), Tier(1 << 16, 36), Tier(TARGET_ROWS, 42))
MIN_FRAGMENTS = TIERS[0].spare
"""With so many fragments or fewer nothing is ever to be done."""
_LARGE = 8
"""So many times as many rows make a fragment large beside others."""


def find_crowded_runs(rows: Sequence[int]) -> list[range]:
    """The runs of neighbours to be put together, given the size of every fragment; none if all is well."""
    if len(rows) <= MIN_FRAGMENTS:
        return []
    for tier in TIERS:
        runs = _runs(rows, tier.rows)
        if sum(len(run) - 1 for run in runs) >= tier.spare:
            return runs
    return []


def find_newest_run(rows: Sequence[int], fewest: int) -> range:
    """The newest fragments of a table that only ever grows, to be put together: at least so many.

    An older one joins them unless it is large beside them. So few remain, each several times as large as the
    next, and a row is written again a few times for each of these steps, however many there are before it.
    """
    total, start = 0, len(rows)
    while start and (len(rows) - start < fewest or rows[start - 1] <= _LARGE * total):
        start -= 1
        total += rows[start]
    return range(start, len(rows))


def _runs(rows: Sequence[int], limit: int) -> list[range]:
    """The longest runs of at least two fragments that are all below a size."""
    found, start = [], 0
    for position in range(len(rows) + 1):
        if position == len(rows) or rows[position] >= limit:
            if position - start > 1:
                found.append(range(start, position))
            start = position + 1
    return found
