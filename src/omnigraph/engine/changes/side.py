"""A type as one of two compared moments has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.ancestry import Point
from omnigraph.engine.columns import ID, SYSTEM_COLUMNS
from omnigraph.engine.layout import split_key
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.pinned import explained, open_table
from omnigraph.engine.root import root_for
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import StorageFailure
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar, Type
from omnigraph.storage.tables import Table

ROW = "_rowid"
PLACES = pa.schema([(ID, pa.string()), (ROW, pa.uint64())])
"""Where entities are: their ids, and the rows that hold them."""
FEW = 1024
"""Up to so many rows are found faster by a filter than by their places, unless these are known already."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Rows that are known, and the row ids that were asked for: those without a row hold nothing."""

    row_ids: pa.Array
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Side:
    """A table at a moment, read with the schema of that moment."""

    graph: OpenGraph
    snapshot: Snapshot
    key: str
    table: Table
    types: Mapping[str, Type]
    """The properties that the schema names, in its order, and that are stored."""
    by_place: bool = False
    """Whether rows are numbered by their places in the table, and not by their row ids."""
    _seen: list[_Seen] = field(default_factory=list, init=False, repr=False, compare=False)
    """The few rows that were read last."""

    @classmethod
    def of(cls, graph: OpenGraph, snapshot: Snapshot, key: str, catalog: Catalog) -> Side | None:
        """The table of a type at a snapshot; None when there was no such type."""
        kind, name = split_key(key)
        owner = catalog.nodes.get(name) if kind == "node" else catalog.edges.get(name)
        if key not in snapshot.entries or owner is None:
            return None
        table = open_table(graph, snapshot, key)
        stored = set(table.schema.names)
        types = {found.name: found.type for found in owner.properties.values() if found.name in stored}
        return cls(graph, snapshot, key, table, types)

    @property
    def point(self) -> Point:
        """Which version of the table it is."""
        entry = self.snapshot.entries[self.key]
        return Point(entry.owner, entry.version)

    @property
    def system(self) -> tuple[str, ...]:
        """The columns that every entity of its kind has."""
        return SYSTEM_COLUMNS[split_key(self.key)[0]]

    @property
    def blobs(self) -> list[str]:
        """The properties whose bytes lie beside the rows."""
        return [name for name, type_ in self.types.items() if type_.scalar is Scalar.BLOB]

    def count(self) -> int:
        """How many entities there are."""
        known = self.snapshot.entries[self.key].row_count
        return self.table.count() if known is None else known

    def every(self) -> pa.Table:
        """The places of all entities."""
        with self.reading():
            return self.table.scan([ID, ROW], ordered=False).cast(PLACES)

    def placed(self) -> Side:
        """The same table with its rows numbered by place; the bytes of Blobs are only found by row ids."""
        return self if self.blobs else replace(self, by_place=True)

    def places(self, row_ids: pa.Array) -> pa.Table:
        """The places of those entities that these rows still hold."""
        return self._read(row_ids, [ID, ROW]).cast(PLACES)

    def rows(self, row_ids: pa.Array) -> pa.Table:
        """The entities in these rows, in this order; Blobs as bytes."""
        return self._read(row_ids, [*self.system, *self.types])

    def cells(self, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Some columns of the entities in these rows, as far as it has them; no others are read."""
        columns = [name for name in names if name in self.columns]
        if not columns:
            return pa.table({})
        if not len(row_ids) or len(row_ids) > FEW or self.by_place or self.blobs:
            return self._read(row_ids, columns)
        seen = self._known(row_ids)
        if seen is None:
            return self._filtered(row_ids, columns)
        return _in_order(seen, row_ids).select(columns)

    def _read(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        """The rows that are there, in the order asked for."""
        if not len(row_ids):
            return pa.schema([self._field(name) for name in columns]).empty_table()
        if self.by_place:
            with self.reading():
                return self.table.take_offsets(np.asarray(row_ids).astype(np.int64), columns)
        if len(row_ids) <= FEW and not self.blobs:
            return _in_order(self._few(row_ids), row_ids).select(columns)
        # A version that was not read before has to learn first where each of its rows is, all of them.
        # A filter does not need that. It is also the only way to the bytes of Blobs.
        if len(row_ids) <= FEW or not set(self.blobs).isdisjoint(columns):
            return self._filtered(row_ids, columns)
        with self.reading():
            return self.table.take(row_ids, columns)

    def _few(self, row_ids: pa.Array) -> pa.Table:
        """All columns of a few rows; whoever needs some of them mostly comes back for the others."""
        found = self._known(row_ids)
        if found is None:
            found = self._filtered(row_ids, self.columns)
            self.remember(row_ids, found)
        return found

    def _known(self, row_ids: pa.Array) -> pa.Table | None:
        for seen in self._seen:
            if pc.all(pc.is_in(row_ids, value_set=seen.row_ids)).as_py():
                return seen.rows
        return None

    def remember(self, row_ids: pa.Array, rows: pa.Table) -> None:
        """Take note of rows that were read: all columns of whatever these row ids hold."""
        if len(row_ids) <= FEW and not self.blobs:
            self._seen[:] = [_Seen(row_ids, rows.select(self.columns))]

    @property
    def columns(self) -> list[str]:
        """All that can be read of a row."""
        return [*self.system, *self.types, ROW]

    def _filtered(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        wanted = ", ".join(map(str, row_ids.to_pylist()))
        read = list(dict.fromkeys([*columns, ROW]))
        with self.reading():
            found = self.table.scan(read, where=f"{ROW} IN ({wanted})", blob_bytes=bool(self.blobs))
        return _in_order(found, row_ids).select(columns)

    def _field(self, name: str) -> pa.Field:
        if name == ROW:
            return PLACES.field(ROW)
        return pa.field(name, pa.large_binary()) if name in self.blobs else self.table.schema.field(name)

    def __reduce__(self) -> tuple[Callable[..., Side], tuple[Any, ...]]:
        """A side travels to other processes by name, and is opened anew there."""
        at = self.snapshot
        small = replace(at, entries={self.key: at.entries[self.key]})
        return _arrived, (self.graph.root.uri, small, self.key, dict(self.types), self.by_place)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Tells a version that was cleaned up from a store that fails."""
        try:
            yield
        except StorageFailure as failure:
            raise explained(self.graph, self.snapshot, self.key, failure) from failure


def _in_order(rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    """The rows that have these row ids, in their order."""
    at = pc.index_in(row_ids, value_set=rows.column(ROW).combine_chunks())
    return rows.take(at.drop_null())


def _arrived(uri: str, snapshot: Snapshot, key: str, types: Mapping[str, Type], by_place: bool) -> Side:
    # No two graphs have a commit in common.
    graph = _graph_at(uri, snapshot.commit.id if snapshot.commit else "")
    return Side(graph, snapshot, key, open_table(graph, snapshot, key), types, by_place)


@lru_cache(maxsize=4)
def _graph_at(uri: str, commit: str) -> OpenGraph:
    """A graph as a process reaches it that runs tasks of others."""
    return OpenGraph(root_for(uri, commit), read_only=True)
