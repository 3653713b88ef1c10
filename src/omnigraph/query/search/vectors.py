"""Distances of stored vectors to a query, by the metric of their property, and the nearest of them, exactly.

A Euclidean distance is computed from the differences in 64 bits, one of directions (cosine) from those of
the vectors divided by their lengths. The usual short cut, |a|^2 - 2ab + |b|^2 in 32
bits, loses everything where vectors are close; here it only decides which rows are worth an exact look,
and by bounds of its error, so that no row is missed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema.catalog import Metric
from omnigraph.query.frame import Positions

Vector = NDArray[np.float32]
Distances = NDArray[np.float64]

_CHUNK_BYTES = 1 << 19
"""Vectors that are compared at a time: few enough for the processor's cache."""
_FEW = 4096
"""Below so many rows the exact look at all of them is as fast as the short cut."""
_BLOCK = 64
_ROUNDING = 2.0**-24
_SMALLEST = 2.0**-126
"""What a product of 32 bits can lose where it is too small for all of its digits, or for any of them."""
_FAITHFUL = 2.0**-80, 2.0**120
"""Between these a squared distance in 32 bits is one in 64 bits, rounded, however wide the vectors are."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """A column of vectors by position."""

    values: NDArray[np.float32]
    """A row for each position."""
    known: NDArray[np.bool_] | None
    """Which positions have a vector; None when all do."""

    @classmethod
    def of(cls, column: pa.Array) -> Vectors:
        """The vectors of an Arrow column, not copied."""
        width = column.type.list_size
        flat = column.values.slice(column.offset * width, len(column) * width)
        values = flat.to_numpy(zero_copy_only=False).reshape(len(column), width)
        known = pc.is_valid(column).to_numpy(zero_copy_only=False) if column.null_count else None
        return cls(values, known)

    def squares(self) -> Vector:
        """The squared length of each vector, for `nearest`."""
        with np.errstate(all="ignore"):
            lengths: Vector = np.vecdot(self.values, self.values)
        return lengths


def compute_distances(query: Vector, vectors: NDArray[np.float32], metric: Metric = "l2") -> Distances:
    """The distance of each vector to the query; the lowest is the nearest.

    Euclidean and cosine distances are 0 when both are equal; `dot` is the negative dot product. Where a
    cosine or a dot product is undefined, the distance is infinite.
    """
    found = np.empty(len(vectors), dtype=np.float64)
    wide = query.astype(np.float64)
    if metric == "cosine":
        wide = _scale_to_unit(wide)
    step = max(1, _CHUNK_BYTES // max(1, vectors.shape[1] * wide.itemsize))
    with np.errstate(all="ignore"):  # infinite minus infinite, zero by zero
        for begin in range(0, len(vectors), step):
            _measure_chunk(wide, vectors[begin : begin + step], metric, found[begin : begin + step])
    if metric == "l2":
        return np.sqrt(found, out=found)
    found[~np.isfinite(found)] = np.inf
    return found


def _measure_chunk(query: Distances, vectors: NDArray[np.float32], metric: Metric, out: Distances) -> None:
    """Squared Euclidean distances, cosine distances, or negative dot products."""
    match metric:
        case "l2":
            difference = vectors - query
            np.vecdot(difference, difference, out=out)
        case "cosine":
            # 1 - cos is half the squared difference of directions, which loses nothing where it is small.
            difference = _scale_to_unit(vectors.astype(np.float64)) - query
            np.vecdot(difference, difference, out=out)
            out /= 2
        case "dot":
            np.vecdot(vectors.astype(np.float64), query, out=out)
            np.negative(out, out=out)


def _scale_to_unit(vectors: Distances) -> Distances:
    """The vectors with the length 1; not a number where a vector has no direction."""
    with np.errstate(all="ignore"):
        scaled: Distances = vectors / np.sqrt(np.vecdot(vectors, vectors))[..., np.newaxis]
    return scaled


def are_exact_enough(
    near: Distances, chosen: NDArray[np.bool_], count: int, metric: Metric = "l2", width: int = 1
) -> bool:
    """Whether distances of 32 bits were enough to find these rows, and among them the nearest `count` chosen.

    In 32 bits the squares of tiny distances are 0 and those of huge ones infinite: they are all alike. It is
    enough that the farthest of all is no tiny one, and the last of the nearest no huge one.
    """
    if metric != "l2":
        return _are_distinguished(near, chosen, count, metric, width)
    low, high = _FAITHFUL
    with np.errstate(invalid="ignore"):
        squared = np.square(near)
        return bool(np.fmax.reduce(squared) >= low and find_smallest(squared[chosen], count) <= high)


def _are_distinguished(
    near: Distances, chosen: NDArray[np.bool_], count: int, metric: Metric, width: int
) -> bool:
    """Whether the last of the nearest is nearer than the farthest of all by more than 32 bits may err."""
    last = find_smallest(near[chosen], count)
    farthest = np.max(near)
    if not np.isfinite(last):
        return False
    size = 1.0 if metric == "cosine" else max(abs(last), abs(float(np.min(near))))
    return bool(farthest - last > 4 * (width + 4) * _ROUNDING * size)


def find_nearest(
    vectors: Vectors,
    squares: Vector | None,
    query: Vector,
    count: int,
    among: Positions | None,
    metric: Metric = "l2",
) -> tuple[Positions, Distances]:
    """The `count` nearest positions and all that are as near as the last of them, in no order.

    `among` are the positions to choose from, ascending, None for all; `squares` makes large choices fast.
    """
    positions = _find_candidates(vectors, among)
    if squares is not None and len(positions) > max(_FEW, count):
        find = _find_promising if metric == "l2" else partial(_find_promising_products, metric)
        positions = find(vectors, squares, query, count, positions)
    whole = len(positions) == len(vectors.values)
    near = compute_distances(query, vectors.values if whole else vectors.values[positions], metric)
    if len(near) <= count:
        return positions, near
    within = near <= find_smallest(near, count)
    if np.count_nonzero(within) < count:  # the rest is not a number, which is farther than everything
        within = np.ones_like(within)
    return positions[within], near[within]


def find_smallest(values: NDArray[Any], count: int) -> Any:
    """The `count`-th smallest of the values, of which there are as many or more."""
    blocks = len(values) // _BLOCK
    if blocks > count:
        # So many blocks have a value up to this one, so what lies above it does not matter.
        lows = np.fmin.reduce(values[: blocks * _BLOCK].reshape(blocks, _BLOCK), axis=1)
        bound = np.partition(lows, count - 1)[count - 1]
        if not np.isnan(bound):
            values = values[values <= bound]
    return np.partition(values, count - 1)[count - 1]


def _find_candidates(vectors: Vectors, among: Positions | None) -> Positions:
    if vectors.known is None:
        return np.arange(len(vectors.values)) if among is None else among
    return np.flatnonzero(vectors.known) if among is None else among[vectors.known[among]]


def _find_promising(
    vectors: Vectors, squares: Vector, query: Vector, count: int, positions: Positions
) -> Positions:
    """Positions among which the nearest are for certain; all of them when 32 bits are not enough."""
    whole = len(positions) == len(squares)
    with np.errstate(all="ignore"):
        lengths = squares if whole else squares[positions]
        # Not a matrix product: its threads wait for each other when the processors are busy.
        products = np.vecdot(vectors.values if whole else vectors.values[positions], query)
        own = np.vecdot(query, query)
        about = lengths - 2 * products + own
        # A sum of `width` products errs by at most width * 2^-24 of the lengths' product, a square by
        # that of itself; the rest is the rounding of the sum of the three. Products that are too small for
        # 32 bits are lost whatever the lengths are: one of all vectors where all of them are tiny.
        terms = 4 * (len(query) + 4)
        slack = (lengths + own) * np.float32(terms * _ROUNDING) + np.float32(terms * _SMALLEST)
    if not (np.isfinite(about).all() and np.isfinite(slack).all()):
        return positions
    found: Positions = positions[about - slack <= find_smallest(about + slack, count)]
    return found


def _find_promising_products(
    metric: Metric, vectors: Vectors, squares: Vector, query: Vector, count: int, positions: Positions
) -> Positions:
    """The same for cosine and dot product: both are products, in 32 bits off by a part of the lengths."""
    whole = len(positions) == len(squares)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(squares if whole else squares[positions])
        own = np.sqrt(np.vecdot(query, query))
        about = -np.vecdot(vectors.values if whole else vectors.values[positions], query)
        terms = 4 * (len(query) + 4)
        slack = lengths * own * np.float32(terms * _ROUNDING) + np.float32(terms * _SMALLEST)
        if metric == "cosine":
            about, slack = about / (lengths * own), slack / (lengths * own)
            slack += np.float32(terms * _ROUNDING)
        low, high = (limit**0.5 for limit in _FAITHFUL)
        faithful = (lengths >= low) & (lengths <= high) & np.isfinite(about) & np.isfinite(slack)
    if not low <= own <= high or np.count_nonzero(faithful) < count:
        return positions
    bound = find_smallest(about[faithful] + slack[faithful], count)
    promising = ~faithful  # what 32 bits say nothing about has an exact look, whatever it is
    promising[faithful] = about[faithful] - slack[faithful] <= bound
    found: Positions = positions[promising]
    return found
