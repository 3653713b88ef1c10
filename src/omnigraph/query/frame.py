"""Rows in flight: for every bound variable the position of its node or edge, and nothing else.

Counts of matches are 64-bit numbers: exact, or a `QueryError`. An estimate shows what surely fits. Only near
the limit is each number checked: the upper and lower halves are added up separately, which cannot overflow,
and show whether the whole sum would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import QueryError
from omnigraph.lang.query.terms import Term

Numbers = NDArray[np.int64]
Sums = Callable[[Numbers], Numbers]

_LARGEST = np.iinfo(np.int64).max
_SURELY_FITS = 2.0**62
_HALF = 32
_LOWER = (1 << _HALF) - 1


def multiply_counts(one: Numbers, other: Numbers) -> Numbers:
    """Return the products of two arrays of counts."""
    if float(one.max(initial=0)) * float(other.max(initial=0)) > _SURELY_FITS:
        _require_fit(bool((one <= _LARGEST // np.maximum(other, 1)).all()))
    return one * other


def sum_counts(numbers: Numbers) -> int:
    """Return the sum of all counts."""
    return int(checked_sums(numbers, lambda each: each.sum(keepdims=True))[0])


def checked_sums(numbers: Numbers, add: Sums, most: float | None = None) -> Numbers:
    """Return `add(numbers)`, sums of some of the numbers; raise `QueryError` when one overflows 64 bits.

    `most` is an upper bound of all sums, where one is known; without it no number may be negative.
    """
    if (float(numbers.sum(dtype=np.float64)) if most is None else most) > _SURELY_FITS:
        # A half of 32 bits leaves room for as many of them as any array has.
        upper, lower = add(numbers >> _HALF), add(numbers & _LOWER)
        whole = upper + (lower >> _HALF)
        _require_fit(bool(((whole >= -(1 << (_HALF - 1))) & (whole < 1 << (_HALF - 1))).all()))
    return add(numbers)


def _require_fit(fits: bool) -> None:
    if not fits:
        raise QueryError(
            "the number of matches does not fit 64 bits",
            remedy="bind fewer variables, or filter them more narrowly",
        )


NO_ROW = -1
"""The position of an optional variable that has no match."""

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frame:
    """The bound variables of rows in flight."""

    length: int
    variables: Mapping[str, Positions] = field(default_factory=dict)
    scores: Mapping[Term, pa.Array] = field(default_factory=dict)
    """Values of searches that ranked these rows."""
    ranks: Positions | None = None
    """The place of each row in the ranking, best first; rows of one ranked node share it."""
    weights: NDArray[np.int64] | None = None
    """How many rows each one stands for, where rows are only counted."""

    def take(self, index: Positions) -> Frame:
        """Return these rows, in this order."""
        return Frame(
            len(index),
            {name: held[index] for name, held in self.variables.items()},
            {term: held.take(pa.array(index)) for term, held in self.scores.items()},
            None if self.ranks is None else self.ranks[index],
            None if self.weights is None else self.weights[index],
        )

    def filter(self, mask: NDArray[np.bool_]) -> Frame:
        """Return the rows where the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int | None) -> Frame:
        """Return the rows of a range."""
        end = self.length if stop is None else min(stop, self.length)
        if start == 0 and end == self.length:
            return self
        return self.take(np.arange(min(start, end), end))

    def bind(self, name: str, positions: Positions) -> Frame:
        """Return the same rows with one more variable."""
        bound = {**self.variables, name: positions}
        return Frame(self.length, bound, self.scores, self.ranks, self.weights)

    def keep_only(self, names: Iterable[str]) -> Frame:
        """Return the same rows with only these variables."""
        wanted = names if isinstance(names, frozenset) else set(names)
        if self.variables.keys() <= wanted:
            return self
        kept = {name: held for name, held in self.variables.items() if name in wanted}
        return Frame(self.length, kept, self.scores, self.ranks, self.weights)

    def collapse(self, names: Iterable[str]) -> Frame:
        """Return the same rows, or one row with the weight of all when none of these variables is bound."""
        if not self.variables.keys().isdisjoint(names) or self.ranks is not None or self.length < 2:
            return self
        rows = self.length if self.weights is None else sum_counts(self.weights)
        return Frame(1, {}, {}, None, np.array([rows], dtype=np.int64))

    def multiply_weights(self, weights: NDArray[np.int64]) -> Frame:
        """Return the same rows with their weights multiplied."""
        both = weights if self.weights is None else multiply_counts(self.weights, weights)
        return Frame(self.length, self.variables, self.scores, self.ranks, both)


def all_rows(name: str, positions: Positions) -> Frame:
    """Return a row for each position of one variable."""
    return Frame(len(positions), {name: positions})


def concat_frames(frames: Sequence[Frame]) -> Frame:
    """Concatenate frames with the same variables."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0]
    return Frame(
        sum(frame.length for frame in frames),
        {name: np.concatenate([frame.variables[name] for frame in frames]) for name in first.variables},
        {term: _concat_arrays([frame.scores[term] for frame in frames]) for term in first.scores},
        None if first.ranks is None else np.concatenate([f.ranks for f in frames if f.ranks is not None]),
        None
        if first.weights is None
        else np.concatenate([f.weights for f in frames if f.weights is not None]),
    )


def _concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays)
