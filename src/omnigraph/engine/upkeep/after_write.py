"""Automatic upkeep after a write: compact and index the tables it wrote.

It needs no record. It changes how rows are stored and never which, so a table that a crash left ahead of the
manifest is adopted by the next writer. It creates no commit either, because no content changes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import ManifestState, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import repin
from omnigraph.engine.upkeep.declared_indexes import DeclaredIndex, declared_indexes
from omnigraph.engine.upkeep.index_catch_up import DueIndex
from omnigraph.engine.upkeep.index_upkeep import (
    MIN_ROWS_TO_CHECK,
    DeferredIndexes,
    IndexUpkeep,
    columns_of,
    expects_indexes,
    find_due_on_table,
    plan_round,
    rows_in_write,
)
from omnigraph.engine.upkeep.table_rewrite import (
    MIN_FRAGMENTS,
    commit_rewrite,
    drop_broken_indexes,
    find_crowded_runs,
)
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.storage.concurrency import run_per_table
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import plan_compaction, rewrite_fragments

SETTING = "OMNIGRAPH_AUTO_UPKEEP"
_TABLES_AT_ONCE = 2
"""In parallel, because a write waits for it; limited, because each takes the memory of a large index."""

_log = logging.getLogger(__name__)


def is_enabled() -> bool:
    """Whether `OMNIGRAPH_AUTO_UPKEEP` is on, its default."""
    value = os.environ.get(SETTING, "on").strip().lower()
    if value not in ("on", "off"):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to `on` or `off`")
    return value == "on"


@dataclass(frozen=True, slots=True)
class WrittenTables:
    """The tables that a write has moved or made, or whose indexes it declared, as they stand after it."""

    tables: Mapping[str, Table]
    written: Mapping[str, int]
    """How many rows each got."""
    rewritten: Collection[str] = ()
    """Those that may lack indexes because of the write, however few rows they hold."""
    unchecked: Collection[str] = ()
    """Those that are always checked: no upkeep ran after the previous write."""

    def rows(self, key: str) -> int:
        """How many rows a table got; of an interrupted write that was finished, all may be its own."""
        return self.tables[key].count() if key in self.unchecked else self.written.get(key, 0)

    def needs_index_check(self, key: str) -> bool:
        """Whether the write may have left indexes behind; most have not, and nothing is read to see that."""
        return (
            self.written.get(key, 0) >= MIN_ROWS_TO_CHECK
            or key in self.unchecked
            or (key in self.rewritten and self.tables[key].fragment_count > 0)
        )


def run_table_upkeep(
    graph: OpenGraph, branch: str, state: ManifestState, held: HeldLocks, touched: WrittenTables
) -> IndexUpkeep:
    """Compact and index tables that a commit just wrote; callers hold the branch's lock.

    `state` is the branch as the commit left it.

    A failure is logged, not raised: the next write tries again. Missing indexes are reported.
    """
    looked_at = [key for key in touched.tables if touched.needs_index_check(key)]
    crowded_keys = [key for key, table in touched.tables.items() if _is_crowded(table)]
    keys = sorted({*looked_at, *crowded_keys})
    if not keys:
        return IndexUpkeep()
    pending: dict[str, tuple[str, ...]] = {}
    owed: dict[str, DeferredIndexes] = {}
    try:
        catalog = graph.schema().catalog
        asked = {key: declared_indexes(catalog, key) for key in keys}
        # Until more is known, all of them are.
        pending = {key: tuple(wish.column for wish in asked[key]) for key in looked_at}
        # A table that is only compacted is spared the look at its indexes.
        expecting = {
            key
            for key in looked_at
            if key in touched.rewritten or expects_indexes(graph.root, state, key, touched.tables[key])
        }
        plans = {key: _Plan(asked[key], key in expecting) for key in keys}
        limit = rows_in_write()
        if is_enabled():
            left = _maintain_tables(
                graph.coordinator(branch), held, {key: touched.tables[key] for key in keys}, plans, limit
            )
            owed = {key: DeferredIndexes(touched.rows(key), asked[key]) for key, due in left.items() if due}
        else:
            left = {key: plans[key].due(touched.tables[key]) for key in looked_at}
        pending = {key: columns_of(due) for key, due in left.items()}
    except OmnigraphError as failure:
        _log.warning("upkeep on branch '%s' was not finished: %s", branch, failure)
    return IndexUpkeep({key: columns for key, columns in pending.items() if columns}, owed)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The indexes that a table is to have."""

    asked: Sequence[DeclaredIndex]
    dropped: bool
    """Whether it had some, and is to have all of them however few rows it holds."""

    def due(self, table: Table) -> list[DueIndex]:
        """Those that are missing or lag too much."""
        return find_due_on_table(self.asked, table, dropped=self.dropped)


def _is_crowded(table: Table) -> bool:
    return table.fragment_count > MIN_FRAGMENTS and bool(_crowd(table))


def _crowd(table: Table) -> frozenset[int]:
    pieces = list_fragments(table)
    return frozenset(pieces[at].id for run in find_crowded_runs([one.rows for one in pieces]) for at in run)


def _maintain_tables(
    coordinator: Coordinator,
    held: HeldLocks,
    tables: Mapping[str, Table],
    plans: Mapping[str, _Plan],
    limit: int,
) -> dict[str, list[DueIndex]]:
    """Compact and index tables, and show them as they are then; returns the indexes that are still due."""
    keys = list(tables)
    done: dict[str, tuple[Table, list[DueIndex]]] = {}

    def one(key: str) -> tuple[Table, list[DueIndex]]:
        return _build_indexes(_compact(drop_broken_indexes(tables[key], held), held), held, plans[key], limit)

    for begin in range(0, len(keys), _TABLES_AT_ONCE):
        some = keys[begin : begin + _TABLES_AT_ONCE]
        done.update(zip(some, run_per_table(one, some), strict=True))
    moved = [
        TableVersion(key, after.version, tables[key].branch, tables[key].count())
        for key, (after, _) in done.items()
        if after.version != tables[key].version
    ]
    if moved:
        held.require()
        repin(coordinator, moved, expected={one.key: tables[one.key].version for one in moved})
    return {key: left for key, (_, left) in done.items()}


def _compact(table: Table, held: HeldLocks) -> Table:
    crowd = _crowd(table)
    if not crowd:
        return table
    plan = plan_compaction(table, only=crowd)
    return table if plan.is_empty else commit_rewrite(rewrite_fragments(plan), held)


def _build_indexes(table: Table, held: HeldLocks, plan: _Plan, limit: int) -> tuple[Table, list[DueIndex]]:
    """Build due indexes, if they read no more rows than allowed under the lock; returns what is still due."""
    due = plan.due(table)
    if not due or max(one.outside for one in due) > limit:
        return table, due
    chosen = plan_round(table, due, most=limit, budget=limit)
    after = chosen.commit_segments(chosen.stage(), held)
    return after, plan.due(after)
