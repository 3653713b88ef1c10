"""Steps of tasks that follow on each other, put together: rows go through Spark once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.pipeline.fan_out import Work, in_tasks
from omnigraph.pipeline.source import spark_form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tasked:
    """Rows that tasks make of a DataFrame; theirs is made when it is first asked for."""

    def __init__(self, spark: SparkSession, source: DataFrame, work: Work, shape: pa.Schema) -> None:
        self._spark = spark
        self._source = source
        self._work = work
        self._shape = shape

    def then(self, work: Work, shape: pa.Schema) -> Tasked:
        """What further work makes of these rows, by the same tasks."""
        return Tasked(self._spark, self._source, _Both(self._work, work), shape)

    @property
    def columns(self) -> list[str]:
        """What the rows have."""
        return list(self._shape.names)

    @cached_property
    def frame(self) -> DataFrame:
        """The rows for Spark: the same however often it is asked for, so that Spark sees that they are."""
        return in_tasks(self._spark, self._source, self._work, spark_form(self._shape))


@dataclass(frozen=True, slots=True)
class _Both:
    """Work on what other work has made."""

    first: Work
    second: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return self.second(iter(self.first(batches)))
