"""Pins of running merges: while a merge runs, cleanup keeps the commit that it takes in.

A merge can run for longer than versions are kept for readers (`OMNIGRAPH_CLEANUP_MIN_AGE`). When its source
moves on in the meantime, nothing but a pin shows that the commit it takes in is about to become a merge base.
A pin is an empty file, `__staging/merging/<commit>-<ULID>`.

Either the commit was the head of the source after its pin was written, so that a cleanup that looked at the
branches earlier does not remove it, or the next head is pinned. A cleanup that looks later finds the pin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ulid import ULID

from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import OmnigraphError
from omnigraph.storage.concurrency import Together
from omnigraph.storage.location import Location

PINS = "merging"
"""The folder of pins, below that of staged files."""
_EXPIRY = 7 * 86_400.0
"""Longer than any merge takes: an older pin is one of a process that died."""

_log = logging.getLogger(__name__)


@contextmanager
def pin_head(graph: OpenGraph, branch: str, before: Callable[[], object]) -> Iterator[LoadedBranch]:
    """Yield a branch as it is now; until the block ends, no cleanup removes what its head commit shows.

    `before` is called before the branch is read.
    """
    pins: list[Location] = []
    try:
        yield _pin(graph, branch, pins, before)
    finally:
        for pin in pins:
            _remove(graph, pin)


def _pin(graph: OpenGraph, branch: str, pins: list[Location], before: Callable[[], object]) -> LoadedBranch:
    known = None if graph.root.layout.root.is_local else graph.coordinator(branch).known
    if known is None:
        before()
    # The state that the process knows is mostly the current one; if not, the next one is pinned.
    found = known or graph.load(branch)
    while (head := found.state.head) is not None:
        pins.append(_folder(graph) / f"{head.id}-{graph.root.new_id()}")
        with Together(graph.root.layout.root) as calls:
            calls.add(partial(graph.root.objects.write_text, pins[-1], ""))
            if len(pins) == 1 and known is not None:
                calls.add(before)
        now = graph.load(branch)
        if (now.identity, now.state.head) == (found.identity, head):
            break
        found = now
    return found


def list_pinned_commits(graph: OpenGraph) -> frozenset[str]:
    """Return the commits that running merges take in."""
    pins = graph.root.objects.list_dir(_folder(graph))
    return frozenset(at.name.partition("-")[0] for at in pins if not _is_expired(graph, at))


def remove_expired_pins(graph: OpenGraph) -> None:
    """Remove the pins that processes left when they died."""
    for at in graph.root.objects.list_dir(_folder(graph)):
        if _is_expired(graph, at):
            graph.root.objects.delete(at)


def _folder(graph: OpenGraph) -> Location:
    return graph.root.layout.staging / PINS


def _is_expired(graph: OpenGraph, pin: Location) -> bool:
    try:
        begun = ULID.from_str(pin.name.partition("-")[2]).timestamp
    except ValueError:
        return False
    return begun < graph.root.clock() / 1_000_000 - _EXPIRY


def _remove(graph: OpenGraph, pin: Location) -> None:
    """The merge is over, however this ends; a pin that stays expires."""
    try:
        graph.root.objects.delete(pin)
    except OmnigraphError as failure:
        _log.warning("the pin '%s' of a merge was not removed: %s", pin.name, failure)
