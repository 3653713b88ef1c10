"""Parts of indexes that are built by the tasks of a runner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from omnigraph.engine.graph.root import Root
from omnigraph.engine.tasks.runner import Runner
from omnigraph.storage.index_parts import (
    BuiltPart,
    IndexPart,
    PackedPart,
    build_part,
    pack_part,
    unpack_part,
)
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A version of a table, as a task finds it."""

    uri: str
    branch: str | None
    version: int

    @classmethod
    def of(cls, table: Table) -> TablePlace:
        """Where a table stands."""
        return cls(table.location.uri, table.branch, table.version)

    def table(self) -> Table:
        """Open the table."""
        location = Location(self.uri)
        return Root.at(location).tables.open(location, self.version, branch=self.branch)


def build_parts_with(runner: Runner, table: Table, parts: Sequence[IndexPart]) -> Iterable[BuiltPart]:
    """Build parts of indexes, each by a task."""
    return map(unpack_part, runner.each("index", parts, partial(_build_part, TablePlace.of(table))))


def _build_part(place: TablePlace, part: IndexPart) -> PackedPart:
    return pack_part(build_part(place.table(), part))
