"""Read entities as conflicts show them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import EntityImage
from omnigraph.engine.changes.table_side import ROW_ID, TableSide
from omnigraph.engine.constraints.stored_rows import KEYS_PER_SCAN
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.merge.patched_side import PatchedSide, find_places
from omnigraph.engine.rows.predicate import one_of
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json


def read_rows_by_id(side: TableSide, ids: pa.Array) -> pa.Table:
    """The entities with these ids that a side has, in the order of the ids; Blobs as bytes."""
    ids = pc.unique(ids)
    if isinstance(side, PatchedSide):
        found = find_places(side, ids)
        order = pc.index_in(ids, value_set=found.column(ID).combine_chunks()).drop_null()
        return side.read_rows(found.column(ROW_ID).combine_chunks().take(order))
    columns = [*side.system, *side.types]
    parts = []
    for start in range(0, len(ids), KEYS_PER_SCAN):
        where = one_of(ID, ids.slice(start, KEYS_PER_SCAN).to_pylist())
        with side.explain_failures():
            parts.append(side.table.scan(columns, where=where, blob_bytes=bool(side.blobs)))
    if not parts:
        return side.read_rows(pa.array([], pa.uint64()))
    found = pa.concat_tables(parts)
    return found.take(pc.index_in(ids, value_set=found.column(ID).combine_chunks()).drop_null())


def read_aligned_rows(side: TableSide, row_ids: pa.Array) -> pa.Table:
    """One row for each row id, in their order; all values are null where the row id is."""
    found = side.read_rows(row_ids.drop_null())
    if not row_ids.null_count:
        return found
    there = row_ids.is_valid()
    place = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    return found.take(pc.if_else(there, place, None))


def build_images(side: TableSide, rows: pa.Table) -> list[EntityImage]:
    """Return rows as images; a Blob is shown by size and digest, so that a list of conflicts stays small."""
    columns = [_column_values(rows.column(name), type_) for name, type_ in side.types.items()]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    names = list(side.types)
    return [
        EntityImage(dict(zip(names, found, strict=True)), source, target)
        for found, source, target in zip(values, _ends(rows, SOURCE), _ends(rows, TARGET), strict=True)
    ]


def _ends(rows: pa.Table, end: str) -> Sequence[str | None]:
    found: list[str | None] = (
        rows.column(end).to_pylist() if end in rows.column_names else [None] * rows.num_rows
    )
    return found


def _column_values(column: pa.ChunkedArray, type_: ValueType) -> list[Json]:
    if type_.scalar is not Scalar.BLOB:
        return column_to_json(column, type_)
    return [None if data is None else _describe_blob(data) for data in column.to_pylist()]


def _describe_blob(data: bytes) -> str:
    return f"{len(data)} bytes, sha256:{sha256(data).hexdigest()}"
