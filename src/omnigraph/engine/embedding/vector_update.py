"""New vectors on a branch as it is now: an update of the rows that did not change meanwhile."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.embedding.embed_job import EmbedJob, combine_chunks, read_state
from omnigraph.engine.embedding.make_vectors import NewVectors
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.write.transaction import Transaction
from omnigraph.storage.blob_bytes import read_blob_bytes
from omnigraph.storage.blobs import to_writable
from omnigraph.storage.tables import Table


def build_update(transaction: Transaction, job: EmbedJob, made: NewVectors) -> pa.Table:
    """The stored rows with their new vectors.

    Rows whose text or vector changed meanwhile, or that are gone, are skipped: the later write wins.
    """
    table = transaction.table(job.target.key)
    plain = [name for name in job.target.schema.names if name not in job.blobs]
    rows = table.take(pa.array(made.row_ids), plain)
    look = read_state(job, rows)
    # Row ids alone prove nothing: an overwritten table may use them again.
    places = pc.index_in(combine_chunks(rows.column(ID)), value_set=made.ids)
    found = places.is_valid().to_numpy(zero_copy_only=False)
    at = pc.fill_null(places, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    same = found & (look.texts == made.texts[at]) & (look.owners == made.before[at])
    kept, at = rows.filter(pa.array(same)), at[same]
    position = kept.schema.get_field_index(job.vector)
    vectors = made.vectors.take(pa.array(at))
    kept = kept.set_column(position, job.target.schema.field(job.vector), vectors)
    kept = _with_blobs(table, job, kept, pa.array(made.row_ids[at]))
    return to_writable(kept.select(job.target.schema.names), job.target.schema)


def _with_blobs(table: Table, job: EmbedJob, rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    for name in job.blobs:
        data = read_blob_bytes(table, name, row_ids) if len(row_ids) else pa.array([], pa.large_binary())
        rows = rows.append_column(name, pa.chunked_array([data]))
    return rows
