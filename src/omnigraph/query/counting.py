"""Numbers of matches in 64 bits: exact, or refused.

What is likely to fit is told from an estimate. Only near the limit each number is looked at: the upper and
the lower halves are added up apart, which cannot overflow, and then say whether the whole would have.
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


def products(one: Numbers, other: Numbers) -> Numbers:
    """How many there are where each of so many stands for so many."""
    if float(one.max(initial=0)) * float(other.max(initial=0)) > _SURELY_FITS:
        _require(bool((one <= _LARGEST // np.maximum(other, 1)).all()))
    return one * other


def total(numbers: Numbers) -> int:
    """All numbers added up."""
    return int(sums(numbers, lambda each: each.sum(keepdims=True))[0])


def sums(numbers: Numbers, add: Sums, most: float | None = None) -> Numbers:
    """What `add` makes of numbers, by adding some of them up, when no sum leaves 64 bits.

    `most` is what no sum can exceed, where that is known; without it no number is negative.
    """
    if (float(numbers.sum(dtype=np.float64)) if most is None else most) > _SURELY_FITS:
        # A half of 32 bits leaves room for as many of them as any array has.
        upper, lower = add(numbers >> _HALF), add(numbers & _LOWER)
        whole = upper + (lower >> _HALF)
        _require(bool(((whole >= -(1 << (_HALF - 1))) & (whole < 1 << (_HALF - 1))).all()))
    return add(numbers)


def _require(fits: bool) -> None:
    if not fits:
        raise QueryError(
            "the number of matches does not fit 64 bits",
            remedy="bind fewer variables, or filter them more narrowly",
        )
