"""Best first, and always the same: what is equally good is in the order of ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.graph.table_types import ID
from omnigraph.query.frame import Positions
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.rows import Rows
from omnigraph.query.search.vectors import find_smallest

_FEW = 4096
"""The ids of so few rows are sorted each time; for more the order of all ids is kept."""
_PRECISION = 2.0**18


def round_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores without the last digits, in which a stored index and one in memory differ."""
    parts, powers = np.frexp(scores)
    return np.ldexp(np.round(parts * _PRECISION) / _PRECISION, powers)


def sort_best_first(
    rows: Rows,
    memory: ReadCache,
    positions: Positions,
    scores: NDArray[np.float64],
    count: int | None,
    *,
    ascending: bool,
) -> tuple[Positions, NDArray[np.float64]]:
    """The best `count` positions (None: all) in order; with `ascending`, the lowest score is the best."""
    keys = scores if ascending else -scores
    if count is not None and len(keys) > count:
        within = keys <= find_smallest(keys, count)
        if np.count_nonzero(within) >= count:  # fewer are numbers otherwise, and the others come last
            positions, scores, keys = positions[within], scores[within], keys[within]
    order = np.argsort(keys)
    tied = _find_ties(keys[order])
    if tied.any():
        # Only what is equally good needs its ids, which are far slower to sort than numbers.
        among = order[tied]
        order[tied] = among[np.lexsort((_places_by_id(rows, memory, positions[among]), keys[among]))]
    return positions[order[:count]], scores[order[:count]]


def _find_ties(keys: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of sorted keys are equal to a neighbour."""
    equal = keys[1:] == keys[:-1]
    tied: NDArray[np.bool_] = np.concatenate([equal, [False]]) | np.concatenate([[False], equal])
    return tied


def _places_by_id(rows: Rows, memory: ReadCache, positions: Positions) -> NDArray[np.int64]:
    """The place of each position in the order of ids."""
    if len(positions) <= _FEW:
        return _sort_places(rows.take(ID, positions))
    return id_places(rows, memory)[positions]


def id_places(rows: Rows, memory: ReadCache) -> NDArray[np.int64]:
    """The place of every position in the order of all ids."""
    return memory.get_or_make(
        (*rows.identity, "id order"), lambda: _sort_places(rows.ids()), lambda made: int(made.nbytes)
    )


def _sort_places(ids: pa.Array) -> NDArray[np.int64]:
    order = pc.sort_indices(ids).to_numpy()
    places = np.empty(len(ids), dtype=np.int64)
    places[order] = np.arange(len(ids))
    return places
