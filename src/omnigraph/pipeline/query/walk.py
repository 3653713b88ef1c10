"""Walks over edges as joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from omnigraph.pipeline.query.join_strategy import JoinStrategy
from omnigraph.pipeline.query.tasks import FAR, NEAR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, REACHED = "start", "reached"
_HOPS, _LOOP, _ENDS, _STEPS = "hops", "loop", "ends", "steps"
HOPS_AT_ONCE = 4
"""So many hops are one job; after it, the walk ends if it reached nothing new."""


def walk_edges(
    joins: JoinStrategy, sources: DataFrame, links: DataFrame, minimum: int, maximum: int
) -> DataFrame:
    """Return what each source, a column of distinct ids, reaches in that many hops.

    A source is visited at the start and a node when it is first met; it is reached if that happens within
    the bounds. An edge of a node to itself reaches that node one hop after it was met.
    """
    ends = links.groupBy(NEAR).agg(F.collect_set(FAR).alias(_ENDS))
    source = F.col(sources.columns[0])
    met = sources.select(
        source.alias(START), source.alias(REACHED), F.lit(0).alias(_HOPS), F.lit(False).alias(_LOOP)
    )
    for hop in range(1, maximum + 1):
        met = _farther(joins, met, ends, hop, minimum)
        if hop % HOPS_AT_ONCE == 0 and hop < maximum:
            met = met.localCheckpoint()
            if met.where(F.col(_HOPS) == hop).isEmpty():
                break
    return met.where((F.col(_HOPS) >= minimum) | F.col(_LOOP)).select(START, REACHED)


def _farther(joins: JoinStrategy, met: DataFrame, ends: DataFrame, hop: int, minimum: int) -> DataFrame:
    """Everything met, and what is met one hop farther; the input is used once, so that plans stay small."""
    last = F.col(_HOPS) == hop - 1
    stay = F.struct(F.col(REACHED).alias(REACHED), F.col(_HOPS).alias(_HOPS), F.col(_LOOP).alias(_LOOP))
    steps = F.transform(
        F.coalesce(F.when(last, F.col(_ENDS)), F.array().cast("array<string>")),
        lambda end: F.struct(end.alias(REACHED), F.lit(hop).alias(_HOPS), F.lit(False).alias(_LOOP)),
    )
    beside = joins.join(met, ends, F.col(REACHED) == F.col(NEAR), "left", stored=True)
    if hop == minimum:
        loop = F.coalesce(last & F.array_contains(F.col(_ENDS), F.col(REACHED)), F.lit(False))
        beside = beside.withColumn(_LOOP, loop)
    grown = beside.select(START, F.explode(F.concat(F.array(stay), steps)).alias(_STEPS))
    return (
        grown.select(START, f"{_STEPS}.*")
        .groupBy(START, REACHED)
        .agg(F.min(_HOPS).alias(_HOPS), F.max(_LOOP).alias(_LOOP))
    )
