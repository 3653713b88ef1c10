"""Tables that a write creates, and orphan tables of earlier attempts."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.commit.effects import open_rows
from omnigraph.engine.commit.plan import CreateTable
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.layout import split_key, table_path
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.root import Root
from omnigraph.errors import Conflict, StorageFailure
from omnigraph.storage.lance_errors import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import Staged, stage_overwrite
from omnigraph.storage.tables import Table


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
