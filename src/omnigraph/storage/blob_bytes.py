"""The bytes of Blobs that a scan only describes."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.storage.tables import Table


def blob_bytes(table: Table, column: str, row_ids: pa.Array) -> pa.Array:
    """The bytes of one Blob column by row ids, in their order; null where there is none."""
    with table.access.call("take", table.uri):
        # A row address comes with each value; the order asked for makes it superfluous.
        found = table.native.read_blobs(column, ids=row_ids, preserve_order=True)
    return pa.array([data for _, data in found], pa.large_binary())


def blob_sizes(described: pa.Array) -> pa.Array:
    """How many bytes each Blob has, by what a scan or take says of it."""
    return described.field("size").fill_null(0)
