"""The settings of every Spark we start: quiet logs, Arrow, no web page, times in UTC.

A process that `spark-submit` has started has a JVM already, with settings of the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from omnigraph.pipeline.cache_files import write_atomically

MEMORY_SETTING = "OMNIGRAPH_SPARK_MEMORY"
# Records stay out of the JVM, so it needs room for plans and shuffled blobs only.
DEFAULT_MEMORY = "2g"

PACKAGES_SETTING = "OMNIGRAPH_SPARK_PACKAGES"
"""Maven coordinates, separated by commas, of formats and drivers that do not ship with Spark."""

# Failures of tasks come back as exceptions, so they need not be logged as well.
_QUIET = {
    "org.apache.spark.api.python.PythonGatewayServer": "error",
    "org.apache.spark.executor.Executor": "off",
    "org.apache.spark.scheduler.TaskSetManager": "off",
    "org.apache.spark.scheduler.TaskSchedulerImpl": "off",
    "org.apache.spark.sql.connect.utils.ErrorUtils": "off",
    "org.apache.spark.util.Utils": "off",
}
_LOG_LINES = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex{0}
"""

TASK_FAILURES = 4
"""How often a task may fail before its job does, as on a cluster; Spark on one machine allows one failure."""
_LOCAL = re.compile(r"local(?:\[(?P<slots>\d+|\*)\])?")


def with_retries(master: str) -> str:
    """Return a master whose tasks are repeated, also on one machine: a worker may die for lack of memory."""
    found = _LOCAL.fullmatch(master)
    return master if found is None else f"local[{found['slots'] or 1},{TASK_FAILURES}]"


def java_options(folder: Path, *, fast_start: bool, more: Sequence[str] = ()) -> str:
    """Return the options of a JVM as one text, as Spark expects them."""
    # Compiling little starts sooner and suits many small jobs; large ones want it all.
    tuned = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if fast_start else ["-XX:+UseParallelGC"]
    log = f"-Dlog4j2.configurationFile={_log_settings(folder).as_uri()}"
    # Otherwise the database that comes with Spark leaves its log wherever it is started.
    derby = f"-Dderby.stream.error.file={folder / 'derby.log'}"
    return " ".join(
        f'"{option}"' if " " in option else option for option in [log, derby, "-Xlog:disable", *tuned, *more]
    )


CLUSTER_SETTINGS = {
    "spark.executorEnv.LANCE_LOG": "error",
    # A process whose task was cancelled ends soon, and writes nothing more.
    "spark.python.task.killTimeout": "100ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
"""For any Spark; a session that `spark-submit` starts has no others of ours."""


def spark_settings(folder: Path, *, master: str, memory: str) -> dict[str, str]:
    """Spark's settings, without those of the JVM."""
    settings = {
        **CLUSTER_SETTINGS,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": "8",
        # Otherwise Spark makes a folder of that name wherever it is started.
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    if packages := os.environ.get(PACKAGES_SETTING, "").strip():
        settings["spark.jars.packages"] = packages
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return settings


def _log_settings(folder: Path) -> Path:
    text = _LOG_LINES
    for number, (name, level) in enumerate(_QUIET.items()):
        text += f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = {level}\n"
    file = folder / "log4j2.properties"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_atomically(file, text)
    return file


_GATEWAY = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Whether `spark-submit` started this process, on this machine or in a container of a cluster."""
    return _GATEWAY in os.environ


def submitted_settings() -> dict[str, str]:
    """Return the settings of the command, of the cluster and of `spark-defaults.conf`."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 - without it the JVM is not asked
    return dict(SparkConf().getAll())
