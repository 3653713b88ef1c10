"""The past of data that a schema change was allowed to lose."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from omnigraph.engine.cleanup.collect import stood_on, wall
from omnigraph.engine.manifest import Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.schema_apply.lock import LOCK_BRANCH
from omnigraph.errors import OmnigraphError
from omnigraph.storage.locks import Held
from omnigraph.storage.upkeep import collect_versions

_log = logging.getLogger(__name__)


def reclaim_past(graph: OpenGraph, held: Held, before: Mapping[str, Entry], keys: Iterable[str]) -> None:
    """Remove all versions of tables but those that branches show; `before` is where the tables were.

    The schema is changed already, so that no failure here is one of the change; cleanup removes the rest.
    """
    for key in keys:
        try:
            held.require()
            _reclaim(graph, before[key])
        except OmnigraphError as error:
            _log.warning("older versions of '%s' are left to cleanup: %s", key, error)


def _reclaim(graph: OpenGraph, entry: Entry) -> None:
    root, place = graph.root, graph.root.layout.table(entry.path)
    shown = [one for one in _shown(graph) if one.path == entry.path]
    if not shown:
        root.objects.delete_prefix(place)
    else:
        table = root.tables.tip(place)
        stored = set(table.versions())
        kept = {one.version for one in shown if one.owner is None} | stood_on(root, place, None)
        if not place.is_local:
            # Upkeep may have moved the table on; the version before that has the new columns as well.
            kept |= wall(table, stored)
        collect_versions(table, sorted(stored - kept))
    root.tables.forget()


def _shown(graph: OpenGraph) -> list[Entry]:
    """Every table that a branch shows; the lock of this change is nobody's branch, and shows the past."""
    branches = [name for name in graph.branch_names() if name != LOCK_BRANCH]
    return [entry for branch in branches for entry in graph.load(branch).state.entries().values()]
