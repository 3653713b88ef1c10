"""Ids and ends that are numbers: what the tasks marked while they read shows at once whether all is right.

No row is read again, but the ids that are stored already. What does not turn out to be right here may still
be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from omnigraph.engine.columns import ID
from omnigraph.engine.layout import fnv1a64, table_key
from omnigraph.engine.load.checks.scope import Scope, Task, rows_of
from omnigraph.engine.load.marks import MOST, Bits, Marking, Marks, all_marked, are_among, count
from omnigraph.engine.load.views import NewRows, OldRows, View
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.endpoints import ENDS, node_type


@dataclass(frozen=True, slots=True)
class Clear:
    """Types of which something is known to be right."""

    ids: frozenset[str] = frozenset()
    """No id is there twice that must not be."""
    ends: frozenset[str] = frozenset()
    """Every edge has its ends."""


def by_numbers(scope: Scope) -> Clear:
    """What marks show of a load from which nothing is left out."""
    look = _Look(scope)
    return Clear(frozenset(filter(look.ids_differ, scope.keys)), frozenset(filter(look.has_ends, scope.keys)))


def nodes_after(scope: Scope, key: str) -> list[View]:
    """All nodes of a type that there are after the load."""
    if scope.mode is Mode.OVERWRITE and key in scope.keys:
        return [*scope.new(key)]
    return [*scope.new(key), *scope.old(key)]


class _Look:
    """Reads the marks of each type once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._stored: dict[str, list[Marks] | None] = {}
        self._nodes: dict[str, Bits | None] = {}

    def ids_differ(self, key: str) -> bool:
        scope = self._scope
        given = [view for view in scope.new(key) if view.staged.given]
        new = _marks(given, ID)
        if not given or new is None or scope.releases(key):
            return False
        if sum(one.count for one in new) < rows_of(given):
            return False
        stored = self._old(key, scope.old(key)) if scope.mode is Mode.APPEND else []
        if stored is None:
            return False
        if len(new) + len(stored) == 1:
            return True
        files = [*new, *stored]
        return count(all_marked(scope.task.job, files)) == sum(one.count for one in files)

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
            if nodes is None or not are_among(all_marked(scope.task.job, wanted), nodes):
                return False
        return True

    def _known(self, node: str) -> Bits | None:
        """The ids of all nodes of a type; None when one of them is no number."""
        if node not in self._nodes:
            views = nodes_after(self._scope, node)
            new = _marks([view for view in views if isinstance(view, NewRows)], ID)
            stored = [view for view in views if isinstance(view, OldRows)]
            old = None if new is None else self._old(node, stored)
            known = None if new is None or old is None else [*new, *old]
            self._nodes[node] = None if known is None else all_marked(self._scope.task.job, known)
        return self._nodes[node]

    def _old(self, key: str, views: list[OldRows]) -> list[Marks] | None:
        """The marks of stored ids, which are made now."""
        if rows_of(views) > MOST:
            return None
        if key not in self._stored:
            runner = self._scope.runner_for(rows_of(views))
            found = list(runner.each("stored ids", views, partial(_stored_marks, self._scope.task)))
            marks = [one for one in found if one is not None]
            self._stored[key] = marks if len(marks) == len(found) else None
        return self._stored[key]


def _marks(views: Iterable[NewRows], column: str) -> list[Marks] | None:
    """The marks of a column; None when there is something in it that has none."""
    found = [view.staged.marks.get(column) for view in views]
    marks = [one for one in found if one is not None]
    return marks if len(marks) == len(found) else None


def _stored_marks(task: Task, view: OldRows) -> Marks | None:
    marking = Marking()
    for chunk in view.columns(task.job, [ID]).column(ID).chunks:
        marking.add(chunk)
    name = f"stored-{fnv1a64(view.key)}-{view.entry.version}-{view.fragments[0]}"
    return marking.kept(task.job, name)
