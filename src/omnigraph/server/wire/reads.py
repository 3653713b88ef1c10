"""Queries, their results, and snapshots."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.query.result import Result
from omnigraph.server.wire.base import Sparse, Wire, encode
from omnigraph.server.wire.commits import CommitOutput
from omnigraph.server.wire.json_rows import encode_rows
from omnigraph.snapshot import Snapshot, TableInfo


class QueryRequest(Wire, frozen=True, kw_only=True):
    """A read query and the moment it is about.

    `commit`, `version`, `time`, `max_rows` and `timeout` (seconds) are those of the library's `Graph.query`.
    """

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    commit: str | None = None
    version: int | None = None
    time: str | None = None
    max_rows: int | None = None
    timeout: float | None = None


class RowsRequest(Wire, frozen=True, kw_only=True):
    """A type, the columns of it, and the moment it is about; all columns and rows if none are named."""

    type: str
    columns: list[str] | None = None
    limit: int | None = None
    branch: str | None = None
    commit: str | None = None
    version: int | None = None
    time: str | None = None


class ReadRequest(Wire, frozen=True, kw_only=True):
    """A read query under its former names."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None


class ReadTargetOutput(Wire, frozen=True, kw_only=True):
    """What was read: a branch as it is, or a snapshot."""

    branch: str | None
    snapshot: str | None


class ReadOutput(Sparse, frozen=True, kw_only=True):
    """The rows of a query; `graph_commit_id` is the newest commit they show."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: list[str] = msgspec.field(default_factory=list)
    rows: list[dict[str, Any]] = msgspec.field(default_factory=list)
    graph_commit_id: str | None = None


class _Head(Wire, frozen=True, kw_only=True):
    """The members of `ReadOutput` before its rows, in the order that `/read` promises."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: list[str] | msgspec.UnsetType


def read_output(result: Result, *, with_commit: bool = True) -> list[bytes | memoryview]:
    """Return the body of a result as JSON, in pieces; `rows` is there even when it is empty."""
    head = _Head(
        query_name=result.query_name,
        target=ReadTargetOutput(branch=result.branch, snapshot=result.snapshot),
        row_count=len(result),
        columns=result.columns or msgspec.UNSET,
    )
    commit = result.graph_commit_id if with_commit else None
    end = b"}" if commit is None else b',"graph_commit_id":%b}' % encode(commit)
    return [encode(head)[:-1] + b',"rows":', *encode_rows(result), end]


class SnapshotDataset(Wire, frozen=True, kw_only=True):
    """The table of a type."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotTable(Wire, frozen=True, kw_only=True):
    """The table of a type, under its former names."""

    table_key: str
    table_path: str
    table_version: int
    table_branch: str | None
    row_count: int


class SnapshotOutput(Wire, frozen=True, kw_only=True):
    """The version and size of every type at one moment."""

    graph_branch: str
    branch: str
    graph_manifest_version: int
    manifest_version: int
    graph_commit_id: str | None
    internal_schema_version: int
    commit: CommitOutput | None
    datasets: list[SnapshotDataset]
    tables: list[SnapshotTable]


def snapshot_output(found: Snapshot, format_version: int) -> SnapshotOutput:
    """Return the body of a snapshot, by table key."""
    tables = sorted(found.tables.items())
    return SnapshotOutput(
        graph_branch=found.branch,
        branch=found.branch,
        graph_manifest_version=found.version,
        manifest_version=found.version,
        graph_commit_id=found.commit.id if found.commit else None,
        internal_schema_version=format_version,
        commit=CommitOutput.of_optional(found.commit),
        datasets=[_dataset(key, table) for key, table in tables],
        tables=[_table(key, table) for key, table in tables],
    )


def _dataset(key: str, table: TableInfo) -> SnapshotDataset:
    kind, _, name = key.partition(":")
    return SnapshotDataset(
        entity_kind=kind,
        type_name=name,
        dataset_path=table.path,
        published_dataset_version=table.version,
        native_dataset_branch=_native_branch(table),
        entity_count=table.rows or 0,
    )


def _table(key: str, table: TableInfo) -> SnapshotTable:
    return SnapshotTable(
        table_key=key,
        table_path=table.path,
        table_version=table.version,
        table_branch=_native_branch(table),
        row_count=table.rows or 0,
    )


def _native_branch(table: TableInfo) -> str | None:
    return None if table.branch == "main" else table.branch
