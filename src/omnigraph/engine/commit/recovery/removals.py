"""Finish the removals of schema changes.

Only versions from before the change are removed, so a late removal takes nothing that was written since.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from omnigraph import failpoints
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.removal_records import TableRemoval, delete_removal, read_removal
from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.protected_versions import fork_points, versions_since_last_change
from omnigraph.errors import OmnigraphError, StorageFailure
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.referenced_files import collect_with_files

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
            _remove(graph.root, table, [entry for entry in shown if entry.path == table.table_path])
        # What deleted branches held from before the change: no merge starts there any more.
        graph.root.objects.delete_prefix(graph.root.layout.bases)
        graph.root.tables.forget()
    elif sidecar.read(graph.root, operation_id) is not None:
        return  # the change may still be published
    held.require()
    delete_removal(graph.root, operation_id)


def _shown_entries(graph: OpenGraph) -> list[TableEntry]:
    """Every table that a branch shows; the lock of a schema change shows the past, and does not count."""
    branches = [name for name in graph.branch_names() if name != LOCK_BRANCH]
    return [entry for branch in branches for entry in graph.load(branch).state.entries().values()]


def _remove(root: Root, removal: TableRemoval, shown: Sequence[TableEntry]) -> None:
    place = root.layout.table(removal.table_path)
    if not shown:
        root.objects.delete_prefix(place)
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
