"""What a statement of a pipeline may call and read: functions of rows, and the pipeline's own relations.

permitted.py     the functions, by name
plan_guard.py    a Spark of this process: the parsed plan before Spark analyses it, and the analysed one
text_guard.py    a Connect server: the parsed text, which is then exactly what the server gets
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.sql_guard.plan_guard import PlanGuard
from omnigraph.pipeline.sql_guard.refusal import NotPermitted
from omnigraph.pipeline.sql_guard.text_guard import TextGuard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NotPermitted", "SqlGuard", "sql_guard"]


class SqlGuard(Protocol):
    """Checks statements and expressions; each method raises `NotPermitted` with what is refused."""

    def check_query(self, sql: str, views: Collection[str]) -> str:
        """Return the text of a query to run; Spark has not seen it yet."""
        ...

    def check_expression(self, sql: str, views: Collection[str]) -> str:
        """Return the text of an expression to evaluate; Spark has not seen it yet."""
        ...

    def check_frame(self, frame: DataFrame, views: Collection[str], base: str | None = None) -> None:
        """Check what Spark made of checked texts; rows below the alias `base` are not looked at."""
        ...


def sql_guard(spark: SparkSession) -> SqlGuard:
    """Return the strictest guard that a session allows."""
    return TextGuard() if is_connect(spark) else PlanGuard(spark)
