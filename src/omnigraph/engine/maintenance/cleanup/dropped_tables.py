"""Tables of dropped types: removed when no kept commit needs them any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.cleanup.needed_versions import NeededVersions
from omnigraph.errors import OmnigraphError
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that no kept commit needs."""

    key: str
    bytes: int
    """The size of its newest version."""
    failure: str | None = None
    """Why it could not be removed."""


def find_dropped_tables(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], needed: NeededVersions
) -> list[DroppedTable]:
    """Return the tables that can be removed."""
    root = graph.root
    used = {place.path for place in needed.versions}
    found = []
    for key, path in sorted(branches[MAIN].state.locations.items()):
        at = root.layout.table(path)
        if path not in used and key not in branches[MAIN].state.entries() and root.tables.exists(at):
            found.append(DroppedTable(key, _size(graph, at)))
    return found


def _size(graph: OpenGraph, at: Location) -> int:
    return sum(one.bytes for one in list_fragments(graph.root.tables.tip(at)))


def remove_dropped_tables(graph: OpenGraph, tables: list[DroppedTable]) -> list[DroppedTable]:
    """Remove the tables, each under main's lock; one that fails does not stop the others."""
    return [DroppedTable(one.key, one.bytes, _remove_table(graph, one.key)) for one in tables]


def _remove_table(graph: OpenGraph, key: str) -> str | None:
    """Remove a table; return why it could not be removed, if so."""
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
