"""The lock of a schema change: a reserved branch of the manifest.

It exists while a schema may still change, including an interrupted change: a branch created in between would
have the tables of one schema and be written by another. A process that holds main's lock and finds it knows
that its owner is dead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.sweep import recover_branch
from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.migrations import open_current_manifest
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import has_fork_files, remove_fork
from omnigraph.errors import (
    LockLost,
    OmnigraphError,
    RecoveryRequired,
    SchemaApplyBlocked,
    SchemaContractBroken,
    StorageFailure,
    WriterBusy,
)
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Fork

_log = logging.getLogger(__name__)


def find_lock(root: Root) -> Fork | None:
    """Return the lock, if a schema change is running or was interrupted, with one read."""
    return root.forks.find(root.layout.manifest, LOCK_BRANCH)


@contextmanager
def hold_schema_lock(graph: OpenGraph, operation_id: str) -> Iterator[HeldLocks]:
    """Hold main's lock and the schema lock for one schema change."""
    with _main_lock(graph, operation_id) as held:
        recover_stale_lock(graph, held)
        own = _take_lock(graph, held, operation_id)
        released = False
        try:
            yield held
        finally:
            released = _release(graph.root, held, own, operation_id)
    if not released:
        recover_stale_lock_if_free(graph)


def _main_lock(graph: OpenGraph, operation_id: str) -> HeldLocks:
    locks = graph.root.locks
    if find_lock(graph.root) is not None:
        # A running change holds main's lock until it is done, which may take long: do not wait for it.
        held = locks.try_acquire([MAIN], operation_id=operation_id)
        if held is None:
            raise _in_progress(graph.root)
        return held
    try:
        return locks.hold([MAIN], operation_id=operation_id)
    except WriterBusy as busy:
        if find_lock(graph.root) is None:
            raise
        raise _in_progress(graph.root) from busy


def _in_progress(root: Root) -> SchemaApplyBlocked:
    found = find_lock(root)
    notes = {} if found is None else found.notes
    by = f" by process {notes['pid']} on {notes['host']}" if {"pid", "host"} <= notes.keys() else ""
    return SchemaApplyBlocked(f"schema apply is already in progress{by}", remedy="try again when it is done")


def _take_lock(graph: OpenGraph, held: HeldLocks, operation_id: str) -> Fork | None:
    root, manifest = graph.root, graph.root.layout.manifest
    table = open_current_manifest(root, MAIN, held)
    if has_fork_files(root, manifest, LOCK_BRANCH):
        held.require()
        root.forks.remove_residue(manifest, LOCK_BRANCH, held)
    held.require()
    made = root.forks.create(table, LOCK_BRANCH)
    own = find_lock(root)
    owner = THIS_PROCESS.owner
    notes = {"operation_id": operation_id, "host": owner.host, "pid": str(owner.pid)}
    try:
        root.forks.note(made, {**notes, "started_at": str(root.clock())})
    except OmnigraphError:
        _release(root, held, own, operation_id)
        raise
    return own


def _release(root: Root, held: HeldLocks, own: Fork | None, operation_id: str) -> bool:
    """Remove the own lock, best effort: the next change, or opening the graph, removes one that stays.

    While the change is on record its outcome is open, and its recovery removes the lock. False when the
    lock of main was lost, without which nothing may be removed.
    """
    try:
        if operation_id in sidecar.operations(root):
            return True
        found = find_lock(root)
        if found is not None and own is not None and found.identity == own.identity:
            remove_fork(root, held, root.layout.manifest, LOCK_BRANCH)
    except LockLost:
        return False
    except OmnigraphError as error:
        _log.warning("the lock of a schema change was not removed: %s", error)
    return True


# --- a lock whose owner died -----------------------------------------------------------------------


def recover_stale_lock(graph: OpenGraph, held: HeldLocks) -> None:
    """Recover an interrupted schema change, if there is one, and remove its lock; `held` has main's.

    Raises `RecoveryRequired` or `SchemaContractBroken` when it can be neither finished nor undone.
    """
    found = find_lock(graph.root)
    if found is None:
        return
    recover_branch(graph, MAIN, held)
    _log.warning("removing the lock of an interrupted schema change: %s", dict(found.notes) or "no owner")
    held.require()
    remove_fork(graph.root, held, graph.root.layout.manifest, LOCK_BRANCH)


def recover_stale_lock_if_free(graph: OpenGraph) -> bool:
    """Do the same without waiting; False when a schema change is running, or cannot be recovered."""
    if find_lock(graph.root) is None:
        return True
    held = graph.root.locks.try_acquire([MAIN])
    if held is None:
        return False
    with held:
        try:
            recover_stale_lock(graph, held)
        except (RecoveryRequired, SchemaContractBroken, StorageFailure) as error:
            _log.warning("the lock of a schema change stays: %s", error)
            return False
    return True
