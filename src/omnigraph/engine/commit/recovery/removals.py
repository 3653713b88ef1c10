"""Finish the removals of schema changes.

Only versions from before the change are removed, so a late removal takes nothing that was written since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from omnigraph import failpoints
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.graph.layout import LOCK_BRANCH, fnv1a64
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.tags import kept_folder, list_kept_commits
from omnigraph.errors import CorruptGraph, OmnigraphError, StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import read_transaction
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import collect_with_files

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


def fork_points(root: Root, at: Location, owner: str | None) -> set[int]:
    """The versions at which forks begin: on the side they were made from, and on their own."""
    forks = root.forks.list(at)
    found = {fork.parent_version for fork in forks.values() if fork.parent == owner}
    if owner in forks:
        found.add(forks[owner].parent_version)
    return found


def versions_since_last_change(table: Table, stored: set[int]) -> set[int]:
    """The versions from the newest change of rows on.

    In a bucket a writer may sleep through the loss of its lease. Lance refuses what it writes then as long as
    a change that it runs into is stored; compactions and new indexes let it pass.
    """
    version = table.version
    while read_transaction(table, version).is_maintenance and version - 1 in stored:
        version -= 1
    return {one for one in stored if one >= version}


_log = logging.getLogger(__name__)


def finish_removals(graph: OpenGraph, held: HeldLocks, operation_ids: Sequence[str]) -> None:
    """Do the pending removals of schema changes; `held` is main's lock.

    A failure is logged and keeps the record, so that the next writer tries again: the schema is changed
    already, and rows that cannot be deleted must not block writers.
    """
    for operation_id in operation_ids:
        try:
            _finish(graph, held, operation_id)
        except OmnigraphError as error:
            _log.warning("the removal of data by schema change %s is still pending: %s", operation_id, error)


def _finish(graph: OpenGraph, held: HeldLocks, operation_id: str) -> None:
    failpoints.reach(failpoints.SCHEMA_APPLY_BEFORE_REMOVAL)
    removal = read_removal(graph.root, operation_id)
    if removal is None:
        return
    if removal.graph_commit_id in graph.load(MAIN).state.commits:
        shown = _shown_entries(graph)
        for table in removal.tables:
            held.require()
            _remove(graph.root, held, table, [entry for entry in shown if entry.path == table.table_path])
        # What deleted branches held from before the change: no merge starts there any more.
        graph.root.objects.delete_prefix(graph.root.layout.bases, held)
        _remove_kept(graph.root, held, removal.tables)
        graph.root.tables.forget()
    elif sidecar.read(graph.root, operation_id) is not None:
        return  # the change may still be published
    held.require()
    delete_removal(graph.root, operation_id)


def _remove_kept(root: Root, held: HeldLocks, tables: Iterable[TableRemoval]) -> None:
    """Remove what tags keep of these tables, for commits of deleted branches."""
    for commit_id in sorted(list_kept_commits(root)):
        for table in tables:
            root.objects.delete_prefix(kept_folder(root, commit_id) / fnv1a64(table.table_key), held)


def _shown_entries(graph: OpenGraph) -> list[TableEntry]:
    """Every table that a branch shows; the lock of a schema change shows the past, and does not count."""
    branches = [name for name in graph.branch_names() if name != LOCK_BRANCH]
    return [entry for branch in branches for entry in graph.load(branch).state.entries().values()]


def _remove(root: Root, held: HeldLocks, removal: TableRemoval, shown: Sequence[TableEntry]) -> None:
    place = root.layout.table(removal.table_path)
    if not shown:
        root.objects.delete_prefix(place, held)
        return
    table = root.tables.tip(place)
    stored = set(table.versions())
    kept = {one.version for one in shown if one.owner is None} | fork_points(root, place, None)
    if not place.is_local:
        # Upkeep may have moved the table on; the version before that has the new columns as well.
        kept |= versions_since_last_change(table, stored)
    old = {version for version in stored if version <= removal.last_version} - kept
    if old:
        done = collect_with_files(root.objects, table, old)
        if done.failed:
            left = f"{done.failed} files of '{removal.table_key}' could not be removed"
            raise StorageFailure(left, kind="Unknown", uri=place.uri)
