"""A branch that is made for a write, and does not outlive it when the write is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sidecar import Sidecar, Unreadable
from omnigraph.errors import BranchExists, OmnigraphError, RecoveryRequired
from omnigraph.storage.references import Identity

_log = logging.getLogger(__name__)


@contextmanager
def new_branch(graph: OpenGraph, name: str, source: str) -> Iterator[bool]:
    """Make a branch for what happens inside, and remove it when that fails; False when it was there.

    A write whose end is open keeps the branch: recovery may still finish it there.
    """
    try:
        create_branch(graph, name, from_branch=source)
    except BranchExists:
        # By somebody else, a moment ago.
        yield False
        return
    begun = _standing(graph, name)
    try:
        yield True
    except RecoveryRequired:
        raise
    except BaseException:
        _remove_untouched(graph, name, begun)
        raise


def _standing(graph: OpenGraph, name: str) -> tuple[Identity, str | None]:
    """Which life of the branch it is, and where it stands."""
    loaded = graph.load(name)
    head = loaded.state.head
    return loaded.identity, None if head is None else head.id


def _is_on_record(graph: OpenGraph, name: str) -> bool:
    """Whether a write there has begun: whoever gave up waiting for it was not told that its end is open."""
    for operation in sidecar.operations(graph.root):
        match sidecar.read(graph.root, operation):
            case Sidecar() as record if record.graph_branch == name:
                return True
            case Unreadable(branch=branch) if branch in (name, None):
                return True
    return False


def _remove_untouched(graph: OpenGraph, name: str, begun: tuple[Identity, str | None]) -> None:
    """Best effort: the failure that led here is the news."""

    def is_untouched() -> bool:
        return _standing(graph, name) == begun and not _is_on_record(graph, name)

    try:
        # Asked twice: who sees already that it was touched need not wait for whoever does it.
        if is_untouched():
            delete_branch(graph, name, wanted=is_untouched)
    except OmnigraphError as error:
        _log.warning("branch '%s' is left behind: %s", name, error)
