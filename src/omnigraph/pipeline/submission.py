"""A process that `spark-submit` has started: its JVM runs already, and its settings are the user's."""

from __future__ import annotations

import os

_GATEWAY = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Whether `spark-submit` started this process, on this machine or in a container of a cluster."""
    return _GATEWAY in os.environ


def submitted_settings() -> dict[str, str]:
    """Return the settings of the command, of the cluster and of `spark-defaults.conf`."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 - without it the JVM is not asked
    return dict(SparkConf().getAll())
