"""Rows of a patch with what they omit, read from the stored rows that they are about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.patch_rows import fill_rows, missing_columns, unpack_present
from omnigraph.storage.blobs import is_blob, read_blob_bytes, to_writable
from omnigraph.storage.tables import Table
from omnigraph.storage.upsert import find_keys

_ROWS_AT_ONCE, _BLOBS_AT_ONCE = 16_384, 256


def find_row_ids(table: Table, ids: pa.ChunkedArray) -> pa.Array:
    """Return the row id of the stored row with each id; null where there is none."""
    wanted = pc.unique(ids)
    met = find_keys(table, pa.chunked_array([wanted]))
    known = wanted.take(pa.array(met.places))
    return pa.array(met.row_ids, pa.uint64()).take(pc.index_in(ids.combine_chunks(), value_set=known))


def complete_rows(table: Table, rows: pa.Table, row_ids: pa.Array, target: TableType) -> pa.Table:
    """Return the rows of a patch as whole rows.

    A row without a row id does not count, but keeps its place: it gets what another row gets.
    """
    if row_ids.null_count == len(row_ids):
        return target.schema.empty_table()
    row_ids = pc.fill_null(row_ids, row_ids.drop_null()[0])
    size = _BLOBS_AT_ONCE if any(map(is_blob, target.schema)) else _ROWS_AT_ONCE
    parts = (
        _complete_some(table, rows.slice(start, size), row_ids.slice(start, size), target)
        for start in range(0, rows.num_rows, size)
    )
    return pa.concat_tables(parts)


def _complete_some(table: Table, rows: pa.Table, row_ids: pa.Array, target: TableType) -> pa.Table:
    names = missing_columns(unpack_present(rows, target), target)
    return fill_rows(rows, _read_stored(table, row_ids, names, target.schema), target)


def _read_stored(table: Table, row_ids: pa.Array, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return some columns of stored rows, as they are written; a row may be asked for several times."""
    if not names:
        return pa.table({})
    wanted = pa.array(np.unique(row_ids.to_numpy(zero_copy_only=False)), pa.uint64())
    plain = [name for name in names if not is_blob(schema.field(name))]
    found = table.take(wanted, plain) if plain else pa.table({})
    columns = {name: found.column(name) for name in plain}
    for name in names:
        if name not in columns:
            columns[name] = pa.chunked_array([read_blob_bytes(table, name, wanted)])
    places = pc.index_in(row_ids, value_set=wanted)
    return to_writable(pa.table({name: columns[name].take(places) for name in names}), schema)
