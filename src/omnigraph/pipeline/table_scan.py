"""Scans of one type at a pinned version, by tasks that open the table themselves; and the types of Spark.

Comparisons of the query language become Lance filters, so that tasks read less. Filters that Spark pushes
down are not used: it applies them to every later use of the same DataFrame, filtered or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import datetime

import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import lance_branch
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.root import Root, new_id, shared_root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, StorageFailure
from omnigraph.graph import Graph
from omnigraph.lang.values import shorten_legibly
from omnigraph.query.expressions.pushdown import compile_filter
from omnigraph.snapshot import Snapshot, pinned_by
from omnigraph.storage.blobs import is_blob
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.fragments import group_by_rows, list_fragments
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table

ROWS_PER_TASK, BLOB_ROWS_PER_TASK = 1_000_000, 10_000
_BATCH_ROWS, _BLOB_BATCH_ROWS = 65_536, 256
_GONE = (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED)

Fragments = tuple[int, ...]


def snapshot_at(
    graph: Graph,
    branch: str | None,
    commit: str | None,
    version: int | None,
    time: datetime | str | None,
) -> Snapshot:
    """Return the current snapshot of a branch, or the past one that is named."""
    if commit is None and version is None and time is None:
        return graph.snapshot(MAIN if branch is None else branch)
    return graph.at(commit=commit, version=version, time=time, branch=branch)


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns of a type at one version; a task calls it with the fragments to read."""

    uri: str
    key: str
    path: str
    owner: str | None
    version: int
    schema: pa.Schema
    """The columns as Spark takes them."""
    blobs: bool
    branch: str
    """The branch that was read."""
    incarnation: Incarnation
    """The incarnation of that branch."""
    where: str | None = None
    work: str = field(default_factory=new_id)
    """An id that its tasks share."""

    def plan_pieces(self) -> list[Fragments]:
        """The fragments of the table in their order, some for each task."""
        most = BLOB_ROWS_PER_TASK if self.blobs else ROWS_PER_TASK
        return [
            tuple(one.id for one in some) for some in group_by_rows(list_fragments(self._open_table()), most)
        ]

    def __call__(self, chosen: Fragments) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments, with the types that they are stored in."""
        try:
            yield from self._open_table().batches(
                self.schema.names,
                where=self.where,
                batch_size=_BLOB_BATCH_ROWS if self.blobs else _BATCH_ROWS,
                blob_bytes=self.blobs,
                fragments=chosen,
            )
        except StorageFailure as failure:
            raise self._explain_failure(failure) from failure

    def _open_table(self) -> Table:
        root = shared_root(self.uri, self.work)
        try:
            table = root.tables.open(root.layout.table(self.path), self.version, branch=self.owner)
            # Checked last: if the incarnation is unchanged now, it was so when the table was opened.
            if self.owner is None or self._read_incarnation(root) == self.incarnation:
                return table
        except StorageFailure as failure:
            raise self._explain_failure(failure) from failure
        raise HistoricalVersionReclaimed(self.key, self.version)

    def _read_incarnation(self, root: Root) -> Incarnation | None:
        return root.forks.identity(root.layout.manifest, lance_branch(self.branch))

    def _explain_failure(self, failure: StorageFailure) -> Exception:
        return HistoricalVersionReclaimed(self.key, self.version) if failure.kind in _GONE else failure


def plan_scan(
    uri: str,
    snapshot: Snapshot,
    key: str,
    columns: Sequence[str] | None = None,
    where: str | Sequence[str] | None = None,
) -> Scan:
    """Return a scan of all columns but Blobs, or of those named, with all rows or those that pass `where`."""
    entry = snapshot.tables.get(key)
    if entry is None:
        raise _no_type(snapshot, key)
    owner = None if entry.branch == MAIN else entry.branch
    opened, pinned = pinned_by(snapshot)
    stored = open_table(opened, pinned, key).schema
    wanted = _choose_columns(stored, key, columns)
    schema = to_spark_types(pa.schema([stored.field(name) for name in wanted]))
    blobs = any(is_blob(stored.field(name)) for name in wanted)
    passing = None if where is None else compile_filter(snapshot.schema, key, where)
    return Scan(
        uri, key, entry.path, owner, entry.version, schema, blobs, pinned.branch, pinned.incarnation, passing
    )


def resolve_table(snapshot: Snapshot, type_name: str) -> str:
    """Return the table of a type by its name, or by `node:Name` or `edge:Name` if both kinds have one."""
    nodes, edges = table_key("node", type_name), table_key("edge", type_name)
    found = [key for key in (type_name, nodes, edges) if key in snapshot.tables]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(f"'{type_name}' is a node type and an edge type", remedy=f"name {nodes} or {edges}")
    known = ", ".join(key.partition(":")[2] for key in snapshot.tables)
    raise BadRequest(f"there is no type '{type_name}' in snapshot '{snapshot.id}'", remedy=f"it has: {known}")


def _no_type(snapshot: Snapshot, key: str) -> BadRequest:
    kind, _, name = key.partition(":")
    known = [one.partition(":")[2] for one in snapshot.tables if one.startswith(f"{kind}:")]
    remedy = f"it has: {', '.join(known)}" if known else None
    return BadRequest(
        f"there is no {kind} type '{shorten_legibly(name)}' in snapshot '{snapshot.id}'", remedy=remedy
    )


def _choose_columns(stored: pa.Schema, key: str, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [column.name for column in stored if not is_blob(column)]
    for name in columns:
        if name not in stored.names:
            raise BadRequest(
                f"'{key.partition(':')[2]}' has no column '{shorten_legibly(name)}'",
                remedy=f"it has: {', '.join(stored.names)}",
            )
    if not columns:
        raise BadRequest("a DataFrame needs at least one column", remedy="name one, or leave `columns` out")
    return list(columns)


# --- types ---------------------------------------------------------------------------------------


def to_spark_types(schema: pa.Schema) -> pa.Schema:
    """Return the columns in Spark types that hold every value: U32 as a long, U64 as a decimal."""
    return pa.schema(
        [pa.field(column.name, _to_spark_type(column.type), nullable=column.nullable) for column in schema]
    )


def _to_spark_type(found: pa.DataType) -> pa.DataType:
    if isinstance(found, pa.BaseExtensionType):
        return pa.binary()
    if kinds.is_uint64(found):
        return pa.decimal128(20, 0)
    if kinds.is_uint32(found):
        return pa.int64()
    if kinds.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    if kinds.is_fixed_size_list(found) or kinds.is_list(found):
        return pa.list_(_to_spark_type(found.value_type))
    return found
