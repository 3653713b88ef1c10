"""Undo creations of branches at old commits that were interrupted.

For a moment such a branch shows the newest commit of its source. A record, `__recovery/<ULID>.branch`, is
there from before until after. Earlier releases and other implementations skip records of this kind.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from omnigraph.engine.commit.recovery.sidecar import CREATION, creations_among, list_names
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import remove_fork
from omnigraph.errors import CorruptGraph, OmnigraphError
from omnigraph.storage.forks import list_with_ancestors
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks

_log = logging.getLogger(__name__)


class BranchCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that is being created at an old commit."""

    branch: str
    version: int
    """The version of its source's manifest at which Lance makes the fork."""


def store_creation(root: Root, branch: str, version: int) -> Location:
    """Store the record, before anything is created."""
    at = root.layout.recovery / f"{root.new_id()}{CREATION}"
    body = msgspec.json.encode(BranchCreation(branch=branch, version=version)).decode()
    root.objects.write_text(at, body)
    return at


def delete_creation(root: Root, record: Location) -> None:
    """Delete the record of a creation that is complete, or was undone."""
    root.objects.delete(record)


def undo_creations(graph: OpenGraph, names: Sequence[str]) -> None:
    """Remove the branches of interrupted creations; one that is running has the lock of its branch."""
    for name in names:
        try:
            _try_undo(graph, graph.root.layout.recovery / name)
        except OmnigraphError as error:
            _log.warning("the interrupted creation of a branch, '%s', is not undone yet: %s", name, error)


def undo_creations_of(graph: OpenGraph, held: HeldLocks, branch: str) -> None:
    """Undo the interrupted creations of a branch that is about to be created; `held` has its lock.

    Otherwise the next writer would take the new branch for the one that a record describes.
    """
    for name in creations_among(list_names(graph.root)):
        record = graph.root.layout.recovery / name
        try:
            found = read_creation(graph.root, record)
        except CorruptGraph as error:
            _log.warning("%s", error)  # nothing is ever undone by it
            continue
        if found is not None and found.branch == branch:
            _undo(graph, held, record, found)


def read_creation(root: Root, record: Location) -> BranchCreation | None:
    """Return what a record says; None when it is gone."""
    body = root.objects.read_bytes_if_exists(record)
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=BranchCreation)
    except msgspec.MsgspecError as error:
        raise CorruptGraph(
            f"the record of a branch's creation, '{record.name}', cannot be read: {error}",
            object_id=record.name,
            remedy=f"delete the file `{root.layout.recovery.name}/{record.name}`; if its branch is there and "
            "shows the newest commit of its source, delete that too",
        ) from error


def _try_undo(graph: OpenGraph, record: Location) -> None:
    root = graph.root
    found = read_creation(root, record)
    if found is None:
        return
    held = root.locks.try_acquire(list_with_ancestors(found.branch))
    if held is None:
        return
    with held:
        if read_creation(root, record) is not None:  # else it was completed meanwhile
            _undo(graph, held, record, found)


def _undo(graph: OpenGraph, held: HeldLocks, record: Location, creation: BranchCreation) -> None:
    root = graph.root
    held.require()
    if _is_unfinished(root, creation):
        remove_fork(root, held, root.layout.manifest, creation.branch)
        graph.forget(creation.branch)
    delete_creation(root, record)


def _is_unfinished(root: Root, creation: BranchCreation) -> bool:
    """Whether the branch is as Lance made it: nothing was removed from its manifest, and nothing added."""
    manifest = root.layout.manifest
    fork = root.forks.find(manifest, creation.branch)
    if fork is None or fork.notes or fork.parent_version != creation.version:
        return False
    return root.tables.tip(manifest, branch=creation.branch).version == creation.version
