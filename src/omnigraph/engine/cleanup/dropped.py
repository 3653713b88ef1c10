"""Tables of types that were dropped: their files go when no commit that is kept shows them any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.engine.cleanup.needed import Needed
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.errors import OmnigraphError
from omnigraph.storage.fragments import fragments
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that nothing shows."""

    key: str
    bytes: int
    """What its newest version takes."""
    failure: str | None = None
    """Why it is still there."""


def dropped_tables(graph: OpenGraph, branches: Mapping[str, Loaded], needed: Needed) -> list[DroppedTable]:
    """The tables that could go altogether."""
    root = graph.root
    used = {place.path for place in needed.versions}
    found = []
    for key, path in sorted(branches[MAIN].state.locations.items()):
        at = root.layout.table(path)
        if path not in used and key not in branches[MAIN].state.entries() and root.tables.exists(at):
            found.append(DroppedTable(key, _size(graph, at)))
    return found


def _size(graph: OpenGraph, at: Location) -> int:
    return sum(one.bytes for one in fragments(graph.root.tables.tip(at)))


def remove_dropped(graph: OpenGraph, tables: list[DroppedTable]) -> list[DroppedTable]:
    """Remove them, each under main's lock; one that fails does not keep the others."""
    return [DroppedTable(one.key, one.bytes, _removed(graph, one.key)) for one in tables]


def _removed(graph: OpenGraph, key: str) -> str | None:
    """Remove one; why it was left, if it was."""
    root = graph.root
    try:
        with root.locks.hold([MAIN]) as held:
            state = graph.load(MAIN).state
            at = root.layout.table(state.locations[key])
            if key in state.entries():
                return "the type was added again"
            forks = sorted(root.forks.list(at))
            if forks:
                return f"branch '{forks[0]}' has a fork of it"
            held.require()
            root.objects.delete_prefix(at)
    except OmnigraphError as error:
        return error.message
    return None
