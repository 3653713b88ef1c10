"""One Spark task for each item, whose answers come back to this process.

Without a Spark SQL plan around it, a job starts and ends in a third of the time. Connect servers accept only
such plans; for them there is `fan_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.answers import pack_answer, unpack_answer
from omnigraph.pipeline.task_environment import apply_settings, freeze_garbage_collection, task_settings
from omnigraph.pipeline.task_errors import encode_error, error_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
