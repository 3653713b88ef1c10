"""The Spark behind a session: in this process or a Connect server, its host and its task slots."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.pipeline.failures import translate_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT = 15002
"""Of a Connect server whose address has none."""

_PARTS = re.compile(r"splits=(?:Some\()?(\d+)")
_UNKNOWN_PARALLELISM = 4
"""Assumed for a server that does not report it."""


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Connect server; there is no SparkContext then."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def close_before_exit(spark: SparkSession) -> SparkSession:
    """Close the connection of a session before the interpreter exits, and return the session.

    Otherwise the session closes it after the threads of the connection are gone, and may wait for ever.
    """
    if is_connect(spark):
        weakref.finalize(spark, spark.client.close)
    return spark


def limit_retries(spark: SparkSession) -> None:
    """Let calls to a server that is gone fail after about 15 seconds: Spark repeats them for over 10 minutes.

    A server that was restarted does not know the session, so longer retries would only help a network that is
    down.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client: Any = spark.client
    client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5_000)])


def server_host(spark: SparkSession) -> str | None:
    """The machine of the Connect server; none for a Spark of this process."""
    client: Any = spark.client if is_connect(spark) else None
    return None if client is None else str(client.host)


def server_address(spark: SparkSession) -> str | None:
    """The address of the Connect server as in `sc://host:port`; none for a Spark of this process."""
    if not is_connect(spark):
        return None
    # The public `host` of a client leaves out the port.
    client: Any = spark.client
    return f"sc://{client._builder.endpoint}"  # noqa: SLF001


def parse_address(url: str) -> str:
    """Return `sc://host:port` of the address of a Connect server, without its parameters."""
    parts = urlsplit(url)
    return f"sc://{parts.hostname}:{parts.port or CONNECT_PORT}"


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks the Spark of a session runs at the same time."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # A server reports it only indirectly: by its default number of partitions.
    numbers: Any = spark.range(1)
    with translate_failures("plan"):
        found = _PARTS.search(numbers._explain_string(mode="simple"))  # noqa: SLF001 - `explain` prints
    return int(found.group(1)) if found else _UNKNOWN_PARALLELISM
