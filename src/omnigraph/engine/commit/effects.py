"""Stage the effects of a plan: which tables get new versions, in which steps, with which files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.commit.plan import (
    AdoptVersion,
    AppendRows,
    BuildIndexes,
    CreateTable,
    DeleteRows,
    DropTable,
    Effect,
    ReplaceRows,
    Rows,
    RowSteps,
    UpsertRows,
)
from omnigraph.engine.graph.layout import split_key, table_path
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.upkeep.table_rewrite import RewriteTable
from omnigraph.errors import Conflict, StorageFailure
from omnigraph.storage.indexes import stage_indexes
from omnigraph.storage.lance_errors import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.pieces import Pieces, stage_pieces, upsert_pieces
from omnigraph.storage.staging import Counts, Staged, stage_append, stage_delete, stage_overwrite
from omnigraph.storage.tables import Table
from omnigraph.storage.upsert import UpsertPlan, plan_upsert, stage_upsert

Step = AppendRows | UpsertRows | DeleteRows | ReplaceRows | BuildIndexes
"""A change of one table that can be staged, and makes one version; see `stage_step` for when it makes two."""


def steps_of(effect: Effect) -> tuple[Step, ...]:
    """Return the steps of an effect that can be staged, in order; none for effects without staged files."""
    match effect:
        case RowSteps(steps=steps):
            return steps
        case RewriteTable() | AdoptVersion() | CreateTable() | DropTable():
            return ()
        case _:
            return (effect,)


def moving_tables(effects: Mapping[str, Effect]) -> list[str]:
    """Return the existing tables that get new versions."""
    return [
        key
        for key, effect in effects.items()
        if not isinstance(effect, AdoptVersion | CreateTable | DropTable)
    ]


def stage_step(objects: ObjectStore, table: Table, step: Step, *, allow_two_versions: bool = False) -> Staged:
    """Stage one change: write its files, or use those already written. The table does not move.

    `allow_two_versions` allows a change to take two versions of the table where that is faster.
    """
    match step:
        case AppendRows(rows=Pieces() as pieces) | ReplaceRows(rows=Pieces() as pieces):
            return stage_pieces(objects, table, pieces, replace=isinstance(step, ReplaceRows))
        case UpsertRows(rows=Pieces() as pieces):
            return upsert_pieces(objects, table, pieces)
        case AppendRows(rows=rows):
            return stage_append(table, rows)
        case UpsertRows(rows=rows, replaced=replaced):
            return stage_upsert(table, rows, replaced=replaced, allow_two_versions=allow_two_versions)
        case DeleteRows(ids=ids):
            return stage_delete(table, ids)
        case ReplaceRows(rows=rows):
            return stage_overwrite(table, open_rows(rows))
        case BuildIndexes(indexes=indexes):
            return stage_indexes(table, indexes)


def look_up_rows(table: Callable[[], Table], step: Step) -> UpsertPlan | None:
    """Look up the rows that a change replaces, before the table is forked; None when it replaces none."""
    match step:
        case UpsertRows(rows=pa.Table() as rows, replaced=replaced):
            return plan_upsert(table(), rows, replaced=replaced, allow_two_versions=True)
        case _:
            return None


def open_rows(rows: Rows) -> pa.Table | pa.RecordBatchReader:
    """Return the rows to write; starts a stream."""
    return rows if isinstance(rows, pa.Table) else rows()


def sum_counts(counts: Sequence[Counts]) -> Counts:
    """Add up the counts of several changes of a table."""
    return Counts(
        _sum([one.inserted for one in counts]),
        _sum([one.updated for one in counts]),
        _sum([one.deleted for one in counts]),
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None


def new_table_path(key: str) -> str:
    """The folder of a new table, relative to the root."""
    return table_path(*split_key(key))


def create_table(
    root: Root, held: HeldLocks, key: str, effect: CreateTable, state: ManifestState
) -> Table | None:
    """Create a table; None when one exists at its location that must not be removed.

    An orphan of an earlier attempt is removed first. Not in a bucket: a writer that lost its lease unnoticed
    could remove the table of a writer that continued there.
    """
    path = new_table_path(key)
    _refuse_taken(key, path, state)
    place = root.layout.table(path)
    held.require()
    if root.layout.root.is_local:
        root.objects.delete_prefix(place)
    rows = open_rows(effect.rows)
    try:
        return root.tables.create(place, rows.schema, primary_key=ID, rows=rows)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.EXISTS or root.layout.root.is_local:
            raise
        return None


def stage_over_leftover(
    root: Root, held: HeldLocks, key: str, effect: CreateTable, now: Callable[[], ManifestState]
) -> Staged:
    """Stage the rows of a new table over an orphan of an earlier attempt.

    The manifest is checked only once the table is open: if another writer continues there later, the table
    moves, and what is staged here cannot be committed.
    """
    place = root.layout.table(new_table_path(key))
    left = root.tables.tip(place)
    _refuse_taken(key, new_table_path(key), now())
    held.require()
    return stage_overwrite(left, open_rows(effect.rows))


def remove_orphan_table(root: Root, held: HeldLocks, key: str, path: str, state: ManifestState) -> None:
    """Remove an orphan table; in a bucket it stays, to be overwritten when needed."""
    if not root.layout.root.is_local:
        return
    if key not in state.locations and path not in state.locations.values():
        held.require()
        root.objects.delete_prefix(root.layout.table(path))


def _refuse_taken(key: str, path: str, state: ManifestState) -> None:
    """Raise `Conflict` for a folder that the manifest knows: its past must stay readable."""
    for known, where in state.locations.items():
        if known == key or where == path:
            raise Conflict(
                f"the place of table '{key}' is taken: the graph has, or had, '{known}' there",
                remedy="choose another name for the type",
            )
