"""Kills the JVM of a Spark start that fails or is interrupted.

PySpark waits for a file in which the JVM writes its port, and removes the folder of that file afterwards.
Interrupted meanwhile it forgets the JVM, which then is unreachable and never ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.ctrl_c import postpone_ctrl_c


@contextmanager
def kill_jvm_on_failure() -> Iterator[None]:
    """Start Spark in this block; if that fails or is interrupted, kill its JVM."""
    from pyspark import SparkContext, java_gateway

    begun: list[subprocess.Popen[Any]] = []

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        with postpone_ctrl_c():  # otherwise it could run without being in the list
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
            # The next session must start a new JVM instead of using this one.
            context: Any = SparkContext
            context._gateway = context._jvm = context._active_spark_context = None  # noqa: SLF001
        raise
    finally:
        launcher.Popen = subprocess.Popen
