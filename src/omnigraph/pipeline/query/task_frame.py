"""Consecutive task steps fused into one, so that rows pass through Spark once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.pipeline.fan_out import Work, map_partitions
from omnigraph.pipeline.table_scan import to_spark_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TaskFrame:
    """Rows that tasks make of a DataFrame, evaluated lazily."""

    def __init__(self, spark: SparkSession, source: DataFrame, work: Work, shape: pa.Schema) -> None:
        self._spark = spark
        self._source = source
        self._work = work
        self._shape = shape

    def then(self, work: Work, shape: pa.Schema) -> TaskFrame:
        """Add further work on these rows to the same tasks."""
        return TaskFrame(self._spark, self._source, _Both(self._work, work), shape)

    @property
    def columns(self) -> list[str]:
        """What the rows have."""
        return list(self._shape.names)

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame, always the same one, so that Spark can reuse it."""
        return map_partitions(self._spark, self._source, self._work, to_spark_types(self._shape))


@dataclass(frozen=True, slots=True)
class _Both:
    """Work on what other work has made."""

    first: Work
    second: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return self.second(iter(self.first(batches)))
