"""Whether a session is a client of a Spark elsewhere, and of which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Connect server; there is no SparkContext then."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def server_host(spark: SparkSession) -> str | None:
    """The machine of the Connect server; none for a Spark of this process."""
    client: Any = spark.client if is_connect(spark) else None
    return None if client is None else str(client.host)
