"""The stored rows that an update takes, read as far as they may be written.

How many they are and how large is known before the bytes of a Blob are read: a scan says how long each is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.pending_rows import Evaluate, PendingRows
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.rows.blobs import is_blob
from omnigraph.engine.rows.predicate_sql import one_of
from omnigraph.storage.blob_bytes import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table

_ROW_ID = "_rowid"


def read_matched_rows(
    table: Table, pending: PendingRows, where: str, wanted: Evaluate, assigned: Collection[str]
) -> pa.Table:
    """The rows that an update matches, pending ones last, without the columns that it assigns."""
    schema = pa.schema([field for field in pending.target.schema if field.name not in assigned])
    blobs = [field.name for field in filter(is_blob, schema)]
    size, parts = 0, []
    for part in _read_visible(table, pending, where, schema.names, with_row_ids=bool(blobs)):
        parts.append(part)
        size += _size(part, blobs)
        count = sum(part.num_rows for part in parts)
        if count > pending.room:
            count = _count_all(table, pending, where, wanted)
        pending.require_room(count, size)
    stored = _fill_blob_bytes(table, pa.concat_tables(parts), blobs) if parts else schema.empty_table()
    return pending.read(stored, wanted)


def _read_visible(
    table: Table, pending: PendingRows, where: str, columns: Sequence[str], *, with_row_ids: bool
) -> Iterator[pa.Table]:
    """The stored rows that nothing pending hides, some at a time; at most one more than there is room for."""
    most = pending.room + 1 + len(pending.hiding)
    for batch in table.batches(columns, where=where, limit=most, row_ids=with_row_ids):
        yield pending.unhidden(pa.Table.from_batches([batch]))


def _size(rows: pa.Table, blobs: Sequence[str]) -> int:
    described = (blob_sizes(chunk) for name in blobs for chunk in rows.column(name).chunks)
    plain = rows.drop_columns([*blobs, _ROW_ID]) if blobs else rows
    return int(plain.nbytes) + sum(int(pc.sum(sizes, min_count=0).as_py()) for sizes in described)


def _count_all(table: Table, pending: PendingRows, where: str, wanted: Evaluate) -> int:
    """Count all rows that an update matches, for the error that they are too many."""
    if not len(pending.hiding):
        return table.count(where)
    unhidden = f"({where}) AND NOT ({one_of(ID, pending.hiding.to_pylist())})"
    return table.count(unhidden) + int(pc.sum(wanted(pending.rows()), min_count=0).as_py())


def _fill_blob_bytes(table: Table, rows: pa.Table, blobs: Sequence[str]) -> pa.Table:
    """The rows with the bytes of Blobs in the place of what was said of them."""
    if not blobs:
        return rows
    row_ids = rows.column(_ROW_ID).combine_chunks()
    for name in blobs:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, read_blob_bytes(table, name, row_ids))
    return rows.drop_columns([_ROW_ID])
