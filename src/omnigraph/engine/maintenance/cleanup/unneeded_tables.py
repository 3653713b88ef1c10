"""Tables of dropped types: removed when no kept commit needs them any more."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.layout import ENTITY_FOLDERS
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.cleanup.claims import Claims
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


def remove_dropped_tables(graph: OpenGraph, tables: list[DroppedTable], claims: Claims) -> list[DroppedTable]:
    """Remove the tables, each under main's lock; one that fails does not stop the others."""
    return [DroppedTable(one.key, one.bytes, _remove_table(graph, one.key, claims)) for one in tables]


def _remove_table(graph: OpenGraph, key: str, claims: Claims) -> str | None:
    """Remove a table; return why it could not be removed, if so."""
    root = graph.root
    try:
        with root.locks.hold([MAIN]) as held:
            state = graph.load(MAIN).state
            at = root.layout.table(state.locations[key])
            if key in state.entries():
                return "the type was added again"
            if claims.are_outdated(graph):
                return "a tag or branch was created at an old commit meanwhile"
            forks = sorted(root.forks.list(at))
            if forks:
                return f"branch '{forks[0]}' has a fork of it"
            held.require()
            root.objects.delete_prefix(at, held)
    except OmnigraphError as error:
        return error.message
    return None


_log = logging.getLogger(__name__)

_AGE = 7 * 86_400.0
_NAME = re.compile("[0-9a-f]{16}")
"""The name of a table folder; anything else is not ours."""


def find_removable_orphans(graph: OpenGraph, branches: Iterable[LoadedBranch]) -> list[str]:
    """Return the paths of orphan tables below the root that are old enough to remove."""
    return [path for path in find_orphan_tables(graph, branches) if is_old_enough(graph, path)]


def find_orphan_tables(graph: OpenGraph, branches: Iterable[LoadedBranch]) -> list[str]:
    """Return the paths of tables that no branch ever published; a schema change may still do so."""
    root = graph.root
    known = {path for loaded in branches for path in loaded.state.locations.values()}
    found = [
        f"{folder}/{name}"
        for folder in ENTITY_FOLDERS
        for name in root.objects.list_folders(root.layout.root / folder)
        if _NAME.fullmatch(name)
    ]
    return sorted(path for path in found if path not in known)


def remove_orphan_tables(graph: OpenGraph, paths: list[str]) -> list[str]:
    """Remove orphan tables, each under the lock that every schema change holds; return the removed ones."""
    gone = []
    for path in paths:
        try:
            if _remove_orphan(graph, path):
                gone.append(path)
        except OmnigraphError as error:
            _log.warning("could not remove the orphan table at '%s': %s", path, error)
    return gone


def _remove_orphan(graph: OpenGraph, path: str) -> bool:
    root = graph.root
    with root.locks.hold([MAIN]) as held:
        # A later schema change may have reused the path.
        if path in graph.load(MAIN).state.locations.values() or not is_old_enough(graph, path):
            return False
        held.require()
        root.objects.delete_prefix(root.layout.table(path), held)
        return True


def is_old_enough(graph: OpenGraph, path: str) -> bool:
    """Whether the last write to a table is longer ago than any writer can be suspended."""
    last = graph.root.objects.last_change(graph.root.layout.table(path))
    return last is not None and last < graph.root.clock() / 1_000_000 - _AGE
