"""One task per item, and whatever a task says arrives as it said it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from omnigraph.errors import BranchNotFound, InternalError, PipelineFailed, PipelineWorkerLost
from omnigraph.pipeline.fan_out import conform, fan_out
from omnigraph.pipeline.progress import watch_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = pa.schema([("item", pa.int64()), ("partition", pa.int64())])


def test_spark_learns_how_much_tasks_will_make(spark: SparkSession) -> None:
    """Otherwise it takes the largest table for one that may be sent whole to every task."""

    def task(item: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[item], [item]], schema=NUMBERS)

    many, few = (fan_out(spark, [10, 20, 30], task, NUMBERS, values) for values in (3_000_001, 3))
    assert [sorted(tuple(row) for row in one.collect()) for one in (many, few)] == [
        [(10, 10), (20, 20), (30, 30)]
    ] * 2
    plans = [one.alias("a").join(one.alias("b"), "item") for one in (many, few)]
    kinds = [plan._jdf.queryExecution().sparkPlan().toString() for plan in plans]
    assert ["BroadcastHashJoin" in kind for kind in kinds] == [False, True]


def test_each_item_has_a_task_of_its_own(spark: SparkSession) -> None:
    def task(item: int) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task_of_spark = TaskContext.get()
        assert task_of_spark is not None
        yield pa.record_batch([[item], [task_of_spark.partitionId()]], schema=NUMBERS)

    with watch_stage(spark, "numbers"):
        found = fan_out(spark, [10, 20, 30, 40, 50], task, NUMBERS).toArrow()
    assert sorted(zip(found["item"].to_pylist(), found["partition"].to_pylist(), strict=True)) == [
        (10, 0),
        (20, 1),
        (30, 2),
        (40, 3),
        (50, 4),
    ]


def test_no_items_make_an_empty_frame_of_the_schema(spark: SparkSession) -> None:
    found = fan_out(spark, [], lambda item: [], NUMBERS).toArrow()
    assert (found.num_rows, found.schema.names) == (0, ["item", "partition"])


def test_other_widths_are_cast_and_columns_put_in_order(spark: SparkSession) -> None:
    def task(item: str) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"b": pa.array([item], pa.large_string()), "a": pa.array([7], pa.int64())})

    with watch_stage(spark, "casts"):
        found = fan_out(spark, ["x"], task, "a int, b string").toArrow()
    assert found.to_pylist() == [{"a": 7, "b": "x"}]
    assert found.schema.types == [pa.int32(), pa.string()]


def test_a_batch_without_a_column_says_which() -> None:
    with pytest.raises(InternalError, match="no column 'partition', only item"):
        conform(pa.record_batch({"item": [1]}), NUMBERS)


def test_an_error_of_ours_arrives_whole(spark: SparkSession) -> None:
    def task(item: str) -> Iterator[pa.RecordBatch]:
        if item == "work":
            raise BranchNotFound(item)
        yield pa.record_batch([[0], [0]], schema=NUMBERS)

    with pytest.raises(BranchNotFound) as caught, watch_stage(spark, "read"):
        fan_out(spark, ["work"], task, NUMBERS).toArrow()
    assert caught.value.to_json() == BranchNotFound("work").to_json()


def test_any_other_error_is_reported_in_one_line(spark: SparkSession) -> None:
    def task(item: str) -> Iterator[pa.RecordBatch]:
        if item == "seven":
            raise ValueError(f"item {item} is odd")
        yield pa.record_batch([[0], [0]], schema=NUMBERS)

    with pytest.raises(PipelineFailed) as caught, watch_stage(spark, "parse"):
        fan_out(spark, ["seven"], task, NUMBERS).toArrow()
    assert str(caught.value) == "stage 'parse' failed: ValueError: item seven is odd"


def test_a_worker_that_is_killed_is_reported_as_killed(spark: SparkSession) -> None:
    def task(item: int) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    with pytest.raises(PipelineWorkerLost) as caught, watch_stage(spark, "parse"):
        fan_out(spark, [1], task, NUMBERS).toArrow()
    assert "\n" not in str(caught.value)
    assert caught.value.remedy is not None
