"""Rows grouped by key, as Arrow: the JVM shuffles a few blobs per task, never records.

A mapper yields `emit(tag, table, key, buckets)`; the reducer then sees, bucket by bucket, every row of the
keys that fall into it, as one table for each tag. Equal keys always share a bucket; unequal ones may, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.tasks.buckets import MAX_BUCKETS, hash_keys
from omnigraph.errors import InternalError
from omnigraph.pipeline.fan_out import Item, Task, fan_out, map_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reducer = Callable[[Mapping[str, pa.Table]], Iterable[pa.RecordBatch]]

# A blob is a value of a binary column, which ends at 2 GiB for a whole batch.
BLOB_BYTES = 32 << 20
BATCH_BYTES = 64 << 20
BLOBS = pa.schema([("bucket", pa.int32()), ("tag", pa.string()), ("blob", pa.binary())])


def map_reduce(
    spark: SparkSession,
    items: Sequence[Item],
    mapper: Task[Item],
    reducer: Reducer,
    schema: pa.Schema | str,
    buckets: int,
) -> DataFrame:
    """Return what `reducer({tag: table})` yields for each bucket that a `mapper(item)` emitted rows to."""
    _check_buckets(buckets)
    blobs = fan_out(spark, items, mapper, BLOBS)
    return reduce_buckets(spark, blobs, reducer, schema, buckets)


def reduce_buckets(
    spark: SparkSession, blobs: DataFrame, reducer: Reducer, schema: pa.Schema | str, buckets: int
) -> DataFrame:
    """Return what `reducer({tag: table})` yields for each bucket of blobs that were already emitted."""
    # By the number itself and not by its hash: each partition is one bucket, so memory is bounded by that.
    placed = blobs.repartitionById(buckets, "bucket")
    return map_partitions(spark, placed, _Reduce(reducer), schema)


def emit(tag: str, table: pa.Table, key: str, buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table as blobs for the buckets of their keys; order within a bucket is kept."""
    _check_buckets(buckets)
    if table.num_rows == 0:
        return
    yield from emit_to(tag, table, hash_keys(table[key]) % np.uint64(buckets), buckets)


def emit_to(tag: str, table: pa.Table, places: NDArray[Any], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table as blobs for the given buckets, one for each row."""
    _check_buckets(buckets)
    if table.num_rows == 0:
        return
    placed = places.astype(np.uint16)
    order = np.argsort(placed, kind="stable")
    sorted_rows = table.take(pa.array(order)).combine_chunks()
    present, starts = np.unique(placed[order], return_index=True)
    ends = np.append(starts[1:], table.num_rows)
    step = max(1, BLOB_BYTES * table.num_rows // max(1, sorted_rows.nbytes))
    yield from _group_blobs(_split_blobs(tag, sorted_rows, zip(present, starts, ends, strict=True), step))


def _split_blobs(
    tag: str, rows: pa.Table, ranges: Iterable[tuple[Any, Any, Any]], step: int
) -> Iterator[tuple[int, str, bytes]]:
    for bucket, start, end in ranges:
        for at in range(int(start), int(end), step):
            yield int(bucket), tag, _pack_rows(rows.slice(at, min(step, int(end) - at)))


def _pack_rows(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _group_blobs(blobs: Iterator[tuple[int, str, bytes]]) -> Iterator[pa.RecordBatch]:
    """Blobs in batches of some size: with many buckets most of them are tiny."""
    kept: list[tuple[int, str, bytes]] = []
    size = 0
    for blob in blobs:
        if kept and size + len(blob[2]) > BATCH_BYTES:
            yield _build_batch(kept)
            kept, size = [], 0
        kept.append(blob)
        size += len(blob[2])
    if kept:
        yield _build_batch(kept)


def _build_batch(blobs: list[tuple[int, str, bytes]]) -> pa.RecordBatch:
    columns = zip(*blobs, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, BLOBS, strict=True)], schema=BLOBS
    )


class _Reduce:
    """Unpacks what arrived in a partition and hands it to the reducer, bucket by bucket."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived: dict[int, dict[str, list[pa.Table]]] = {}
        for batch in batches:
            for bucket, tag, blob in zip(*batch.select(BLOBS.names).columns, strict=True):
                tables = arrived.setdefault(bucket.as_py(), {}).setdefault(tag.as_py(), [])
                tables.append(pa.ipc.open_stream(blob.as_buffer()).read_all())
        while arrived:
            _, tables_of = arrived.popitem()
            yield from self.reducer({tag: pa.concat_tables(parts) for tag, parts in tables_of.items()})


def _check_buckets(buckets: int) -> None:
    if not 1 <= buckets <= MAX_BUCKETS:
        raise InternalError(f"rows can be grouped into 1 to {MAX_BUCKETS} buckets, not {buckets}")
