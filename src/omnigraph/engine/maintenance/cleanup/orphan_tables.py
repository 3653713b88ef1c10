"""Orphan tables: made by a schema change that failed, and never published by a branch.

In a folder, rolling back the change removes them at once. In a bucket that is unsafe: a writer that lost its
lease without noticing could remove the table of its successor. So they are removed when nothing was written
to them for longer than any writer can be suspended.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.layout import ENTITY_FOLDERS
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import OmnigraphError

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
        root.objects.delete_prefix(root.layout.table(path))
        return True


def is_old_enough(graph: OpenGraph, path: str) -> bool:
    """Whether the last write to a table is longer ago than any writer can be suspended."""
    last = graph.root.objects.last_change(graph.root.layout.table(path))
    return last is not None and last < graph.root.clock() / 1_000_000 - _AGE
