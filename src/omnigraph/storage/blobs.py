"""Columns of large bytes."""

from __future__ import annotations

import lance
import pyarrow as pa

from omnigraph.errors import InternalError


def blob_field(name: str, *, nullable: bool) -> pa.Field:
    """A column whose bytes are kept beside the rows and read on demand."""
    return lance.blob_field(name, nullable=nullable)


def to_writable(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows read from a table in the columns they are written with.

    Blobs must have been read as bytes. An ordinary scan gives only where they lie, which Arrow would cast
    without a word to blobs that have no bytes.
    """
    fields = [schema.field(name) for name in rows.column_names]
    columns = [_cast(rows.column(field.name), field) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not is_blob(field) or column.type.equals(field.type):
        return column.cast(field.type)
    if not pa.types.is_large_binary(column.type):
        raise InternalError(f"Blob property '{field.name}' was read without its bytes")
    parts = [_blob_array(chunk, field) for chunk in column.chunks]
    return pa.chunked_array(parts, field.type)


def _blob_array(data: pa.Array, field: pa.Field) -> pa.Array:
    layout = field.type.storage_type
    others = [pa.nulls(len(data), part.type) for part in list(layout)[1:]]
    stored = pa.StructArray.from_arrays([data, *others], fields=list(layout), mask=data.is_null())
    return pa.ExtensionArray.from_storage(field.type, stored)


def is_blob(field: pa.Field) -> bool:
    """Whether a column holds Blobs; they are the only columns with a type of their own."""
    return isinstance(field.type, pa.BaseExtensionType)
