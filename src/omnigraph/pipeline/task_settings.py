"""What tasks need to know of the environment of whoever asked for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.pipeline.connection import server_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How a store is reached and how we behave; anything else stays at home.
PREFIXES = ("AWS_", "OMNIGRAPH_")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def task_settings(spark: SparkSession) -> Mapping[str, str]:
    """Settings that travel with a job to other processes of this machine.

    A warm server was started from another shell, and a Spark of our own with what held at that time. A
    cluster has an environment of its own and gets nothing.
    """
    host = server_host(spark)
    here = str(spark.sparkContext.master).startswith("local") if host is None else host in _LOOPBACK
    if not here:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}


def taken_along(settings: Mapping[str, str]) -> None:
    """Let settings that travelled with a job hold in the process that runs a part of it.

    The process is used again for other jobs, so what it kept of theirs is replaced, not added to.
    """
    os.environ.update(settings)
