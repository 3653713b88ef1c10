"""The audit of recoveries: one row for each interrupted write that was recovered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.damage import is_damage
from omnigraph.engine.graph.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.tables import Table

RecoveryKind = Literal["RolledForward", "RolledBack", "OrphanedBranchDiscarded"]

KEY = "operation_id"
SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What recovery did to one table."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One recovery."""

    operation_id: str
    kind: RecoveryKind
    commit_id: str
    writer_kind: str
    actor: str | None
    outcomes: tuple[TableOutcome, ...]
    created_at: int


def record_recovery(root: Root, row: AuditRow) -> None:
    """Add a recovery to the audit; idempotent for each operation."""
    failpoints.reach(failpoints.RECOVERY_RECORD_AUDIT)
    try:
        _append(root, row)
    except StorageFailure as failure:
        if not is_damage(failure):
            raise
        raise StorageFailure(
            f"the audit of recoveries cannot be read: {failure.message}",
            kind=failure.kind,
            uri=failure.uri,
            remedy=f"move '{root.layout.audit.name}' out of the graph: a new one is begun",
        ) from failure


def _append(root: Root, row: AuditRow) -> None:
    for _ in range(_ATTEMPTS):
        table = _open(root)
        if table.count(f"{KEY} = '{row.operation_id}'"):
            return
        try:
            merge_rows(table, _rows([row]), KEY).table.make_durable(table)
        except StorageFailure as failure:
            if failure.kind != TableFailureKind.CONTENTION:
                raise
        else:
            return
    raise StorageFailure(
        "the audit of recoveries is too busy", kind=TableFailureKind.CONTENTION, uri=root.uri
    )


def read_audit(root: Root) -> list[AuditRow]:
    """Every recovery of a graph, oldest first."""
    try:
        table = root.tables.tip(root.layout.audit)
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.NOT_FOUND:
            return []
        raise
    rows = table.scan().sort_by("created_at")
    moments = rows.column("created_at").cast(pa.int64()).to_pylist()
    return [
        AuditRow(
            operation_id=row[KEY],
            kind=row["recovery_kind"],
            commit_id=row["graph_commit_id"],
            writer_kind=row["sidecar_writer_kind"],
            actor=row["recovery_for_actor"],
            outcomes=tuple(TableOutcome(**one) for one in json.loads(row["per_table_outcomes_json"])),
            created_at=moment,
        )
        for row, moment in zip(rows.drop_columns(["created_at"]).to_pylist(), moments, strict=True)
    ]


def _open(root: Root) -> Table:
    try:
        return root.tables.tip(root.layout.audit)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
    try:
        return root.tables.create(root.layout.audit, SCHEMA, primary_key=KEY)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.EXISTS:
            raise
        return root.tables.tip(root.layout.audit)


def _rows(rows: Sequence[AuditRow]) -> pa.Table:
    values = [
        {
            "graph_commit_id": row.commit_id,
            "recovery_kind": row.kind,
            "recovery_for_actor": row.actor,
            KEY: row.operation_id,
            "sidecar_writer_kind": row.writer_kind,
            "per_table_outcomes_json": json.dumps(
                [
                    {"table_key": o.table_key, "from_version": o.from_version, "to_version": o.to_version}
                    for o in row.outcomes
                ]
            ),
            "created_at": row.created_at,
        }
        for row in rows
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)
