"""Of several rows of one entity the newest by its watermark; equally new ones contradict each other.

The row that stays says in a column whether another one is as new. What is seen of that column while
rows are written costs no second pass, and no row is needed for it: Spark forgets observations of parts of a
plan that it finds to be empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import PipelineDuplicateKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WATERMARK = "__watermark"
_TIED = "__tied"
_PLACE = "__place"


def newest_of_each(frame: DataFrame, ids: Sequence[str]) -> DataFrame:
    """Return for each entity the row with the greatest watermark, marked if another one is as new."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    names = [f"`{name}`" for name in ids]
    newest = Window.partitionBy(*names).orderBy(sql.desc(WATERMARK))
    follows = sql.lead(sql.lit(1)).over(newest).isNotNull()
    equal = sql.col(WATERMARK).eqNullSafe(sql.lead(WATERMARK).over(newest))
    tied = sql.when(follows & equal, sql.to_json(sql.struct(*names)))
    placed = frame.select("*", sql.row_number().over(newest).alias(_PLACE), tied.alias(_TIED))
    return placed.where(sql.col(_PLACE) == 1).drop(_PLACE, WATERMARK)


def without_marks(frame: DataFrame) -> DataFrame:
    """Return the rows without the column that marks ties."""
    return frame.drop(_TIED)


def tie_metrics(frame: DataFrame) -> list[Column]:
    """Return aggregates that count the ties of a frame; none where there can be no tie."""
    from pyspark.sql import functions as sql

    if _TIED not in frame.columns:
        return []
    return [sql.count(_TIED).alias("ties"), sql.max(_TIED).alias("tie")]


def refuse_ties(key: str, totals: Mapping[str, Any]) -> None:
    """Fail if the aggregates of a type have found ties."""
    if totals.get("ties"):
        raise PipelineDuplicateKey(key, int(totals["ties"]), str(totals["tie"]))
