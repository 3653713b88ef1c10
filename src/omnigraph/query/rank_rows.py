"""Rank rows by one search, or by two of them combined, and keep the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.lang.query.terms import Distance, Fusion, Relevance
from omnigraph.query.context import QueryContext
from omnigraph.query.frame import NO_ROW, Frame, Positions, concat_frames
from omnigraph.query.group_and_sort import sort_rows

_UNRANKED = np.iinfo(np.int64).max


def rank_by_search(context: QueryContext, frame: Frame, by: Distance | Relevance, best: int | None) -> Frame:
    """Return the rows of the best nodes, best first, each with its rank and score."""
    var = ranked_variable(by)
    rows, positions = context.rows(var), frame.variables[var]
    if rows.are_all(positions):
        kept, scores = context.scores.ranked(by, rows, None, best)  # a row for each node, in its place
        ranks = np.arange(len(kept))
    else:
        found, scores = context.scores.ranked(by, rows, _flag_positions(positions, rows.count), best)
        place = np.append(_place_positions(found, rows.count), NO_ROW)[positions]
        reached = np.flatnonzero(place >= 0)
        kept = reached[np.argsort(place[reached], kind="stable")]
        ranks = place[kept]
    return replace(
        frame.take(kept), ranks=ranks, scores={**frame.take(kept).scores, by: pa.array(scores[ranks])}
    )


def fuse_rankings(context: QueryContext, first: Frame, second: Frame, by: Fusion, best: int | None) -> Frame:
    """Return the rows of the best nodes by reciprocal rank fusion of two rankings.

    A node's rows are those of the first ranking that has it.
    """
    var = ranked_variable(by.first)
    k = context.scores.fusion_constant(by)
    places = [_entity_places(context, frame, var) for frame in (first, second)]
    order, scores = _combine_rankings(places[0], places[1], k)
    chosen = order[:best]
    rank = _place_positions(chosen, context.rows(var).count)
    only_second = np.where(places[0] < 0, rank, NO_ROW)
    parts = [_place_rows(first, var, rank, by, scores), _place_rows(second, var, only_second, by, scores)]
    return concat_frames(parts)


def ranked_variable(by: Distance | Relevance) -> str:
    """The variable whose nodes a search ranks."""
    return by.target.var if isinstance(by, Distance) else by.field.var


def _flag_positions(positions: Positions, count: int) -> NDArray[np.bool_]:
    flags = np.zeros(count, dtype=np.bool_)
    flags[positions[positions >= 0]] = True
    return flags


def _place_positions(found: Positions, count: int) -> Positions:
    """The place of each position in a list of positions; NO_ROW for those not in it."""
    place = np.full(count, NO_ROW, dtype=np.int64)
    place[found] = np.arange(len(found))
    return place


def _entity_places(context: QueryContext, frame: Frame, var: str) -> Positions:
    """The place of each node of a variable among the ranked rows, counting every node once."""
    assert frame.ranks is not None
    order = sort_rows(
        [frame.ranks], frame.length, lambda rows: [context.scope(frame.take(rows)).entity_id(var)]
    )
    positions = frame.variables[var][order]
    # Written from the last row to the first, what stays is the first row of each node.
    first = np.full(context.rows(var).count, NO_ROW, dtype=np.int64)
    first[positions[::-1]] = np.arange(len(positions) - 1, -1, -1)
    return _place_positions(positions[np.sort(first[first >= 0])], len(first))


def _combine_rankings(first: Positions, second: Positions, k: int) -> tuple[Positions, NDArray[np.float64]]:
    """Nodes of either ranking, best first, and the score of every node."""
    scores = np.zeros(len(first))
    known = np.flatnonzero((first >= 0) | (second >= 0))
    keys = []
    for places in (second[known], first[known]):
        scores[known] += np.where(places >= 0, 1.0 / (float(k) + places + 1.0), 0.0)
        keys.append(np.where(places < 0, _UNRANKED, places))
    return known[np.lexsort([*keys, -scores[known]])], scores


def _place_rows(frame: Frame, var: str, rank: Positions, by: Fusion, scores: NDArray[np.float64]) -> Frame:
    places = rank[frame.variables[var]]
    kept = np.flatnonzero(places >= 0)
    taken = Frame(frame.length, frame.variables).take(kept)
    return replace(taken, ranks=places[kept], scores={by: pa.array(scores[taken.variables[var]])})
