"""Rows that give only some of their properties: the stored row with their id has the others.

One column says for each row which of the others are given. So what reads files, waits in pieces and travels
to tasks needs to know nothing else about patches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.violations import Flags

PRESENT = ":present"
"""A bit for each column but the id, in their order; no property can have this name."""


def patch_columns(target: TableType) -> list[str]:
    """Return the columns that a patch may give or omit."""
    return [name for name in target.schema.names if name != ID]


def patch_schema(target: TableType) -> pa.Schema:
    """Return the columns of a patch: those of the table, any of which may be missing, and the bits."""
    width = -(-len(patch_columns(target)) // 8)
    columns = [field.with_nullable(True) for field in target.schema]
    return pa.schema([*columns, pa.field(PRESENT, pa.binary(width))])


def pack_present(present: Flags) -> pa.Array:
    """Return the bits of rows; `present` has a row for each, and a column for each of `patch_columns`."""
    packed = np.packbits(present, axis=1)
    rows, width = packed.shape
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(packed.tobytes())])


def unpack_present(rows: pa.Table, target: TableType) -> Flags:
    """Return for each row and each of `patch_columns` whether the row gives it."""
    columns = len(patch_columns(target))
    bits = rows.column(PRESENT).combine_chunks()
    if isinstance(bits, pa.ChunkedArray):  # Arrow keeps a column without chunks as it is
        bits = pa.concat_arrays(bits.chunks) if bits.num_chunks else pa.array([], bits.type)
    width = bits.type.byte_width
    body = bits.buffers()[1]
    if not len(bits) or body is None:
        return np.zeros((0, columns), np.bool_)
    packed = np.frombuffer(body, np.uint8)[bits.offset * width : (bits.offset + len(bits)) * width]
    return np.unpackbits(packed.reshape(-1, width), axis=1, count=columns).astype(np.bool_)


def missing_columns(present: Flags, target: TableType) -> list[str]:
    """Return the columns that at least one row takes from its stored row."""
    return [name for name, given in zip(patch_columns(target), present.T, strict=True) if not given.all()]


def fill_rows(rows: pa.Table, stored: pa.Table, target: TableType) -> pa.Table:
    """Return whole rows: what the rows give, and the remainder of the stored row at the same place.

    `stored` has the columns that some row does not give, as they are written.
    """
    present = unpack_present(rows, target)
    columns = {ID: rows.column(ID)}
    for name, given in zip(patch_columns(target), present.T, strict=True):
        columns[name] = rows.column(name) if given.all() else _choose(given, rows, stored, name)
    arrays = [columns[name] for name in target.schema.names]
    return pa.Table.from_arrays(arrays, schema=target.schema)


def _choose(given: Flags, rows: pa.Table, stored: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    theirs = stored.column(name)
    if not given.any():
        return theirs
    own = rows.column(name)
    if isinstance(own.type, pa.BaseExtensionType):
        both = pa.concat_arrays([*theirs.chunks, *own.chunks])
        places = np.arange(len(given)) + np.where(given, len(given), 0)
        return both.take(pa.array(places))
    return pc.if_else(pa.array(given), own, theirs)
