"""Records of removals: a schema change that drops data removes old table versions, or whole tables.

The record is a file beside the records of writes. It is stored before the change is published and deleted
after the last version is gone. When a process dies in between, the next holder of main's lock finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.root import Root
from omnigraph.errors import CorruptGraph
from omnigraph.storage.location import Location

SUFFIX = ".removal"


class TableRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose versions go, up to the one that the change found."""

    table_key: str
    table_path: str
    """Relative to the root."""
    last_version: int


class DataRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """The removals to do once the commit of a schema change is visible."""

    operation_id: str
    graph_commit_id: str
    tables: tuple[TableRemoval, ...]


def remove_all_versions(entry: TableEntry) -> TableRemoval:
    """Return the removal of all versions of a table so far."""
    return TableRemoval(table_key=entry.key, table_path=entry.path, last_version=entry.version)


# --- files ---------------------------------------------------------------------------------------


def store_removal(root: Root, removal: DataRemoval) -> None:
    """Store the intent, before the change is published."""
    text = msgspec.json.format(msgspec.json.encode(removal), indent=2).decode()
    root.objects.write_text(_place(root, removal.operation_id), text)


def delete_removal(root: Root, operation_id: str) -> None:
    """Delete the intent of a change that was undone, or whose removal is complete; absent is fine."""
    root.objects.delete(_place(root, operation_id))


def read_removal(root: Root, operation_id: str) -> DataRemoval | None:
    """The intent of a change; None when it is gone."""
    at = _place(root, operation_id)
    text = root.objects.read_text_if_exists(at)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=DataRemoval)
    except msgspec.DecodeError as error:
        raise CorruptGraph(f"the record of a removal cannot be read: {error}", object_id=at.name) from error


def pending_removals(names: Iterable[str]) -> list[str]:
    """The schema changes with a removal to finish, among the names of files in `__recovery/`."""
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def _place(root: Root, operation_id: str) -> Location:
    return root.layout.recovery / f"{operation_id}{SUFFIX}"
