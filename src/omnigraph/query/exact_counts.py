"""Counts of matches in 64 bits: exact, or a `QueryError`.

An estimate shows what surely fits. Only near the limit is each number checked: the upper and lower halves are
added up separately, which cannot overflow, and show whether the whole sum would.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import QueryError

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
