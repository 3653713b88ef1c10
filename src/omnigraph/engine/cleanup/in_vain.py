"""Tables that a change of the schema made in vain: no branch ever showed them.

In a folder whoever undoes such a change removes them at once. In a bucket nobody may: a writer that lost its
lease without a sign could remove the table of another one that went on from there. So they go when nothing
was written in them for longer than any writer sleeps.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.layout import ENTITY_FOLDERS
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.errors import OmnigraphError

_log = logging.getLogger(__name__)

_AGE = 7 * 86_400.0
_NAME = re.compile("[0-9a-f]{16}")
"""What a table's folder is called; anything else is not ours."""


def tables_in_vain(graph: OpenGraph, branches: Iterable[Loaded]) -> list[str]:
    """Their places below the root, as far as they are old enough to go."""
    return [path for path in unshown_tables(graph, branches) if is_settled(graph, path)]


def unshown_tables(graph: OpenGraph, branches: Iterable[Loaded]) -> list[str]:
    """The places of tables that none of the branches ever showed; one may be on its way to be shown."""
    root = graph.root
    known = {path for loaded in branches for path in loaded.state.locations.values()}
    found = [
        f"{folder}/{name}"
        for folder in ENTITY_FOLDERS
        for name in root.objects.list_folders(root.layout.root / folder)
        if _NAME.fullmatch(name)
    ]
    return sorted(path for path in found if path not in known)


def remove_in_vain(graph: OpenGraph, paths: list[str]) -> list[str]:
    """Remove them, each under the lock that every change of the schema holds; those that went."""
    gone = []
    for path in paths:
        try:
            if _removed(graph, path):
                gone.append(path)
        except OmnigraphError as error:
            _log.warning("the table at '%s', made in vain, is left: %s", path, error)
    return gone


def _removed(graph: OpenGraph, path: str) -> bool:
    root = graph.root
    with root.locks.hold([MAIN]) as held:
        # A change of the schema since may have written over what was left there.
        if path in graph.load(MAIN).state.locations.values() or not is_settled(graph, path):
            return False
        held.require()
        root.objects.delete_prefix(root.layout.table(path))
        return True


def is_settled(graph: OpenGraph, path: str) -> bool:
    """Whether nothing was written at a table for longer than any writer sleeps."""
    last = graph.root.objects.last_change(graph.root.layout.table(path))
    return last is not None and last < graph.root.clock() / 1_000_000 - _AGE
