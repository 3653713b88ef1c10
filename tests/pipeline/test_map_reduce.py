"""Rows with equal keys meet, whatever task they come from and however many buckets there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.pipeline.map_reduce import emit, map_reduce
from omnigraph.pipeline.progress import watch_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = pa.schema([("key", pa.string()), ("left", pa.int64()), ("right", pa.int64())])
ITEMS = [range(start, start + 50) for start in range(0, 200, 40)]


@pytest.mark.parametrize("buckets", [1, 3, 40])
def test_all_rows_of_a_key_reach_one_reducer(spark: SparkSession, buckets: int) -> None:
    def mapper(numbers: range) -> Iterator[pa.RecordBatch]:
        keys = pa.table({"key": [f"key-{number}" for number in numbers]})
        yield from emit("left", keys, "key", buckets)
        yield from emit("right", keys.slice(0, 10), "key", buckets)

    def reducer(arrived: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        left = Counter(arrived["left"]["key"].to_pylist())
        right = Counter(arrived["right"]["key"].to_pylist() if "right" in arrived else [])
        rows = [(key, count, right[key]) for key, count in left.items()]
        yield pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=COUNTS)

    with watch_stage(spark, "count"):
        found = map_reduce(spark, ITEMS, mapper, reducer, COUNTS, buckets).toArrow()
    left = Counter(f"key-{number}" for numbers in ITEMS for number in numbers)
    right = Counter(f"key-{number}" for numbers in ITEMS for number in numbers[:10])
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(
        (key, count, right[key]) for key, count in left.items()
    )


def test_buckets_without_rows_are_not_reduced(spark: SparkSession) -> None:
    def mapper(item: int) -> Iterator[pa.RecordBatch]:
        yield from emit("only", pa.table({"key": ["same", "same"]}), "key", 30)

    def reducer(arrived: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        rows = pc.count(arrived["only"]["key"]).as_py()
        yield pa.record_batch([["same"], [rows], [0]], schema=COUNTS)

    with watch_stage(spark, "count"):
        found = map_reduce(spark, [1, 2, 3], mapper, reducer, COUNTS, 30).toArrow()
    assert found["left"].to_pylist() == [6]


def test_nothing_emitted_is_nothing_reduced(spark: SparkSession) -> None:
    with watch_stage(spark, "count"):
        found = map_reduce(spark, [1], lambda item: [], lambda arrived: [], COUNTS, 4).toArrow()
    assert found.num_rows == 0
