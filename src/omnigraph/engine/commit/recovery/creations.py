"""Undo creations of branches at old commits that were interrupted.

For a moment such a branch shows the newest commit of its source. A record, `__recovery/<ULID>.branch`, is
there from before until after. Earlier releases and other implementations skip records of this kind.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from omnigraph.engine.commit.recovery.sidecar import CREATION
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import remove_fork
from omnigraph.errors import OmnigraphError
from omnigraph.storage.forks import list_with_ancestors
from omnigraph.storage.location import Location

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
            _undo(graph, graph.root.layout.recovery / name)
        except OmnigraphError as error:
            _log.warning("the interrupted creation of a branch, '%s', is not undone yet: %s", name, error)


def _undo(graph: OpenGraph, record: Location) -> None:
    root = graph.root
    found = _read(root, record)
    if found is None:
        return
    held = root.locks.try_acquire(list_with_ancestors(found.branch))
    if held is None:
        return
    with held:
        if _read(root, record) is None:
            return  # it was completed meanwhile
        if _is_unfinished(root, found):
            held.require()
            remove_fork(root, held, root.layout.manifest, found.branch)
            graph.forget(found.branch)
        delete_creation(root, record)


def _read(root: Root, record: Location) -> BranchCreation | None:
    text = root.objects.read_text_if_exists(record)
    return None if text is None else msgspec.json.decode(text, type=BranchCreation)


def _is_unfinished(root: Root, creation: BranchCreation) -> bool:
    """Whether the branch is as Lance made it: nothing was removed from its manifest, and nothing added."""
    manifest = root.layout.manifest
    fork = root.forks.find(manifest, creation.branch)
    if fork is None or fork.notes or fork.parent_version != creation.version:
        return False
    return root.tables.tip(manifest, branch=creation.branch).version == creation.version
