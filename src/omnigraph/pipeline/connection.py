"""Whether a session is a client of a Spark elsewhere, of which, and how much that does at once."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS = re.compile(r"splits=(?:Some\()?(\d+)")
_UNTOLD = 4
"""What a server is taken to do at once that does not tell."""


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Connect server; there is no SparkContext then."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def closed_in_time(spark: SparkSession) -> SparkSession:
    """The same session, whose connection to a server ends before the interpreter does.

    Else the session ends it when the threads of the connection are gone, and may wait for them for ever.
    """
    if is_connect(spark):
        weakref.finalize(spark, spark.client.close)
    return spark


def server_host(spark: SparkSession) -> str | None:
    """The machine of the Connect server; none for a Spark of this process."""
    client: Any = spark.client if is_connect(spark) else None
    return None if client is None else str(client.host)


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks the Spark of a session runs at the same time."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # A server has no better way to tell than how it would cut numbers that nobody says how to cut.
    numbers: Any = spark.range(1)
    with explained("plan"):
        found = _PARTS.search(numbers._explain_string(mode="simple"))  # noqa: SLF001 - `explain` prints
    return int(found.group(1)) if found else _UNTOLD
