"""Rows in flight: for every bound variable the position of its node or edge, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.terms import Term
from omnigraph.query.exact_counts import multiply_counts, sum_counts

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
