"""Two rankings combined by the reciprocal of the places that nodes have in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from omnigraph.pipeline.query.binding_frame import RANK, BindingFrame, Held, Slot
from omnigraph.pipeline.query.join_strategy import JoinStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FUSED_RANK, FIRST_PLACE = "fused_rank", "first_place"


def drop_scores(rows: BindingFrame) -> BindingFrame:
    """Rows with their place alone: once two rankings are combined, neither score is what they rank by."""
    slots: dict[Held, Slot] = {held: slot for held, slot in rows.slots.items() if isinstance(held, tuple)}
    kept = rows.frame.select(*(slot.column for slot in slots.values()), RANK)
    return BindingFrame(kept, slots, ranked=True)


def number_places(rows: BindingFrame, var: str, arm: str) -> DataFrame:
    """The place of each node among those that are left, counting every node once."""
    place = F.row_number().over(Window.orderBy(RANK)) - 1
    nodes = rows.frame.select(rows.id(var), RANK).distinct()
    return nodes.select(F.col(rows.id(var)).alias(f"{arm}_id"), place.alias(f"{arm}_place"))


def fuse_rankings(joins: JoinStrategy, first: DataFrame, second: DataFrame, k: int) -> DataFrame:
    """Nodes of either ranking with the sum of the reciprocals of their places, and their place by that."""
    same = F.col("first_id") == F.col("second_id")
    both = joins.join(first, second, same, "full_outer", stored=True)
    shares = [
        F.coalesce(F.lit(1.0) / (F.col(place) + F.lit(float(k)) + F.lit(1.0)), F.lit(0.0))
        for place in ("second_place", FIRST_PLACE)
    ]
    scored = both.select(
        F.coalesce("first_id", "second_id").alias("fused_id"),
        FIRST_PLACE,
        "second_place",
        (shares[0] + shares[1]).alias("fused_score"),
    )
    order = Window.orderBy(
        F.col("fused_score").desc(),
        F.col(FIRST_PLACE).asc_nulls_last(),
        F.col("second_place").asc_nulls_last(),
    )
    return scored.withColumn(FUSED_RANK, F.row_number().over(order) - 1)


def rank_rows(joins: JoinStrategy, rows: BindingFrame, var: str, chosen: DataFrame, score: str) -> DataFrame:
    """The rows of the chosen nodes, with the place and score that the two rankings give them together."""
    nodes = chosen.select(
        "fused_id", F.col(FUSED_RANK).cast("bigint").alias(FUSED_RANK), F.col("fused_score").alias(score)
    )
    same = F.col(rows.id(var)) == F.col("fused_id")
    ranked = joins.join(rows.frame.drop(RANK), nodes, same, stored=True)
    return ranked.drop("fused_id").withColumnRenamed(FUSED_RANK, RANK)
