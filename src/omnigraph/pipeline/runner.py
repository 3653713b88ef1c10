"""The tasks of a load on Spark: one Spark task for each item, and Arrow blobs through its shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.engine.tasks.runner import Answer, Emit, Item, Reduce
from omnigraph.pipeline.answers import pack_answer, unpack_answer
from omnigraph.pipeline.connection import is_connect, tasks_at_once
from omnigraph.pipeline.fan_out import collect_answers, fan_out
from omnigraph.pipeline.map_reduce import emit, map_reduce
from omnigraph.pipeline.progress import watch_stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWERS = pa.schema([("answer", pa.binary())])


class SparkRunner:
    """Runs the tasks of a load in a Spark session."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def cores(self) -> int:
        """How many tasks run at once."""
        return tasks_at_once(self._spark)

    def each(self, stage: str, items: Sequence[Item], task: Callable[[Item], Answer]) -> Iterator[Answer]:
        """Run one Spark task for each item."""
        if not items:
            return iter(())
        if is_connect(self._spark):
            return self._collect_answers(stage, fan_out(self._spark, items, _Each(task), ANSWERS))
        with watch_stage(self._spark, stage):
            return collect_answers(self._spark, items, task)

    def grouped(
        self,
        stage: str,
        items: Sequence[Item],
        emit: Emit[Item],
        reduce: Reduce[Answer],
        buckets: int,
        *,
        streamed: bool = False,
    ) -> Iterator[Answer]:
        """Run a map-reduce whose rows stay Arrow blobs."""
        frame = map_reduce(self._spark, items, _Emit(emit, buckets), _Reduce(reduce), ANSWERS, buckets)
        return self._stream_answers(stage, frame) if streamed else self._collect_answers(stage, frame)

    def _collect_answers(self, stage: str, frame: DataFrame) -> Iterator[Any]:
        with watch_stage(self._spark, stage):
            found = frame.toArrow()
        return (unpack_answer(answer.as_buffer()) for answer in found.column("answer"))

    def _stream_answers(self, stage: str, frame: DataFrame) -> Iterator[Any]:
        """Keep answers on the executors, and fetch them partition by partition."""
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.DISK_ONLY)
        try:
            with watch_stage(self._spark, stage):
                kept.count()
                for row in kept.toLocalIterator(prefetchPartitions=True):
                    yield unpack_answer(row[0])
        finally:
            kept.unpersist()


class _Each:
    """A task whose answer travels packed."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self._task = task

    def __call__(self, item: Any) -> Iterator[pa.RecordBatch]:
        yield _pack_row(self._task(item))


class _Emit:
    """What an item emits, on its way to the buckets."""

    def __init__(self, emit: Emit[Any], buckets: int) -> None:
        self._emit = emit
        self._buckets = buckets

    def __call__(self, item: Any) -> Iterator[pa.RecordBatch]:
        for keyed in self._emit(item):
            yield from emit(keyed.tag, keyed.rows, keyed.key, self._buckets)


class _Reduce:
    """A reduction whose answer travels packed."""

    def __init__(self, reduce: Reduce[Any]) -> None:
        self._reduce = reduce

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        yield _pack_row(self._reduce(rows))


def _pack_row(answer: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pack_answer(answer)], pa.binary())], schema=ANSWERS)
