"""Rewrite a table into fewer fragments and update its indexes; the rows stay the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph import failpoints
from omnigraph.engine.upkeep.index_catch_up import LaggingIndex, plan_catch_up
from omnigraph.errors import StorageFailure
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
from omnigraph.storage.lance_errors import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import RewrittenFragments, commit_compaction, plan_compaction, rewrite_fragments


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
