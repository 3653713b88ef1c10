"""The same rows, stored otherwise: in fewer fragments, under better indexes."""

from __future__ import annotations

from omnigraph import failpoints
from omnigraph.engine.catching_up import catching_up
from omnigraph.engine.plan import Rearrange
from omnigraph.errors import StorageFailure
from omnigraph.storage.index_files import find_astray
from omnigraph.storage.indexes import anew, catch_up, stage_extensions
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import Rewritten, commit_compaction, plan_compaction, rewrite


def put_in_place(rewritten: Rewritten, held: Held) -> Table:
    """The table after a compaction whose files are written; callers hold the branch's lock."""
    held.require()
    try:
        return commit_compaction(rewritten).table
    except StorageFailure as failure:
        if failure.kind != Trouble.CONFLICT:
            raise
        # Even so it took numbers for its fragments, and with that a version: the same rows.
        return rewritten.table.latest()


def mend(table: Table, held: Held) -> Table:
    """The table without indexes whose files are missing; callers hold the branch's lock."""
    astray = find_astray(table)
    if astray is None:
        return table
    staged = astray.stage_mended()
    held.require()
    return commit_staged(staged)


def rearrange(effect: Rearrange, held: Held) -> Table:
    """Carry out all steps on one table; each leaves the rows as they are, so it may end after any of them."""
    failpoints.reach(failpoints.OPTIMIZE_BEFORE_COMPACT)
    table = mend(effect.table, held)
    mended = table is not effect.table
    if effect.rewritten is not None and not mended:
        table = put_in_place(effect.rewritten, held)
    if effect.columns:
        table = _indexed(table, effect, held)
    elif not mended:
        return table
    # Only fragments that the same indexes cover go together: now more of them do.
    again = plan_compaction(table)
    return table if again.is_empty else put_in_place(rewrite(again), held)


def _indexed(table: Table, effect: Rearrange, held: Held) -> Table:
    found = catching_up(table, effect.lagging)
    wanted = (*found.extended, *anew(table, effect.indexes))
    if wanted:
        staged = stage_extensions(table, wanted, effect.build)
        failpoints.reach(failpoints.OPTIMIZE_INJECT_REINDEX_CONFLICT)
        held.require()
        table = commit_staged(staged)
    if found.texts:
        held.require()
        table = catch_up(table, found.texts)
    return table
