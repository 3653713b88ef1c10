"""The bytes of Blobs that a scan only describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.storage.tables import Table


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
