"""Tables as a snapshot pins them, and what it means when one is not there any more."""

from __future__ import annotations

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import (
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
    try:
        return graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)
    except StorageFailure as failure:
        raise explained(graph, snapshot, key, failure) from failure


def explained(graph: OpenGraph, snapshot: Snapshot, key: str, failure: StorageFailure) -> OmnigraphError:
    """What a failed read of a pinned table means: cleaned up, or as bad as it looks."""
    if failure.kind not in _GONE or _is_pinned_now(graph, snapshot, key):
        return failure
    return HistoricalVersionReclaimed(key, snapshot.entries[key].version)


def _is_pinned_now(graph: OpenGraph, snapshot: Snapshot, key: str) -> bool:
    try:
        current = graph.load(snapshot.branch).state.entries().get(key)
    except BranchNotFound:
        return False
    return current is not None and (current.version, current.owner) == (
        snapshot.entries[key].version,
        snapshot.entries[key].owner,
    )
