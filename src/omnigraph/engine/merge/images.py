"""Entities as conflicts show them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import Image
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.write.sql import one_of
from omnigraph.engine.write.stored import KEYS_PER_SCAN
from omnigraph.lang.types import Scalar, Type
from omnigraph.lang.values import Json, json_column


def rows_with(side: Side, ids: pa.Array) -> pa.Table:
    """The entities with these ids that a side has, in the order of the ids; Blobs as bytes."""
    columns = [*side.system, *side.types]
    ids = pc.unique(ids)
    parts = []
    for start in range(0, len(ids), KEYS_PER_SCAN):
        where = one_of(ID, ids.slice(start, KEYS_PER_SCAN).to_pylist())
        with side.reading():
            parts.append(side.table.scan(columns, where=where, blob_bytes=bool(side.blobs)))
    if not parts:
        return side.rows(pa.array([], pa.uint64()))
    found = pa.concat_tables(parts)
    return found.take(pc.index_in(ids, value_set=found.column(ID).combine_chunks()).drop_null())


def aligned(side: Side, row_ids: pa.Array) -> pa.Table:
    """One row for each row id, in their order; all values are null where the row id is."""
    found = side.rows(row_ids.drop_null())
    if not row_ids.null_count:
        return found
    there = row_ids.is_valid()
    place = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    return found.take(pc.if_else(there, place, None))


def images_of(side: Side, rows: pa.Table) -> list[Image]:
    """Rows as images; a Blob is told by its size and digest, so that a list of conflicts stays small."""
    columns = [_shown(rows.column(name), type_) for name, type_ in side.types.items()]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    names = list(side.types)
    return [
        Image(dict(zip(names, found, strict=True)), source, target)
        for found, source, target in zip(values, _ends(rows, SOURCE), _ends(rows, TARGET), strict=True)
    ]


def _ends(rows: pa.Table, end: str) -> Sequence[str | None]:
    found: list[str | None] = (
        rows.column(end).to_pylist() if end in rows.column_names else [None] * rows.num_rows
    )
    return found


def _shown(column: pa.ChunkedArray, type_: Type) -> list[Json]:
    if type_.scalar is not Scalar.BLOB:
        return json_column(column, type_)
    return [None if data is None else _described(data) for data in column.to_pylist()]


def _described(data: bytes) -> str:
    return f"{len(data)} bytes, sha256:{sha256(data).hexdigest()}"
