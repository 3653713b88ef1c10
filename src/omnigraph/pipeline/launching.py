"""A JVM that is just being started must not outlive a start that is given up.

PySpark waits for a file in which the JVM says where it listens, and removes the folder of that file when the
waiting ends. Interrupted meanwhile it forgets the JVM, which then can tell nobody where it is, and stays.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.ctrl_c import postponed


@contextmanager
def ended_with_its_start() -> Iterator[None]:
    """Start a Spark in this block; when that is interrupted or fails, its JVM is ended and forgotten."""
    from pyspark import SparkContext, java_gateway

    begun: list[subprocess.Popen[Any]] = []

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        with postponed():  # or it would be there, and nobody would know it
            begun.append(subprocess.Popen(*arguments, **options))
        return begun[-1]

    launcher: Any = java_gateway
    launcher.Popen = started
    try:
        yield
    except BaseException:
        for process in begun:
            process.kill()
            process.communicate()
        if begun:
            # The next session starts a JVM of its own, instead of asking this one.
            context: Any = SparkContext
            context._gateway = context._jvm = context._active_spark_context = None  # noqa: SLF001
        raise
    finally:
        launcher.Popen = subprocess.Popen
