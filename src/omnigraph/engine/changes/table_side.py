"""A table at one of two compared snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import shared_root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID, SYSTEM_COLUMNS
from omnigraph.errors import StorageFailure
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class OwnedVersion:
    """A version of a table and the branch whose fork holds it; None is main's."""

    owner: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the path within one owner."""

    begin: int
    end: OwnedVersion


@dataclass(frozen=True, slots=True)
class Divergence:
    """The newest version that two have in common, and the path from there to each."""

    point: OwnedVersion
    left: tuple[Segment, ...]
    right: tuple[Segment, ...]


def find_divergence(
    forks: Forks,
    location: Location,
    left: OwnedVersion,
    right: OwnedVersion,
    incarnations: tuple[Incarnation | None, Incarnation | None],
) -> Divergence | None:
    """Return where two versions of one table diverged; None when that is unknown.

    `incarnations` are those of the forks that hold them: a fork that is created again reuses version numbers.
    """
    if left.owner == right.owner:
        is_one = left.owner is None or (incarnations[0] is not None and incarnations[0] == incarnations[1])
        return _diverge_at([left], [right], 0, 0) if is_one else None
    ours, theirs = (
        _lineage(forks, location, left, incarnations[0]),
        _lineage(forks, location, right, incarnations[1]),
    )
    if ours is None or theirs is None:
        return None
    owners = [point.owner for point in theirs]
    for at, point in enumerate(ours):
        if point.owner in owners:
            return _diverge_at(ours, theirs, at, owners.index(point.owner))
    return None


def _diverge_at(
    ours: Sequence[OwnedVersion], theirs: Sequence[OwnedVersion], at: int, there: int
) -> Divergence:
    common = OwnedVersion(ours[at].owner, min(ours[at].version, theirs[there].version))
    return Divergence(
        common, _segments(common.version, ours[: at + 1]), _segments(common.version, theirs[: there + 1])
    )


def _segments(begin: int, line: Sequence[OwnedVersion]) -> tuple[Segment, ...]:
    found = []
    for point in reversed(line):
        if begin != point.version:
            found.append(Segment(begin, point))
        begin = point.version
    return tuple(found)


def _lineage(
    forks: Forks, location: Location, point: OwnedVersion, incarnation: Incarnation | None
) -> list[OwnedVersion] | None:
    """Return a version, the one its fork was made from, and so on down to main."""
    found = [point]
    while point.owner is not None:
        fork = forks.find(location, point.owner)
        if fork is None or fork.identity != incarnation:
            # Its fork is gone; a new one may have the same name.
            return None
        point, incarnation = OwnedVersion(fork.parent, fork.parent_version), fork.identity[:-1]
        found.append(point)
    return found


ROW_ID = "_rowid"
PLACES = pa.schema([(ID, pa.string()), (ROW_ID, pa.uint64())])
"""Where entities are: their ids, and the rows that hold them."""
FEW_ROWS = 1024
"""Up to this many rows, a filter is faster than a read by row id."""


@dataclass(frozen=True, slots=True)
class _CachedRows:
    """Rows that were read, and the row ids that were requested; one without a row is deleted."""

    row_ids: pa.Array
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class TableSide:
    """A table at a snapshot, read with the schema of that snapshot."""

    graph: OpenGraph
    snapshot: Snapshot
    key: str
    table: Table
    types: Mapping[str, ValueType]
    """The properties that the schema names, in its order, and that are stored."""
    by_place: bool = False
    """Whether rows are numbered by their places in the table, and not by their row ids."""
    _cached: list[_CachedRows] = field(default_factory=list, init=False, repr=False, compare=False)
    """The rows that were read last, if they were few."""

    @classmethod
    def of(cls, graph: OpenGraph, snapshot: Snapshot, key: str, catalog: Catalog) -> TableSide | None:
        """Return the table of a type at a snapshot; None when it has no such type."""
        kind, name = split_key(key)
        owner = catalog.nodes.get(name) if kind == "node" else catalog.edges.get(name)
        if key not in snapshot.entries or owner is None:
            return None
        table = open_table(graph, snapshot, key)
        stored = set(table.schema.names)
        types = {found.name: found.type for found in owner.properties.values() if found.name in stored}
        return cls(graph, snapshot, key, table, types)

    @property
    def owned_version(self) -> OwnedVersion:
        """Which version of the table it is."""
        entry = self.snapshot.entries[self.key]
        return OwnedVersion(entry.owner, entry.version)

    @property
    def system(self) -> tuple[str, ...]:
        """The columns that every entity of its kind has."""
        return SYSTEM_COLUMNS[split_key(self.key)[0]]

    @property
    def blobs(self) -> list[str]:
        """The properties whose bytes lie beside the rows."""
        return [name for name, type_ in self.types.items() if type_.scalar is Scalar.BLOB]

    def count(self) -> int:
        """Return the number of entities."""
        known = self.snapshot.entries[self.key].row_count
        return self.table.count() if known is None else known

    def scan_places(self) -> pa.Table:
        """Return the places of all entities."""
        with self.explain_failures():
            return self.table.scan([ID, ROW_ID], ordered=False).cast(PLACES)

    def number_by_place(self) -> TableSide:
        """Return the same table with rows numbered by place; tables with Blobs are only read by row id."""
        return self if self.blobs else replace(self, by_place=True)

    def read_places(self, row_ids: pa.Array) -> pa.Table:
        """Return the places of the entities that these rows still hold."""
        return self._read(row_ids, [ID, ROW_ID]).cast(PLACES)

    def read_rows(self, row_ids: pa.Array) -> pa.Table:
        """Return the entities in these rows, in this order; Blobs as bytes."""
        return self._read(row_ids, [*self.system, *self.types])

    def read_cells(self, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Return some columns of the entities in these rows, as far as the table has them."""
        columns = [name for name in names if name in self.columns]
        if not columns:
            return pa.table({})
        if not len(row_ids) or len(row_ids) > FEW_ROWS or self.by_place or self.blobs:
            return self._read(row_ids, columns)
        seen = self._find_cached(row_ids)
        if seen is None:
            return self._read_filtered(row_ids, columns)
        return _order_rows(seen, row_ids).select(columns)

    def _read(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        """The rows that are there, in the order asked for."""
        if not len(row_ids):
            return pa.schema([self._field_of(name) for name in columns]).empty_table()
        if self.by_place:
            with self.explain_failures():
                return self.table.take_offsets(np.asarray(row_ids).astype(np.int64), columns)
        if len(row_ids) <= FEW_ROWS and not self.blobs:
            return _order_rows(self._read_few(row_ids), row_ids).select(columns)
        # The first read of a version by row id loads the row id index of the whole table; a filter does not.
        # Only a filter can read the bytes of Blobs.
        if len(row_ids) <= FEW_ROWS or not set(self.blobs).isdisjoint(columns):
            return self._read_filtered(row_ids, columns)
        with self.explain_failures():
            return self.table.take(row_ids, columns)

    def _read_few(self, row_ids: pa.Array) -> pa.Table:
        """Return all columns of a few rows; a caller that reads some columns mostly reads the others next."""
        found = self._find_cached(row_ids)
        if found is None:
            found = self._read_filtered(row_ids, self.columns)
            self.cache_rows(row_ids, found)
        return found

    def _find_cached(self, row_ids: pa.Array) -> pa.Table | None:
        for seen in self._cached:
            if pc.all(pc.is_in(row_ids, value_set=seen.row_ids)).as_py():
                return seen.rows
        return None

    def cache_rows(self, row_ids: pa.Array, rows: pa.Table) -> None:
        """Cache rows that were read, with all columns, for these row ids."""
        if len(row_ids) <= FEW_ROWS and not self.blobs:
            self._cached[:] = [_CachedRows(row_ids, rows.select(self.columns))]

    @property
    def columns(self) -> list[str]:
        """All columns of a row, with its row id."""
        return [*self.system, *self.types, ROW_ID]

    def _read_filtered(self, row_ids: pa.Array, columns: list[str]) -> pa.Table:
        wanted = ", ".join(map(str, row_ids.to_pylist()))
        read = list(dict.fromkeys([*columns, ROW_ID]))
        with self.explain_failures():
            found = self.table.scan(read, where=f"{ROW_ID} IN ({wanted})", blob_bytes=bool(self.blobs))
        return _order_rows(found, row_ids).select(columns)

    def _field_of(self, name: str) -> pa.Field:
        if name == ROW_ID:
            return PLACES.field(ROW_ID)
        return pa.field(name, pa.large_binary()) if name in self.blobs else self.table.schema.field(name)

    def __reduce__(self) -> tuple[Callable[..., TableSide], tuple[Any, ...]]:
        """Pickle a side by name: other processes open it again."""
        at = self.snapshot
        small = replace(at, entries={self.key: at.entries[self.key]})
        return _reopen, (self.graph.root.uri, small, self.key, dict(self.types), self.by_place)

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Raise `HistoricalVersionReclaimed` when a read fails because the version was cleaned up."""
        try:
            yield
        except StorageFailure as failure:
            raise explain_failure(self.graph, self.snapshot, self.key, failure) from failure


def _order_rows(rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    """The rows that have these row ids, in their order."""
    at = pc.index_in(row_ids, value_set=rows.column(ROW_ID).combine_chunks())
    return rows.take(at.drop_null())


def _reopen(
    uri: str, snapshot: Snapshot, key: str, types: Mapping[str, ValueType], by_place: bool
) -> TableSide:
    # No two graphs have a commit in common.
    graph = _open_graph(uri, snapshot.commit.id if snapshot.commit else "")
    return TableSide(graph, snapshot, key, open_table(graph, snapshot, key), types, by_place)


@lru_cache(maxsize=4)
def _open_graph(uri: str, commit: str) -> OpenGraph:
    """Open the graph in a process that runs tasks."""
    return OpenGraph(shared_root(uri, commit), read_only=True)
