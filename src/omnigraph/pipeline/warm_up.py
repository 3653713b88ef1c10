"""A small job with all usual stages; it warms up a server and trains the start-up cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.pipeline.map_reduce import emit, map_reduce
from omnigraph.pipeline.progress import watch_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ITEMS = 4
_KEYS = 100
_BUCKETS = 2
COUNTS = pa.schema([("keys", pa.int64())])


def run_warm_up_job(spark: SparkSession) -> None:
    """Run a fan-out and a shuffle; fails when Spark or its Python workers do not work."""
    with watch_stage(spark, "warm-up"):
        counts = map_reduce(spark, range(_ITEMS), _emit_keys, _count_keys, COUNTS, _BUCKETS).toArrow()
    if sum(counts["keys"].to_pylist()) != _ITEMS * _KEYS:
        raise InternalError(f"Spark gave wrong counts of a small job: {counts['keys'].to_pylist()}")


def _emit_keys(item: int) -> Iterator[pa.RecordBatch]:
    names = [f"{item}-{number}" for number in range(_KEYS)]
    yield from emit("key", pa.table({"key": names}), "key", _BUCKETS)


def _count_keys(arrived: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([[arrived["key"].num_rows]], schema=COUNTS)
