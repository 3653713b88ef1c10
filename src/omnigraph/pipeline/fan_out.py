"""One Spark task per item: the primitive that carries nearly every stage.

Spark plans, retries and moves results. A task is a plain Python function on one item (a byte range, a row
group, a fragment) that yields Arrow batches, so it can be called without Spark as well. Records never enter
the JVM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from omnigraph.errors import InternalError, OmnigraphError
from omnigraph.pipeline.carried import carried
from omnigraph.pipeline.settled import settled
from omnigraph.pipeline.task_settings import task_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Task = Callable[[Item], Iterable[pa.RecordBatch]]


Work = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]

MANY_VALUES, _MOST_TOLD = 500_000, 16_000_000
"""So many values Spark may take for none; how many more there are than the other makes no difference."""


def fan_out(
    spark: SparkSession, items: Sequence[Item], task: Task[Item], schema: pa.Schema | str, values: int = 0
) -> DataFrame:
    """A DataFrame of what `task(item)` yields, each item in a Spark task of its own.

    `schema` is an Arrow schema or Spark DDL; batches with other types of the same names are cast to it. The
    task and the items travel pickled: give them URIs and versions, not open tables. An `OmnigraphError` that
    a task raises arrives whole in a `watched` block. `values` is that of `numbered`.
    """
    numbers, work = numbered(spark, items, task, values)
    return in_tasks(spark, numbers, work, schema)


def numbered(
    spark: SparkSession, items: Sequence[Item], task: Task[Item], values: int = 0
) -> tuple[DataFrame, Work]:
    """The numbers of items, each in a partition of its own, and the work that makes of them what is yielded.

    `values` says about how many values that will be, rows times columns. Spark takes what tasks make for as
    large as what they are given, and without a word would send the largest table whole to every task.
    """
    count = len(items)
    told = min(values, _MOST_TOLD) if values > MANY_VALUES else count
    apart = max(1, told // max(1, count))
    numbers = spark.range(0, count * apart, 1, max(1, count))
    if apart > 1:
        # To count to some millions takes a moment; only the first number of each task goes on.
        numbers = numbers.where(f"id % {apart} = 0")
    return numbers, _Items(items, task, apart)


def in_tasks(spark: SparkSession, frame: DataFrame, work: Work, schema: pa.Schema | str) -> DataFrame:
    """What `work` makes of each partition of `frame`, with errors and settings carried along."""
    shape = spark_schema(schema)
    wanted, settings = arrow_schema(shape), task_settings(spark)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run(work, batches, wanted, settings)

    return frame.mapInArrow(run, shape)


def conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns and types: Spark takes what it is given without a look at it."""
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
    """An Arrow schema or a DDL text as Spark's own type of a row."""
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


def _run(
    work: Work,
    batches: Iterator[pa.RecordBatch],
    wanted: pa.Schema,
    settings: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    # A worker process is used again for other jobs, so what it kept of theirs is replaced, not added to.
    os.environ.update(settings)
    try:
        for batch in work(batches):
            yield conform(batch, wanted)
    except OmnigraphError as error:
        raise carried(error) from None
    settled()
