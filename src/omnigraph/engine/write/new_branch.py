"""A branch that is made for a write, and does not outlive it when the write is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.branches.manage import create_branch, undo_create
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import BranchExists, OmnigraphError, RecoveryRequired
from omnigraph.storage.references import Incarnation

_log = logging.getLogger(__name__)


@contextmanager
def create_branch_for_write(
    graph: OpenGraph, name: str, source: str, actor: str | None = None
) -> Iterator[bool]:
    """Make a branch for what happens inside, and remove it when that fails; False when it was there.

    A write whose end is open keeps the branch: recovery may still finish it there.
    """
    try:
        create_branch(graph, name, from_branch=source, actor=actor)
    except BranchExists:
        # Another writer has just created it.
        yield False
        return
    begun = _branch_state(graph, name)
    try:
        yield True
    except RecoveryRequired:
        raise
    except BaseException:
        _delete_if_untouched(graph, name, begun)
        raise


def _branch_state(graph: OpenGraph, name: str) -> tuple[Incarnation, str | None]:
    """Return the incarnation of the branch and its head commit."""
    loaded = graph.load(name)
    head = loaded.state.head
    return loaded.identity, None if head is None else head.id


def _has_recorded_write(graph: OpenGraph, name: str) -> bool:
    """Whether a write there is recorded: a caller that gave up waiting may have left one open."""
    for operation in sidecar.operations(graph.root):
        match sidecar.read(graph.root, operation):
            case Sidecar() as record if record.graph_branch == name:
                return True
            case Unreadable(branch=branch) if branch in (name, None):
                return True
    return False


def _delete_if_untouched(graph: OpenGraph, name: str, begun: tuple[Incarnation, str | None]) -> None:
    """Best effort: the failure that led here is the news."""

    def is_untouched() -> bool:
        return _branch_state(graph, name) == begun and not _has_recorded_write(graph, name)

    try:
        # Checked before the lock too: a touched branch needs no wait for the lock.
        if is_untouched():
            undo_create(graph, name, is_untouched)
    except OmnigraphError as error:
        _log.warning("branch '%s' is left behind: %s", name, error)
