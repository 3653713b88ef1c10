"""One Spark task per item: the primitive behind nearly every stage.

Spark plans, retries and moves results. A task is a plain Python function on one item (a byte range, a row
group, a fragment) that yields Arrow batches, so it can be called without Spark as well. Records never enter
the JVM.

`collect_answers` returns the answers of tasks to this process. Without a Spark SQL plan around it, a job
starts and ends in a third of the time. Connect servers accept only such plans; for them there is `fan_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from omnigraph.errors import InternalError, OmnigraphError
from omnigraph.pipeline.task_environment import apply_settings, freeze_garbage_collection, task_settings
from omnigraph.pipeline.task_errors import encode_error, error_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


from typing import TYPE_CHECKING

from omnigraph.pipeline.answers import pack_answer, unpack_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Item = TypeVar("Item")
Task = Callable[[Item], Iterable[pa.RecordBatch]]


Work = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]

MANY_VALUES, _MOST_VALUES = 500_000, 16_000_000
"""Fewer values than the first need no hint to Spark; more than the second change none of its choices."""


def fan_out(
    spark: SparkSession, items: Sequence[Item], task: Task[Item], schema: pa.Schema | str, values: int = 0
) -> DataFrame:
    """Return a DataFrame of what `task(item)` yields, each item in its own Spark task.

    `schema` is an Arrow schema or Spark DDL; batches with other types of the same names are cast to it. The
    task and the items are pickled: pass URIs and versions, not open tables. An `OmnigraphError` that a task
    raises arrives complete in a `watch_stage` block. `values` is that of `number_items`.
    """
    numbers, work = number_items(spark, items, task, values)
    return map_partitions(spark, numbers, work, schema)


def number_items(
    spark: SparkSession, items: Sequence[Item], task: Task[Item], values: int = 0
) -> tuple[DataFrame, Work]:
    """Return the numbers of items, each in its own partition, and the work that runs the task on them.

    `values` estimates how many values that yields, rows times columns. Spark assumes that the output of tasks
    is as large as their input, and without an estimate would broadcast the largest table to every task.
    """
    count = len(items)
    claimed = min(values, _MOST_VALUES) if values > MANY_VALUES else count
    apart = max(1, claimed // max(1, count))
    numbers = spark.range(0, count * apart, 1, max(1, count))
    if apart > 1:
        # Counting to some millions is quick; only the first number of each task is kept.
        numbers = numbers.where(f"id % {apart} = 0")
    return numbers, _Items(items, task, apart)


def map_partitions(spark: SparkSession, frame: DataFrame, work: Work, schema: pa.Schema | str) -> DataFrame:
    """Run `work` on each partition of `frame`, with the caller's settings; errors come back complete."""
    shape = spark_schema(schema)
    wanted, settings, key = arrow_schema(shape), task_settings(spark), error_key()

    def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run_work(work, batches, wanted, settings, key)

    return frame.mapInArrow(run_task, shape)


def conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns and types, which Spark does not check."""
    if batch.schema.equals(wanted):
        return batch
    names = batch.schema.names
    if absent := [name for name in wanted.names if name not in names]:
        raise InternalError(f"a task yielded no column '{absent[0]}', only {', '.join(names)}")
    columns = [batch.column(field.name) for field in wanted]
    cast = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=wanted)


def spark_schema(schema: pa.Schema | str) -> Any:
    """Convert an Arrow schema or a DDL text to Spark's row type."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema) if isinstance(schema, str) else from_arrow_schema(schema)


def arrow_schema(shape: Any) -> pa.Schema:
    """The Arrow schema that Spark expects for a type of its own."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(shape, timezone="UTC")


class _Items:
    """The items of a fan-out: a partition is the number of one of them."""

    def __init__(self, items: Sequence[Any], task: Task[Any], apart: int) -> None:
        self.items = items
        self.task = task
        self.apart = apart

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.task(self.items[number // self.apart])


def _run_work(
    work: Work,
    batches: Iterator[pa.RecordBatch],
    wanted: pa.Schema,
    settings: Mapping[str, str],
    key: bytes,
) -> Iterator[pa.RecordBatch]:
    apply_settings(settings)
    try:
        for batch in work(batches):
            yield conform(batch, wanted)
    except OmnigraphError as error:
        raise encode_error(error, key) from None
    freeze_garbage_collection()


def collect_answers(spark: SparkSession, items: Sequence[Any], task: Callable[[Any], Any]) -> Iterator[Any]:
    """Return the results of `task(item)` in the order of the items; `spark` must run in this process.

    The task and the items are pickled, the answers packed by `pack_answer`. An `OmnigraphError` that a task
    raises arrives complete in a `watch_stage` block.
    """
    numbers = spark.sparkContext.parallelize(range(len(items)), len(items))
    answers: list[bytes] = numbers.mapPartitions(
        _Work(items, task, task_settings(spark), error_key())
    ).collect()
    return map(unpack_answer, answers)


class _Work:
    """What a Spark task does: a partition is the number of an item."""

    def __init__(
        self, items: Sequence[Any], task: Callable[[Any], Any], settings: Mapping[str, str], key: bytes
    ) -> None:
        self._items = items
        self._task = task
        self._settings = settings
        self._key = key

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        apply_settings(self._settings)
        try:
            for number in numbers:
                yield pack_answer(self._task(self._items[number]))
        except OmnigraphError as error:
            raise encode_error(error, self._key) from None
        freeze_garbage_collection()
