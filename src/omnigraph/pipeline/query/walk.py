"""Walks over edges as joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from omnigraph.pipeline.query.join_strategy import JoinStrategy
from omnigraph.pipeline.query.tasks import FAR, NEAR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

START, REACHED = "start", "reached"
EDGE, NODES, EDGES = "edge", "nodes", "edges"
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


def walk_paths(
    joins: JoinStrategy, sources: DataFrame, links: DataFrame, maximum: int, *, forward: bool
) -> DataFrame:
    """Return the shortest path between each source and what it reaches in at most so many hops.

    `links` are ends and the id of the edge between them. A walk goes forward along its paths, or back from
    their ends. Of equally short paths the one is kept whose nodes come first, compared from the start.
    """
    source = F.col(sources.columns[0])
    empty = F.array().cast("array<string>")
    met = sources.select(
        source.alias(START),
        source.alias(REACHED),
        F.lit(0).alias(_HOPS),
        F.array(source).alias(NODES),
        empty.alias(EDGES),
    )
    loops = joins.join(sources, links.where(F.col(NEAR) == F.col(FAR)), source == F.col(NEAR), stored=True)
    looped = loops.select(
        source.alias(START),
        source.alias(REACHED),
        F.array(source, source).alias(NODES),
        F.array(EDGE).alias(EDGES),
    )
    onward = links.where(F.col(NEAR) != F.col(FAR)).select(NEAR, F.struct(FAR, EDGE).alias(_STEPS))
    ends = onward.groupBy(NEAR).agg(F.collect_list(_STEPS).alias(_ENDS))
    for hop in range(1, maximum + 1):
        met = _extend_paths(joins, met, ends, hop, forward=forward)
        if hop % HOPS_AT_ONCE == 0 and hop < maximum:
            met = met.localCheckpoint()
            if met.where(F.col(_HOPS) == hop).isEmpty():
                break
    found = met.where(F.col(_HOPS) > 0).select(START, REACHED, NODES, EDGES).unionByName(looped)
    # The joins of several walks in one plan would sort in one task's memory at the same time.
    return found.localCheckpoint()


def _extend_paths(
    joins: JoinStrategy, met: DataFrame, ends: DataFrame, hop: int, *, forward: bool
) -> DataFrame:
    """Everything met with its best path, and what is met one hop farther."""

    def longer(path: str, more: Column) -> Column:
        one = F.array(more)
        return (F.concat(F.col(path), one) if forward else F.concat(one, F.col(path))).alias(path)

    columns = (REACHED, _HOPS, NODES, EDGES)
    nothing = F.array().cast(f"array<struct<{FAR}:string,{EDGE}:string>>")
    steps = F.transform(
        F.coalesce(F.when(F.col(_HOPS) == hop - 1, F.col(_ENDS)), nothing),
        lambda end: F.struct(
            end[FAR].alias(REACHED),
            F.lit(hop).alias(_HOPS),
            longer(NODES, end[FAR]),
            longer(EDGES, end[EDGE]),
        ),
    )
    beside = joins.join(met, ends, F.col(REACHED) == F.col(NEAR), "left", stored=True)
    grown = beside.select(START, F.explode(F.concat(F.array(F.struct(*columns)), steps)).alias(_STEPS))
    best = grown.select(START, f"{_STEPS}.*").groupBy(START, REACHED)
    found = best.agg(F.min(F.struct(_HOPS, NODES, EDGES)).alias(_STEPS))
    return found.select(START, REACHED, f"{_STEPS}.*")


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
