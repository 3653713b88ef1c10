"""The effects of a plan: which tables get new versions, in which steps, with which files; and their record.

The record is what recovery needs before the first effect, and after the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa

from omnigraph.engine.commit.plan import (
    AdoptVersion,
    AppendRows,
    BuildIndexes,
    CommitPlan,
    CreateTable,
    DeleteRows,
    DropTable,
    Effect,
    ReplaceRows,
    Rows,
    RowSteps,
    UpsertRows,
    is_first_touch,
)
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.sidecar import (
    Authority,
    FirstTouch,
    LineageIntent,
    OwnerMark,
    Pin,
    Registration,
    SchemaTarget,
    Sidecar,
    Tombstone,
    Update,
)
from omnigraph.engine.graph.layout import split_key, table_path
from omnigraph.engine.graph.manifest import MAIN, ManifestState
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.upkeep.table_rewrite import RewriteTable
from omnigraph.errors import Conflict, StorageFailure
from omnigraph.storage.concurrency import run_per_table
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.indexes import stage_indexes
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.pieces import Pieces, stage_pieces, upsert_pieces
from omnigraph.storage.staging import (
    BINDING,
    Counts,
    Staged,
    new_uuid,
    stage_append,
    stage_delete,
    stage_overwrite,
)
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


def count_rows(plan: CommitPlan) -> float:
    """Return how many rows the steps of a plan write or delete; infinity where they are not in memory."""
    return sum(_count_step(step) for effect in plan.effects.values() for step in steps_of(effect))


def _count_step(step: Step) -> float:
    match step:
        case DeleteRows(ids=ids):
            return float(len(ids))
        case AppendRows(rows=rows) | UpsertRows(rows=rows) if isinstance(rows, pa.Table):
            return int(rows.num_rows)
        case _:
            return math.inf


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


PreparedStep: TypeAlias = Staged | UpsertPlan
"""The first change of a table: staged, or with the rows it replaces looked up."""


def prepare(graph: OpenGraph, plan: CommitPlan) -> dict[str, PreparedStep]:
    """Stage the first change of all tables the branch owns, in parallel; forks have to wait for the lock.

    For a table to be forked, the rows are looked up in the table it inherits.
    """
    steps = {key: all_steps[0] for key, effect in plan.effects.items() if (all_steps := steps_of(effect))}

    def one(key: str) -> PreparedStep | None:
        entry = plan.base.entries[key]
        place = graph.root.layout.table(entry.path)
        table = partial(graph.root.tables.open, place, entry.version, branch=entry.owner)
        if is_first_touch(plan, entry):
            return look_up_rows(table, steps[key])
        return stage_step(graph.root.objects, table(), steps[key], allow_two_versions=True)

    found = run_per_table(one, list(steps))
    return {key: ready for key, ready in zip(steps, found, strict=True) if ready is not None}


def build_record(root: Root, plan: CommitPlan, ready: Mapping[str, PreparedStep]) -> Sidecar:
    """Return the record to store before the first effect: the intent, and its owner."""
    base, owner, now = plan.base, THIS_PROCESS.owner, root.clock()
    return Sidecar(
        schema_version=sidecar.CURRENT,
        operation_id=plan.operation_id,
        started_at=str(now),
        writer_kind=plan.kind,
        branch=None if plan.branch == MAIN else plan.branch,
        actor_id=plan.actor,
        tables=tuple(_pin(root, plan, key, ready.get(key)) for key in moving_tables(plan.effects)),
        additional_registrations=tuple(
            Registration(table_key=key, table_path=new_table_path(key)) for key in _keys_of(CreateTable, plan)
        ),
        tombstones=tuple(
            Tombstone(table_key=key, tombstone_version=base.entries[key].version + 1)
            for key in _keys_of(DropTable, plan)
        ),
        phase="Armed" if plan.is_confirmed else None,
        lineage=LineageIntent(
            graph_commit_id=plan.commit_id,
            created_at=now,
            merged_parent_commit_id=plan.merged_parent,
            merged_commits=plan.merged_commits,
            message=plan.message,
            operation=plan.operation,
        ),
        merge_source_commit_id=plan.merged_parent,
        rollback_commit_id=plan.rollback_id,
        restore_commit_id=plan.restore_id,
        owner=OwnerMark(host=owner.host, pid=owner.pid, token=owner.token),
        lance_version=BINDING,
        authority=authority_of(plan),
        schema_target=SchemaTarget(schema_ir_hash=plan.schema.hash) if plan.schema else None,
    )


def authority_of(plan: CommitPlan) -> Authority:
    """Return what a plan was prepared on, as its record says it."""
    base = plan.base
    return Authority(branch_identifier=base.identity, graph_head=base.head, schema_ir_hash=base.schema_hash)


def complete_record(record: Sidecar, plan: CommitPlan, tables: Mapping[str, Table]) -> Sidecar:
    """Return the record with the versions that the tables have reached."""
    reached = [
        Update(table_key=key, table_version=table.version, table_branch=table.branch, row_count=table.count())
        for key, table in sorted(tables.items())
    ]
    return msgspec.structs.replace(
        record,
        tables=_confirm_pins(record, {key: table.version for key, table in tables.items()}),
        updates=(*reached, *_adopted(plan)),
    )


def foresee_completion(record: Sidecar, plan: CommitPlan, ready: Mapping[str, PreparedStep]) -> Sidecar:
    """Return the record as it will be confirmed, or the record itself where that is not known yet.

    Recovery publishes a confirmed record only if each table is at the version that the record names, with
    the marks of this write on all versions since its base. So where these and the counts of rows are known
    ahead, the tables themselves prove that the write is complete, and no later confirmation is needed.
    """
    versions = {pin.table_key: pin for pin in record.tables}
    rows = {key: _rows_after(plan, key, ready.get(key)) for key in versions}
    if plan.kind not in _FORESEEN or not rows or plan.schema is not None or None in rows.values():
        return record
    if any(isinstance(effect, CreateTable | DropTable) for effect in plan.effects.values()):
        return record
    reached = [
        Update(
            table_key=key,
            table_version=pin.post_commit_pin,
            table_branch=pin.table_branch,
            row_count=rows[key],
        )
        for key, pin in sorted(versions.items())
    ]
    return msgspec.structs.replace(
        record,
        tables=_confirm_pins(record, {key: pin.post_commit_pin for key, pin in versions.items()}),
        updates=(*reached, *_adopted(plan)),
        phase=sidecar.CONFIRMED,
    )


_FORESEEN = frozenset({"Mutation", "Load", "BranchMerge"})


def _rows_after(plan: CommitPlan, key: str, ready: PreparedStep | None) -> int | None:
    """Return how many rows a table will have; None where only its commit will tell."""
    before, steps = plan.base.entries[key].row_count, steps_of(plan.effects[key])
    if before is None or len(steps) != 1:
        return None
    match ready, steps[0]:
        case Staged(counts=Counts(inserted=int() as inserted, deleted=int() as deleted)), _:
            return before + inserted - deleted
        case UpsertPlan(rows=rows, matched=matched), _:
            return before + int(rows.num_rows) - len(matched)
        case None, AppendRows(rows=rows) if isinstance(rows, pa.Table):
            return before + int(rows.num_rows)
        case _:
            return None


def _confirm_pins(record: Sidecar, versions: Mapping[str, int]) -> tuple[Pin, ...]:
    return tuple(
        msgspec.structs.replace(pin, confirmed_version=versions[pin.table_key]) for pin in record.tables
    )


def _adopted(plan: CommitPlan) -> list[Update]:
    return [
        Update(table_key=key, table_version=effect.version, row_count=effect.row_count)
        for key, effect in plan.effects.items()
        if isinstance(effect, AdoptVersion)
    ]


def _keys_of(kind: type[Effect], plan: CommitPlan) -> list[str]:
    return [key for key, effect in plan.effects.items() if isinstance(effect, kind)]


def _pin(root: Root, plan: CommitPlan, key: str, ready: PreparedStep | None) -> Pin:
    """Return the pin of one table: its version, and the mark of each version the write adds."""
    entry, steps = plan.base.entries[key], steps_of(plan.effects[key])
    touch, marks = None, [new_uuid() for _ in steps]
    if is_first_touch(plan, entry):
        touch = FirstTouch(source_branch=entry.owner, source_version=entry.version)
    if isinstance(ready, Staged):
        marks[0] = ready.uuid
    if ready is not None and ready.takes_two_versions:
        marks.insert(1, new_uuid())
    return Pin(
        table_key=key,
        table_path=root.layout.table(entry.path).uri,
        expected_version=entry.version,
        post_commit_pin=entry.version + max(1, len(marks)),
        table_branch=None if plan.branch == MAIN else plan.branch,
        transaction_uuids=tuple(marks),
        first_touch=touch,
    )
