"""A type as one of two compared moments has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.ancestry import Point
from omnigraph.engine.columns import ID, SYSTEM_COLUMNS
from omnigraph.engine.layout import split_key
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.pinned import explained, open_table
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
class Side:
    """A table at a moment, read with the schema of that moment."""

    graph: OpenGraph
    snapshot: Snapshot
    key: str
    table: Table
    types: Mapping[str, Type]
    """The properties that the schema names, in its order, and that are stored."""

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

    def every(self) -> pa.Table:
        """The places of all entities."""
        with self.reading():
            return self.table.scan([ID, ROW], ordered=False).cast(PLACES)

    def places(self, row_ids: pa.Array) -> pa.Table:
        """The places of those entities that these rows still hold."""
        return self._read(row_ids, [ID, ROW]).cast(PLACES)

    def rows(self, row_ids: pa.Array) -> pa.Table:
        """The entities in these rows, in this order; Blobs as bytes."""
        return self._read(row_ids, [*self.system, *self.types])

    def _read(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        """The rows that are there, in the order asked for."""
        if not len(row_ids):
            return pa.schema([self._field(name) for name in columns]).empty_table()
        # A version that was not read before has to learn first where each of its rows is, all of them.
        # A filter does not need that. It is also the only way to the bytes of Blobs.
        if len(row_ids) <= FEW or not set(self.blobs).isdisjoint(columns):
            return self._filtered(row_ids, columns)
        with self.reading():
            return self.table.take(row_ids, columns)

    def _filtered(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        wanted = ", ".join(map(str, row_ids.to_pylist()))
        read = list(dict.fromkeys([*columns, ROW]))
        with self.reading():
            found = self.table.scan(read, where=f"{ROW} IN ({wanted})", blob_bytes=bool(self.blobs))
        at = pc.index_in(row_ids, value_set=found.column(ROW).combine_chunks())
        return found.take(at.drop_null()).select(columns)

    def _field(self, name: str) -> pa.Field:
        if name == ROW:
            return PLACES.field(ROW)
        return pa.field(name, pa.large_binary()) if name in self.blobs else self.table.schema.field(name)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Tells a version that was cleaned up from a store that fails."""
        try:
            yield
        except StorageFailure as failure:
            raise explained(self.graph, self.snapshot, self.key, failure) from failure
