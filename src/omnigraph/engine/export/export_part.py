"""What an export is made of: types, each with its rows in the order of their ids.

Rows are stored in the order in which they came, so a type's ids are read first, alone, and sorted; the rows
are then taken in that order, a bounded number of bytes at a time. Only ids and row ids are in memory for a
whole type. Where ids were stored in their order, which generated ids are, this reads the table once from
front to back; elsewhere each step fetches scattered rows. Sorting whole rows in runs would need the room of
the table a second time on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import EntityKind, split_key, table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID, outer_names, table_schema
from omnigraph.engine.rows.blobs import is_blob
from omnigraph.engine.rows.predicate import quoted, render_literal
from omnigraph.errors import BadRequest, CorruptGraph, StorageFailure
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.blobs import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table

_ROW_ID = "_rowid"
_FIRST_TAKE, _LARGEST_TAKE = 4096, 262_144
_TAKE_BYTES = 64 * 2**20
"""About so much of a type is fetched at once, Blobs aside; few large fetches of scattered rows cost less."""
_TEXT = ValueType(Scalar.STRING)
_SAMPLES_PER_SPAN = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """A range of ids, the first included and the end not; None where it has no bound."""

    first: str | None = None
    end: str | None = None

    @property
    def filter(self) -> str | None:
        """As Lance reads it."""
        bounds = {">=": self.first, "<": self.end}
        tests = [
            f"{quoted(ID)} {op} {render_literal(at, _TEXT)}" for op, at in bounds.items() if at is not None
        ]
        return " AND ".join(tests) or None


@dataclass(frozen=True, slots=True)
class ExportPart:
    """One type of an export."""

    kind: EntityKind
    name: str
    schema: pa.Schema
    """The columns outside the graph: `id`, the ends of an edge, the properties; Blobs as bytes."""
    types: tuple[ValueType, ...]
    """The type of each column."""
    rows: int
    columns: tuple[str, ...]
    """What the columns are called in the graph."""
    _graph: OpenGraph = field(repr=False, compare=False)
    _snapshot: Snapshot = field(repr=False, compare=False)
    _table: Table = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        """`node:Name` or `edge:Name`."""
        return table_key(self.kind, self.name)

    def batches(self, size: int, span: Span | None = None) -> Iterator[pa.RecordBatch]:
        """All rows by id, in batches of about `size` bytes, or of one row where that is larger.

        With a span, only the rows whose ids lie in it.
        """
        try:
            yield from _read_batches(self._table, self, size, None if span is None else span.filter)
        except StorageFailure as failure:
            raise explain_failure(self._graph, self._snapshot, self.key, failure) from failure

    def spans(self, rows: int) -> list[Span]:
        """Spans of ids that hold about so many rows each, in order; together they hold all ids.

        Their ends are taken from a sample: for any number of rows it needs little memory.
        """
        count = -(-self.rows // rows)
        if count <= 1:
            return [Span()]
        step = max(1, self.rows // (_SAMPLES_PER_SPAN * count))
        found = [batch.column(ID)[::step].to_pylist() for batch in self._table.batches([ID])]
        sample = sorted(chain.from_iterable(found))
        ends = sorted({sample[len(sample) * number // count] for number in range(1, count)})
        return [Span(*pair) for pair in pairwise([None, *ends, None])]


def list_parts(graph: OpenGraph, snapshot: Snapshot, chosen: Sequence[str] | None) -> list[ExportPart]:
    """The types of an export, all or the chosen ones: nodes first, then edges, each by name."""
    catalog = graph.catalog_at(snapshot)
    keys = [
        *(table_key("node", name) for name in sorted(catalog.nodes)),
        *(table_key("edge", name) for name in sorted(catalog.edges)),
    ]
    if chosen is not None:
        keys = _select_keys(keys, chosen, snapshot)
    return [_build_part(graph, snapshot, catalog, key) for key in keys]


def _select_keys(keys: Sequence[str], chosen: Sequence[str], snapshot: Snapshot) -> list[str]:
    if not chosen:
        raise BadRequest("an export of chosen types needs at least one", remedy="name a type")
    for name in chosen:
        if not any(name in (key, split_key(key)[1]) for key in keys):
            known = ", ".join(split_key(key)[1] for key in keys)
            raise BadRequest(
                f"there is no type '{name}' in snapshot '{snapshot.id}'", remedy=f"it has: {known}"
            )
    return [key for key in keys if key in chosen or split_key(key)[1] in chosen]


def _build_part(graph: OpenGraph, snapshot: Snapshot, catalog: Catalog, key: str) -> ExportPart:
    kind, name = split_key(key)
    properties = (catalog.nodes[name] if kind == "node" else catalog.edges[name]).properties
    stored = table_schema(catalog, key)
    table = open_table(graph, snapshot, key)
    return ExportPart(
        kind,
        name,
        pa.schema([*map(_exported_field, outer_names(stored, kind), stored)]),
        tuple(properties[column].type if column in properties else _TEXT for column in stored.names),
        table.count(),
        tuple(stored.names),
        graph,
        snapshot,
        table,
    )


def _exported_field(name: str, column: pa.Field) -> pa.Field:
    kind = pa.large_binary() if is_blob(column) else column.type
    return pa.field(name, kind, nullable=column.nullable)


def _read_batches(table: Table, part: ExportPart, size: int, where: str | None) -> Iterator[pa.RecordBatch]:
    row_ids = _row_ids_by_id(table, where)
    done, step = 0, _FIRST_TAKE
    while done < len(row_ids):
        wanted = row_ids[done : done + step]
        taken = table.take(pa.array(wanted), part.columns)
        if taken.num_rows != len(wanted):
            message = f"'{part.key}' lists {len(wanted)} rows and has {taken.num_rows} of them"
            raise CorruptGraph(message, object_id=part.key)
        yield from _cut_batches(table, part, taken, wanted, size)
        done += len(wanted)
        fitting = _TAKE_BYTES * len(wanted) // max(taken.nbytes, 1)
        step = max(1, min(fitting, 8 * step, _LARGEST_TAKE))


def _row_ids_by_id(table: Table, where: str | None) -> NDArray[np.uint64]:
    ids, rows = [], []
    for batch in table.batches([ID], where=where, row_ids=True):
        ids.append(batch.column(ID))
        rows.append(batch.column(_ROW_ID).to_numpy())
    if not ids:
        return np.empty(0, np.uint64)
    order: NDArray[np.uint64] = np.concatenate(rows)[pc.sort_indices(pa.chunked_array(ids)).to_numpy()]
    return order


def _cut_batches(
    table: Table, part: ExportPart, taken: pa.Table, row_ids: NDArray[np.uint64], size: int
) -> Iterator[pa.RecordBatch]:
    """Rows cut into batches; the bytes of Blobs are read for one batch at a time."""
    whole = taken.combine_chunks()
    for begin, end in pairwise(_find_cuts(whole, part, size)):
        wanted = pa.array(row_ids[begin:end])
        arrays = [
            read_blob_bytes(table, name, wanted)
            if type_.scalar is Scalar.BLOB
            else _single_chunk(whole, name).slice(begin, end - begin).cast(column.type)
            for name, type_, column in zip(part.columns, part.types, part.schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=part.schema)


def _find_cuts(rows: pa.Table, part: ExportPart, size: int) -> list[int]:
    """Where batches begin and end; a Blob weighs what it has, everything else the same in each row."""
    weights = np.full(rows.num_rows, rows.nbytes / rows.num_rows)
    for name, type_ in zip(part.columns, part.types, strict=True):
        if type_.scalar is Scalar.BLOB:
            weights += blob_sizes(_single_chunk(rows, name)).to_numpy()
    full = np.cumsum(weights) // size
    return [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), rows.num_rows]


def _single_chunk(rows: pa.Table, name: str) -> pa.Array:
    """The column, where all rows are in one chunk."""
    return rows.column(name).chunk(0)
