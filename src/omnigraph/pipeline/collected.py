"""One Spark task for each item, whose answers come back to this process.

Without a plan of Spark's SQL around it, a job begins and ends in a third of the time. Servers know nothing
but such plans; for them there is `fan_out`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.carried import carried
from omnigraph.pipeline.settled import settled
from omnigraph.pipeline.task_settings import task_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def collected(spark: SparkSession, items: Sequence[Any], task: Callable[[Any], Any]) -> Iterator[Any]:
    """What `task(item)` returns, in the order of the items; `spark` is this process's own.

    The task, the items and the answers travel pickled. An `OmnigraphError` that a task raises arrives whole
    in a `watched` block.
    """
    numbers = spark.sparkContext.parallelize(range(len(items)), len(items))
    answers: list[bytes] = numbers.mapPartitions(_Work(items, task, task_settings(spark))).collect()
    return map(pickle.loads, answers)


class _Work:
    """What a Spark task does: a partition is the number of an item."""

    def __init__(self, items: Sequence[Any], task: Callable[[Any], Any], settings: Mapping[str, str]) -> None:
        self._items = items
        self._task = task
        self._settings = settings

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        os.environ.update(self._settings)
        try:
            for number in numbers:
                yield pickle.dumps(self._task(self._items[number]))
        except OmnigraphError as error:
            raise carried(error) from None
        settled()
