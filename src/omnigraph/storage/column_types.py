"""Columns that a table stores in another type than the one everything above works with.

The reference implementation stores a DateTime as Arrow's date64, which Arrow takes for whole days: it cuts
the time of day off when it casts such a value or makes a Python object of it. Above this room a DateTime is a
timestamp. A table keeps the type it has; both are 64-bit milliseconds, so a column changes its type without
being copied, where rows leave a table and where they enter it.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import pyarrow as pa

DATETIME: Final = pa.timestamp("ms", "UTC")
STORED_DATETIME: Final = pa.date64()

_DATE64: Final = STORED_DATETIME.id
_LIST: Final = pa.list_(STORED_DATETIME).id

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)

# As `engine/rows/predicate.py` writes a moment. In a text the quotes would be doubled, so no text is hit.
_MOMENT = re.compile(
    r"""(arrow_cast\((?:-?\d+|arrow_cast\('-?\d+', 'Int64'\)), )'Timestamp\(ms, "UTC"\)'(?=\))"""
)


def logical_schema(stored: pa.Schema) -> pa.Schema:
    """Return the columns of a table in the types that rows are read in."""
    for place, found in enumerate(stored.types):
        kind = _to_logical_type(found)
        if kind is not found:
            stored = stored.set(place, stored.field(place).with_type(kind))
    return stored


def to_logical(rows: _Rows) -> _Rows:
    """Return rows of a table in the types that everything above works with."""
    wanted = logical_schema(rows.schema)
    return rows if wanted is rows.schema else _view_rows(rows, wanted)


def to_stored(rows: _Rows, table: pa.Schema) -> _Rows:
    """Return rows in the types that the columns of the same name have in a table."""
    wanted = stored_schema(rows.schema, table)
    return rows if wanted is rows.schema else _view_rows(rows, wanted)


def stored_schema(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the columns of rows in the types that a table has for them."""
    wanted = rows
    for place, column in enumerate(rows):
        number = table.get_field_index(column.name)
        if number >= 0:
            kind = table.field(number).type
            if kind != column.type and _to_logical_type(kind) == column.type:
                wanted = wanted.set(place, column.with_type(kind))
    return wanted


def stored_filter(where: str | None, table: pa.Schema) -> str | None:
    """Return a filter with its moments in the type that the table stores them in."""
    if where is None or "Timestamp(ms" not in where or logical_schema(table) is table:
        return where
    return _MOMENT.sub(r"\1'Date64'", where)


def _to_logical_type(kind: pa.DataType) -> pa.DataType:
    # Numbers of kinds are compared, because every column of every batch is asked for.
    number = kind.id
    if number == _DATE64:
        return DATETIME
    if number == _LIST and kind.value_type.id == _DATE64:
        return pa.list_(kind.value_field.with_type(DATETIME))
    return kind


def _view_rows(rows: _Rows, wanted: pa.Schema) -> _Rows:
    columns = [
        column if column.type == field.type else _view_column(column, field.type)
        for column, field in zip(rows.columns, wanted, strict=True)
    ]
    return type(rows).from_arrays(columns, schema=wanted)


def _view_column(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
    return column.view(kind)
