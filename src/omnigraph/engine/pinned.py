"""Tables as a snapshot pins them, and what it means when one is not there any more."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.layout import table_key
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.blobs import is_blob
from omnigraph.errors import (
    BadRequest,
    BranchNotFound,
    HistoricalVersionReclaimed,
    NotFound,
    OmnigraphError,
    StorageFailure,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.tables import Table

_GONE = (Trouble.NOT_FOUND, Trouble.RECLAIMED)


def open_table(graph: OpenGraph, snapshot: Snapshot, key: str) -> Table:
    """A table at the version a snapshot pins."""
    entry = snapshot.entries.get(key)
    if entry is None:
        raise NotFound(f"snapshot '{snapshot.id}' has no table '{key}'")
    place = graph.root.layout.table(entry.path)
    try:
        table = graph.root.tables.open(place, entry.version, branch=entry.owner)
    except StorageFailure as failure:
        raise explained(graph, snapshot, key, failure) from failure
    if not graph.shows(snapshot, table):
        raise HistoricalVersionReclaimed(key, entry.version)
    return table


def read_rows(
    graph: OpenGraph, snapshot: Snapshot, type_name: str, columns: Sequence[str] | None, limit: int | None
) -> pa.Table:
    """The rows of a type at a snapshot, without its Blobs."""
    key = _key(snapshot, type_name)
    table = open_table(graph, snapshot, key)
    readable = [field.name for field in table.schema if not is_blob(field)]
    wanted = readable if columns is None else list(columns)
    for name in wanted:
        if name not in readable:
            raise BadRequest(f"'{type_name}' has no column '{name}'", remedy=f"it has: {', '.join(readable)}")
    try:
        return table.scan(wanted, limit=limit)
    except StorageFailure as failure:
        raise explained(graph, snapshot, key, failure) from failure


def _key(snapshot: Snapshot, type_name: str) -> str:
    for key in (type_name, table_key("node", type_name), table_key("edge", type_name)):
        if key in snapshot.entries:
            return key
    known = ", ".join(key.partition(":")[2] for key in snapshot.entries)
    raise BadRequest(f"there is no type '{type_name}' in snapshot '{snapshot.id}'", remedy=f"it has: {known}")


def explained(graph: OpenGraph, snapshot: Snapshot, key: str, failure: StorageFailure) -> OmnigraphError:
    """What a failed read of a pinned table means: cleaned up, or as bad as it looks."""
    if failure.kind not in _GONE or _is_pinned_now(graph, snapshot, key):
        return failure
    return HistoricalVersionReclaimed(key, snapshot.entries[key].version)


def _is_pinned_now(graph: OpenGraph, snapshot: Snapshot, key: str) -> bool:
    try:
        loaded = graph.load(snapshot.branch)
    except BranchNotFound:
        return False
    current = loaded.state.entries().get(key) if loaded.identity == snapshot.life else None
    return current is not None and (current.version, current.owner) == (
        snapshot.entries[key].version,
        snapshot.entries[key].owner,
    )
