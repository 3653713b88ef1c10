"""The process that runs a task: the settings of the caller, and its garbage collection."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from omnigraph.pipeline.connection import server_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How a store is reached and how omnigraph behaves; other variables are not passed on.
PREFIXES = ("AWS_", "OMNIGRAPH_")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def task_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the settings that a job passes to other processes on this machine.

    A warm server was started from another shell, and the Spark of this process with the settings of that
    time. A cluster has its own environment and gets nothing.
    """
    host = server_host(spark)
    here = str(spark.sparkContext.master).startswith("local") if host is None else host in _LOOPBACK
    if not here:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}


def apply_settings(settings: Mapping[str, str]) -> None:
    """Set the settings of a job in the process that runs one of its tasks.

    The process is reused for other jobs, so their values are replaced.
    """
    os.environ.update(settings)


@cache
def freeze_garbage_collection() -> None:
    """Exclude everything that a worker process has loaded by the end of its first task from collections.

    Spark makes its workers collect garbage after each task. Ours hold large packages that never become
    garbage, and scanning them takes longer than many a task.
    """
    gc.collect()
    gc.freeze()
