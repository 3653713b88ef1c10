"""The lock of a schema change: a branch of the manifest that is nobody's branch.

It stays as long as a schema may still change, a change that died half-way included: a branch made in
between would have the tables of one schema and be written by another. Who holds main's lock and finds it
there knows that its owner is dead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.forks import has_files, remove_fork
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.migrations import current_manifest
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sweep import recover_branch
from omnigraph.engine.root import Root
from omnigraph.errors import (
    OmnigraphError,
    RecoveryRequired,
    SchemaApplyBlocked,
    SchemaContractBroken,
    StorageFailure,
    WriterBusy,
)
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.locks import Held
from omnigraph.storage.references import Fork

LOCK_BRANCH = "__schema_apply_lock__"

_log = logging.getLogger(__name__)


def find_lock(root: Root) -> Fork | None:
    """The lock, if a schema is changing or a change of it died: one read."""
    return root.forks.find(root.layout.manifest, LOCK_BRANCH)


@contextmanager
def exclusively(graph: OpenGraph, operation_id: str) -> Iterator[Held]:
    """Main's lock, and that of the schema, for one schema change."""
    with _main_lock(graph, operation_id) as held:
        clear_stale(graph, held)
        own = _taken(graph, held, operation_id)
        try:
            yield held
        finally:
            _release(graph.root, own, operation_id)


def _main_lock(graph: OpenGraph, operation_id: str) -> Held:
    locks = graph.root.locks
    if find_lock(graph.root) is not None:
        # A change that lives has main's lock until it is done, and it may take long: nobody waits for it.
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


def _taken(graph: OpenGraph, held: Held, operation_id: str) -> Fork | None:
    root, manifest = graph.root, graph.root.layout.manifest
    table = current_manifest(root, MAIN, held)
    if has_files(root, manifest, LOCK_BRANCH):
        held.require()
        root.forks.remove_residue(manifest, LOCK_BRANCH)
    held.require()
    made = root.forks.create(table, LOCK_BRANCH)
    own = find_lock(root)
    owner = THIS_PROCESS.owner
    notes = {"operation_id": operation_id, "host": owner.host, "pid": str(owner.pid)}
    try:
        root.forks.note(made, {**notes, "started_at": str(root.clock())})
    except OmnigraphError:
        _release(root, own, operation_id)
        raise
    return own


def _release(root: Root, own: Fork | None, operation_id: str) -> None:
    """Best effort, and only the own one: the next change, or opening the graph, clears what is left.

    While the change is on record nobody knows how it ends, and whoever recovers it removes the lock.
    """
    try:
        if operation_id in sidecar.operations(root):
            return
        found = find_lock(root)
        if found is not None and own is not None and found.identity == own.identity:
            remove_fork(root, root.layout.manifest, LOCK_BRANCH)
    except OmnigraphError as error:
        _log.warning("the lock of a schema change is left behind: %s", error)


# --- a lock whose owner died -----------------------------------------------------------------------


def clear_stale(graph: OpenGraph, held: Held) -> None:
    """Finish or undo the schema change that left a lock, if there is one, and remove it; `held` has main's.

    Raises `RecoveryRequired`, or `SchemaContractBroken`, when it cannot be finished nor undone.
    """
    found = find_lock(graph.root)
    if found is None:
        return
    recover_branch(graph, MAIN, held)
    _log.warning("the lock of a schema change that died is removed: %s", dict(found.notes) or "no owner")
    held.require()
    remove_fork(graph.root, graph.root.layout.manifest, LOCK_BRANCH)


def clear_if_free(graph: OpenGraph) -> bool:
    """The same without waiting for anybody; False when a schema change lives, or cannot be recovered."""
    if find_lock(graph.root) is None:
        return True
    held = graph.root.locks.try_acquire([MAIN])
    if held is None:
        return False
    with held:
        try:
            clear_stale(graph, held)
        except (RecoveryRequired, SchemaContractBroken, StorageFailure) as error:
            _log.warning("the lock of a schema change stays: %s", error)
            return False
    return True
