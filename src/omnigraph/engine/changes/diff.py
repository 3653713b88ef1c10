"""What differs between two snapshots of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from omnigraph.engine.changes.change import Change, Filter, Stat, require_types
from omnigraph.engine.changes.hands import Hands
from omnigraph.engine.changes.images import changes_of
from omnigraph.engine.changes.meeting import Meeting
from omnigraph.engine.changes.pairs import Pairs
from omnigraph.engine.changes.runs import Runs, compared
from omnigraph.engine.changes.shown import changes_table, counts_table
from omnigraph.engine.changes.side import Side
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, OmnigraphError
from omnigraph.lang.schema.catalog import Catalog

Catalogs = Callable[[Snapshot], Catalog]
"""The schema that held at a snapshot."""
Reclaimed = Callable[[HistoricalVersionReclaimed], OmnigraphError]
"""What it means to whoever asked that a version was cleaned up."""
Place = tuple[str, str]
"""The table and the id of a change; changes are in this order, tables of nodes first."""


def _as_told(error: HistoricalVersionReclaimed) -> OmnigraphError:
    return error


def table_order(key: str) -> tuple[bool, str]:
    """Tables sort by this in every list of changes."""
    return key.startswith("edge:"), key


class Diff:
    """The changes that lead from one moment of a graph to another: nodes first, then by type and id.

    Nothing is read before it is asked for, and images only as they are taken. It can be iterated again.
    """

    def __init__(
        self,
        graph: OpenGraph,
        before: Snapshot,
        after: Snapshot,
        wanted: Filter | None = None,
        *,
        catalogs: Catalogs | None = None,
        reclaimed: Reclaimed = _as_told,
        hands: Hands | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self._graph = graph
        self._wanted = wanted or Filter()
        self._catalog_at = catalogs or graph.catalog_at
        self._reclaimed = reclaimed
        self._hands = hands or Hands()
        self._pairs: dict[str, Pairs | Runs] = {}
        require_types(self._wanted, before.entries.keys() | after.entries.keys())

    @cached_property
    def _tables(self) -> list[str]:
        """The tables that may differ: equal versions of one owner are the same rows."""
        keys = self.before.entries.keys() | self.after.entries.keys()
        return sorted(
            (key for key in keys if self._wanted.wants_table(key) and self._may_differ(key)),
            key=table_order,
        )

    def _may_differ(self, key: str) -> bool:
        places = [
            entry and (entry.path, entry.owner, entry.version)
            for entry in (self.before.entries.get(key), self.after.entries.get(key))
        ]
        return places[0] != places[1]

    def tables(self) -> list[str]:
        """The tables that may differ, in the order of their changes."""
        return list(self._tables)

    def key_of(self, type_name: str) -> str:
        """The table of a type by its name, or by `node:Name` and `edge:Name` where both kinds have one."""
        known = self.before.entries.keys() | self.after.entries.keys()
        found = [key for key in sorted(known) if type_name in (key, key.partition(":")[2])]
        if len(found) == 1:
            return found[0]
        raise BadRequest(
            f"'{type_name}' is a node type and an edge type", remedy=f"name {' or '.join(found)}"
        )

    def meeting(self, key: str) -> Meeting:
        """A type at both moments."""
        with self._telling():
            sides = (
                Side.of(self._graph, at, key, self._catalog_at(at)) if key in at.entries else None
                for at in (self.before, self.after)
            )
            return Meeting(*sides)

    def _found(self, key: str) -> Pairs | Runs:
        if key not in self._pairs:
            meeting = self.meeting(key)
            with self._telling():
                runner = self._hands.runner(meeting)
                self._pairs[key] = meeting.together() if runner is None else compared(meeting, runner)
        return self._pairs[key]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except HistoricalVersionReclaimed as error:
            raise self._reclaimed(error) from error

    def stats(self) -> dict[str, Stat]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`; no image is read."""
        counted = {key: self._wanted.of(self._found(key).stat) for key in self._tables}
        return {key: stat for key, stat in counted.items() if stat != Stat()}

    def __iter__(self) -> Iterator[Change]:
        return self.beyond(None)

    def beyond(self, place: Place | None) -> Iterator[Change]:
        """The changes after a place; None means from the first on."""
        for key in self._tables:
            if place is not None and table_order(key) < table_order(place[0]):
                continue
            found = self._found(key)
            if place is not None and key == place[0]:
                found = found.beyond(place[1])
            with self._telling():
                for portion in found.portions():
                    yield from changes_of(key, portion, self._wanted)

    def __bool__(self) -> bool:
        return any(self._wanted.of(self._found(key).stat) != Stat() for key in self._tables)

    def to_json(self) -> dict[str, Any]:
        """All of it as scripts read it."""
        return {**self.about(), "changes": [change.to_json() for change in self]}

    def about(self) -> dict[str, Any]:
        """Which moments were compared, and how much differs."""
        return {
            "from": _moment(self.before),
            "to": _moment(self.after),
            "stats": {key: stat.to_json() for key, stat in self.stats().items()},
        }

    def __repr__(self) -> str:
        return f"<Diff from {self.before.id} to {self.after.id}>"

    def _repr_html_(self) -> str:
        stats = self.stats()
        total = sum(stat.inserted + stat.updated + stat.deleted for stat in stats.values())
        return counts_table(f"Diff from {self.before.id} to {self.after.id}", stats) + (
            changes_table(self, total) if total else ""
        )


def _moment(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "graph_branch": snapshot.branch,
        "graph_manifest_version": snapshot.version,
        "graph_commit_id": snapshot.commit.id if snapshot.commit else None,
    }
