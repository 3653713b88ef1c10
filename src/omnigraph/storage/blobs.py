"""Columns of large bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lance
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InternalError
from omnigraph.storage.tables import Table


def blob_field(name: str, *, nullable: bool) -> pa.Field:
    """A column whose bytes are kept beside the rows and read on demand."""
    return lance.blob_field(name, nullable=nullable)


def to_writable(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows read from a table in the columns they are written with.

    Blobs must have been read as bytes. An ordinary scan gives only where they lie, which Arrow would cast
    without a word to blobs that have no bytes.
    """
    fields = [schema.field(name) for name in rows.column_names]
    columns = [_cast_column(rows.column(field.name), field) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
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


def read_blob_bytes(table: Table, column: str, row_ids: pa.Array) -> pa.Array:
    """Return the bytes of one Blob column by row ids, in their order; null where there is none."""
    with table.access.call("take", table.uri):
        # A row address comes with each value; the order asked for makes it superfluous.
        found = table.native.read_blobs(column, ids=row_ids, preserve_order=True)
    return pa.array([data for _, data in found], pa.large_binary())


def blob_sizes(described: pa.Array) -> pa.Array:
    """How many bytes each Blob has, by what a scan or take says of it."""
    return described.field("size").fill_null(0)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One Blob as a row has it; its bytes are read from where they lie, a part at a time."""

    table: Table
    column: str
    row_id: int
    size: int
    uri: str
    """Where the bytes are, if the graph only refers to them; else empty."""

    def parts(self, begin: int, end: int, part: int) -> Iterator[bytes]:
        """The bytes of a range, so many at a time."""
        with self.table.access.call("take", self.table.uri):
            (file,) = self.table.native.take_blobs(self.column, ids=[self.row_id])
        assert file is not None, "a Blob that is described has bytes"
        with file:
            for at in range(begin, end, part):
                with self.table.access.continue_call("take", self.table.uri):
                    file.seek(at)
                    data = bytes(file.read(min(part, end - at)))
                yield data


def open_blob(table: Table, column: str, row_id: int, described: Mapping[str, Any]) -> StoredBlob:
    """A Blob by what a scan says of it."""
    return StoredBlob(table, column, row_id, int(described["size"]), str(described["blob_uri"]))
