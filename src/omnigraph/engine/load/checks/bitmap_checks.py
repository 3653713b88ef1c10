"""Ids and ends that are numbers: what the tasks marked while they read shows at once whether all is right.

No row is read again, but the ids that are stored already. What does not turn out to be right here may still
be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.endpoints import ENDS, node_type
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.layout import fnv1a64, table_key
from omnigraph.engine.load.checks.check_scope import CheckScope, CheckTask, count_rows
from omnigraph.engine.load.number_bitmaps import (
    MOST,
    BitmapBuilder,
    Bits,
    NumberBitmap,
    count_bits,
    is_subset,
    read_union,
)
from omnigraph.engine.load.row_views import NewRows, StoredPart, View


@dataclass(frozen=True, slots=True)
class ProvenTypes:
    """Types of which something is known to be right."""

    ids: frozenset[str] = frozenset()
    """No id is there twice that must not be."""
    ends: frozenset[str] = frozenset()
    """Every edge has its ends."""


def check_bitmaps(scope: CheckScope) -> ProvenTypes:
    """What marks show of a load from which nothing is left out."""
    look = _BitmapCheck(scope)
    return ProvenTypes(
        frozenset(filter(look.ids_differ, scope.keys)), frozenset(filter(look.has_ends, scope.keys))
    )


def list_nodes_after(scope: CheckScope, key: str) -> list[View]:
    """All nodes of a type that there are after the load."""
    if scope.mode is Mode.OVERWRITE and key in scope.keys:
        return [*scope.new(key)]
    return [*scope.new(key), *scope.old(key)]


class _BitmapCheck:
    """Reads the marks of each type once."""

    def __init__(self, scope: CheckScope) -> None:
        self._scope = scope
        self._stored: dict[str, list[NumberBitmap] | None] = {}
        self._nodes: dict[str, Bits | None] = {}

    def ids_differ(self, key: str) -> bool:
        scope = self._scope
        given = [view for view in scope.new(key) if view.staged.given]
        new = _marks(given, ID)
        if not given or new is None or scope.releases(key):
            return False
        if sum(one.count for one in new) < count_rows(given):
            return False
        stored = self._old(key, scope.old(key)) if scope.mode is Mode.APPEND else []
        if stored is None:
            return False
        if len(new) + len(stored) == 1:
            return True
        files = [*new, *stored]
        return count_bits(read_union(scope.task.job, files)) == sum(one.count for one in files)

    def has_ends(self, key: str) -> bool:
        scope = self._scope
        if not key.startswith("edge:") or scope.task.counts(key):
            return False
        edges = scope.new(key)
        for end in ENDS:
            wanted = _marks(edges, end)
            if wanted is None:
                return False
            nodes = self._known(table_key("node", node_type(scope.task.targets[key], end)))
            if nodes is None or not is_subset(read_union(scope.task.job, wanted), nodes):
                return False
        return True

    def _known(self, node: str) -> Bits | None:
        """The ids of all nodes of a type; None when one of them is no number."""
        if node not in self._nodes:
            views = list_nodes_after(self._scope, node)
            new = _marks([view for view in views if isinstance(view, NewRows)], ID)
            stored = [view for view in views if isinstance(view, StoredPart)]
            old = None if new is None else self._old(node, stored)
            known = None if new is None or old is None else [*new, *old]
            self._nodes[node] = None if known is None else read_union(self._scope.task.job, known)
        return self._nodes[node]

    def _old(self, key: str, views: list[StoredPart]) -> list[NumberBitmap] | None:
        """The marks of stored ids, which are made now."""
        if count_rows(views) > MOST:
            return None
        if key not in self._stored:
            runner = self._scope.runner_for(count_rows(views))
            found = list(runner.each("stored ids", views, partial(_stored_marks, self._scope.task)))
            marks = [one for one in found if one is not None]
            self._stored[key] = marks if len(marks) == len(found) else None
        return self._stored[key]


def _marks(views: Iterable[NewRows], column: str) -> list[NumberBitmap] | None:
    """The marks of a column; None when there is something in it that has none."""
    found = [view.staged.bitmaps.get(column) for view in views]
    marks = [one for one in found if one is not None]
    return marks if len(marks) == len(found) else None


def _stored_marks(task: CheckTask, view: StoredPart) -> NumberBitmap | None:
    builder = BitmapBuilder()
    for chunk in view.columns(task.job, [ID]).column(ID).chunks:
        builder.add(chunk)
    name = f"stored-{fnv1a64(view.key)}-{view.entry.version}-{view.fragments[0]}"
    return builder.write(task.job, name)
