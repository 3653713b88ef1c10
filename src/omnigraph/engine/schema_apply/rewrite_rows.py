"""Stored rows in the columns of another schema, a batch at a time.

Ids and ends of edges stay. Only one batch is in memory, with a bounded number of bytes of Blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.blobs import is_blob, to_writable
from omnigraph.engine.schema_apply.migration import Column, TableMigration
from omnigraph.storage.blob_bytes import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table

_ROW_ID = "_rowid"
_BLOB_BYTES = 64 * 2**20


def rewrite_rows(table: Table, change: TableMigration) -> Callable[[], pa.RecordBatchReader]:
    """Return a function that reads all rows of a table in the columns of the new schema, on each call."""

    def read() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(change.target.schema, read_batches(table, change.columns))

    return read


def read_batches(table: Table, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with these columns."""
    stored = list(dict.fromkeys(column.source for column in columns if column.source is not None))
    blobs = [column.source for column in columns if column.source is not None and is_blob(column.field)]
    schema = pa.schema([column.field for column in columns])
    for batch in table.batches(stored, row_ids=bool(blobs)):
        for piece in _split_batch(batch, blobs):
            arrays = [_values(table, piece, column) for column in columns]
            yield from to_writable(pa.Table.from_arrays(arrays, schema.names), schema).to_batches()


def _split_batch(batch: pa.RecordBatch, blobs: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch whose Blobs have a bounded number of bytes, or that have one row."""
    if not blobs:
        yield batch
        return
    weights = np.sum([blob_sizes(batch.column(name)).to_numpy() for name in blobs], axis=0)
    full = np.cumsum(weights) // _BLOB_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), batch.num_rows]
    yield from (batch.slice(begin, end - begin) for begin, end in pairwise(cuts))


def _values(table: Table, batch: pa.RecordBatch, column: Column) -> pa.Array:
    kind = pa.large_binary() if is_blob(column.field) else column.field.type
    if column.source is None:
        return _repeat(column.fill, batch.num_rows, kind)
    if is_blob(column.field):
        return read_blob_bytes(table, column.source, batch.column(_ROW_ID))
    found = _cast(batch.column(column.source), kind)
    return found if column.fill is None else pc.coalesce(found, column.fill[0])


def _repeat(one: pa.Array | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if one is None else one.take(pa.array(np.zeros(count, np.int64)))


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow takes a date64 for a whole day, and would cut off the time of day.
    plain = values.view(pa.int64()) if pa.types.is_date64(values.type) else values
    return plain.cast(kind)
