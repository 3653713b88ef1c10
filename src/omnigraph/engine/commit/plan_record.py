"""The record of a plan: what recovery needs before the first effect, and after the last."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from omnigraph.engine.commit.effects import look_up_rows, moving_tables, new_table_path, stage_step, steps_of
from omnigraph.engine.commit.gates import is_first_touch
from omnigraph.engine.commit.plan import AdoptVersion, CommitPlan, CreateTable, DropTable, Effect
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
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.concurrency import run_per_table
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.staging import BINDING, Staged, new_uuid
from omnigraph.storage.tables import Table
from omnigraph.storage.upsert import UpsertPlan

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
        authority=Authority(
            branch_identifier=base.identity, graph_head=base.head, schema_ir_hash=base.schema_hash
        ),
        schema_target=SchemaTarget(schema_ir_hash=plan.schema.hash) if plan.schema else None,
    )


def complete_record(record: Sidecar, plan: CommitPlan, tables: Mapping[str, Table]) -> Sidecar:
    """Return the record with the versions that the tables have reached."""
    reached = [
        Update(table_key=key, table_version=table.version, table_branch=table.branch, row_count=table.count())
        for key, table in tables.items()
    ]
    adopted = [
        Update(table_key=key, table_version=effect.version, row_count=effect.row_count)
        for key, effect in plan.effects.items()
        if isinstance(effect, AdoptVersion)
    ]
    pins = tuple(
        msgspec.structs.replace(pin, confirmed_version=tables[pin.table_key].version) for pin in record.tables
    )
    return msgspec.structs.replace(record, tables=pins, updates=(*reached, *adopted))


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
