"""Upkeep that happens by itself: after a write, the tables it touched are kept cheap to write and to search.

It needs no record. It changes how rows are stored and never which, so a table that a dying process left
ahead of the manifest is adopted as it is by the next writer. It makes no commit either: there is nothing to
tell, and a history half of which is upkeep would help nobody.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from omnigraph.engine.coordinator import Coordinator
from omnigraph.engine.manifest import TableVersion
from omnigraph.engine.prepare import side_by_side
from omnigraph.engine.publish import repin
from omnigraph.engine.reach import EXTEND_ROWS, extensions
from omnigraph.engine.rearrange import mend, put_in_place
from omnigraph.engine.tiers import FEWEST, crowded
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.storage.fragments import fragments
from omnigraph.storage.indexes import coverage, stage_extensions
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import plan_compaction, rewrite

SETTING = "OMNIGRAPH_AUTO_UPKEEP"
_TABLES_AT_ONCE = 2
"""Side by side, because a write waits for it; no more, because each takes the memory of a large index."""

_log = logging.getLogger(__name__)


def is_wanted() -> bool:
    """What `OMNIGRAPH_AUTO_UPKEEP` says: on unless it is `off`."""
    value = os.environ.get(SETTING, "on").strip().lower()
    if value not in ("on", "off"):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to `on` or `off`")
    return value == "on"


def tidy_tables(
    coordinator: Coordinator, held: Held, landed: Mapping[str, Table], written: Mapping[str, int]
) -> None:
    """Look after tables that a commit just moved, as they landed; callers hold the branch's lock.

    `written` is how many rows each got. A failure is no news for whoever wrote: the next write tries again.
    """
    due = {key: table for key, table in landed.items() if _is_due(table, written.get(key, 0))}
    if not due:
        return
    try:
        if is_wanted():
            _tidy(coordinator, held, due)
    except OmnigraphError as failure:
        _log.warning("upkeep on branch '%s' was not finished: %s", coordinator.branch, failure)


def _is_due(table: Table, written: int) -> bool:
    """Told without reading anything: most writes stop here."""
    return written >= EXTEND_ROWS or (table.fragment_count > FEWEST and bool(_crowd(table)))


def _crowd(table: Table) -> frozenset[int]:
    pieces = fragments(table)
    return frozenset(pieces[at].id for run in crowded([one.rows for one in pieces]) for at in run)


def _tidy(coordinator: Coordinator, held: Held, due: Mapping[str, Table]) -> None:
    expected = {key: table.version for key, table in due.items()}
    keys = list(due)
    moved = []

    def one(key: str) -> Table:
        return _extended(_compacted(mend(due[key], held), held), held)

    for begin in range(0, len(keys), _TABLES_AT_ONCE):
        some = keys[begin : begin + _TABLES_AT_ONCE]
        for key, after in zip(some, side_by_side(one, some), strict=True):
            if after.version != due[key].version:
                moved.append(TableVersion(key, after.version, due[key].branch, due[key].count()))
    if moved:
        held.require()
        repin(coordinator, moved, expected={one.key: expected[one.key] for one in moved})


def _compacted(table: Table, held: Held) -> Table:
    crowd = _crowd(table)
    if not crowd:
        return table
    plan = plan_compaction(table, only=crowd)
    return table if plan.is_empty else put_in_place(rewrite(plan), held)


def _extended(table: Table, held: Held) -> Table:
    wanted = extensions(coverage(table), fragments(table))
    if not wanted:
        return table
    staged = stage_extensions(table, wanted)
    held.require()
    return commit_staged(staged)
