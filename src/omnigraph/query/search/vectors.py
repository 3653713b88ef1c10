"""Euclidean distances of stored vectors to a query, and the nearest of them, exactly.

A distance is computed from the differences in 64 bits. The usual short cut, |a|^2 - 2ab + |b|^2 in 32
bits, loses everything where vectors are close; here it only decides which rows are worth an exact look,
and by bounds of its error, so that no row is missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
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


def compute_distances(query: Vector, vectors: NDArray[np.float32]) -> Distances:
    """The distance of each vector to the query; 0 exactly when they are equal."""
    found = np.empty(len(vectors), dtype=np.float64)
    wide = query.astype(np.float64)
    step = max(1, _CHUNK_BYTES // max(1, vectors.shape[1] * wide.itemsize))
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        for begin in range(0, len(vectors), step):
            difference = vectors[begin : begin + step] - wide
            np.vecdot(difference, difference, out=found[begin : begin + step])
    return np.sqrt(found, out=found)


def are_exact_enough(near: Distances, chosen: NDArray[np.bool_], count: int) -> bool:
    """Whether distances of 32 bits were enough to find these rows, and among them the nearest `count` chosen.

    In 32 bits the squares of tiny distances are 0 and those of huge ones infinite: they are all alike. It is
    enough that the farthest of all is no tiny one, and the last of the nearest no huge one.
    """
    low, high = _FAITHFUL
    with np.errstate(invalid="ignore"):
        squared = np.square(near)
        return bool(np.fmax.reduce(squared) >= low and find_smallest(squared[chosen], count) <= high)


def find_nearest(
    vectors: Vectors, squares: Vector | None, query: Vector, count: int, among: Positions | None
) -> tuple[Positions, Distances]:
    """The `count` nearest positions and all that are as near as the last of them, in no order.

    `among` are the positions to choose from, ascending, None for all; `squares` makes large choices fast.
    """
    positions = _find_candidates(vectors, among)
    if squares is not None and len(positions) > max(_FEW, count):
        positions = _find_promising(vectors, squares, query, count, positions)
    whole = len(positions) == len(vectors.values)
    near = compute_distances(query, vectors.values if whole else vectors.values[positions])
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
