"""Open and read the tables of a snapshot, and explain versions that were cleaned up."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import (
    BadRequest,
    BranchNotFound,
    HistoricalVersionReclaimed,
    NotFound,
    OmnigraphError,
    StorageFailure,
)
from omnigraph.storage.blobs import is_blob
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.tables import Table

_GONE = (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED)
_LARGEST_LIMIT = 2**63 - 1
"""Lance counts rows in 64 bits."""


def open_table(graph: OpenGraph, snapshot: Snapshot, key: str) -> Table:
    """Open a table at the version a snapshot pins."""
    entry = snapshot.entries.get(key)
    if entry is None:
        raise NotFound(f"snapshot '{snapshot.id}' has no table '{key}'")
    place = graph.root.layout.table(entry.path)
    try:
        table = graph.root.tables.open(place, entry.version, branch=entry.owner)
    except StorageFailure as failure:
        raise explain_failure(graph, snapshot, key, failure) from failure
    if not graph.is_from_incarnation(snapshot, table):
        raise HistoricalVersionReclaimed(key, entry.version)
    return table


def read_rows(
    graph: OpenGraph, snapshot: Snapshot, type_name: str, columns: Sequence[str] | None, limit: int | None
) -> pa.Table:
    """Read the rows of a type at a snapshot, without its Blobs."""
    key = find_key(snapshot, type_name)
    table = open_table(graph, snapshot, key)
    readable = [field.name for field in table.schema if not is_blob(field)]
    wanted = readable if columns is None else list(columns)
    for name in wanted:
        if name not in readable:
            raise BadRequest(f"'{type_name}' has no column '{name}'", remedy=f"it has: {', '.join(readable)}")
    try:
        return table.scan(wanted, limit=None if limit is None else min(limit, _LARGEST_LIMIT))
    except StorageFailure as failure:
        raise explain_failure(graph, snapshot, key, failure) from failure


def find_key(snapshot: Snapshot, type_name: str) -> str:
    """Return the table key of a type that is named alone or by its table key."""
    for key in (type_name, table_key("node", type_name), table_key("edge", type_name)):
        if key in snapshot.entries:
            return key
    known = ", ".join(key.partition(":")[2] for key in snapshot.entries)
    raise BadRequest(f"there is no type '{type_name}' in snapshot '{snapshot.id}'", remedy=f"it has: {known}")


def explain_failure(
    graph: OpenGraph, snapshot: Snapshot, key: str, failure: StorageFailure
) -> OmnigraphError:
    """Return the error for a failed read of a pinned table: cleaned up, or the failure itself."""
    if failure.kind not in _GONE or _is_pinned_now(graph, snapshot, key):
        return failure
    return HistoricalVersionReclaimed(key, snapshot.entries[key].version)


def _is_pinned_now(graph: OpenGraph, snapshot: Snapshot, key: str) -> bool:
    try:
        loaded = graph.load(snapshot.branch)
    except BranchNotFound:
        return False
    current = loaded.state.entries().get(key) if loaded.identity == snapshot.incarnation else None
    return current is not None and (current.version, current.owner) == (
        snapshot.entries[key].version,
        snapshot.entries[key].owner,
    )
