"""Sums of floats by group, exact whatever the order of rows, with array operations only.

Numbers are cut into parts that are multiples of one unit, so large that all parts together need at most 53
bits of it: such parts add up without rounding, in any order. What is cut off is cut again, until nothing is
left. The few exact sums of a group are added and rounded once. So a result follows from the numbers alone,
not from the plan that found them, and leaves the finite range only when the true sum does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import Positions

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_HUGE = 2.0**500
"""Larger numbers are added up apart, as so much smaller ones that no step overflows."""
_SHRINK = 600
_FAINT = 2.0**-1000
"""A number beside one that was huge that says no more than which side of that one the sum is on."""
_WEIGHT_BITS = 20
"""Larger weights are taken as several, each with so many bits."""
_MANTISSA = 53
_KEPT = 5
"""Parts of a sum that are kept apart while more are added: five times the digits of the result."""
_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of each group, rounded, and about what rounding left out; both without a power of 2."""

    rounded: Floats
    left: Floats
    power: Positions
    endless: NDArray[np.bool_]
    """Groups with a number that is not finite."""

    def totals(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The sum of each group, and where there is none in the finite range."""
        found = self._scale_back(self.rounded)
        missing = self.endless | np.isinf(found)
        return np.where(missing, 0.0, found), missing

    def means(self, counts: Whole) -> tuple[Floats, NDArray[np.bool_]]:
        """The sum of each group divided by a count, and where there is none; a mean is never out of range."""
        divisors = np.maximum(counts, 1).astype(np.float64)
        first = self.rounded / divisors
        # The quotient lacks what the division and the rounding of the sum left out.
        found = first + (_compute_remainder(self.rounded, first, divisors) + self.left) / divisors
        return np.clip(self._scale_back(found), -_LARGEST, _LARGEST), self.endless

    def _scale_back(self, numbers: Floats) -> Floats:
        with np.errstate(over="ignore"):
            found: Floats = np.ldexp(numbers, self.power)
        return found


def sums_by_group(groups: Positions, count: int, numbers: Floats, weights: Whole | None = None) -> Sums:
    """The sums of numbers, each taken as often as its weight says, by the number of their group."""
    endless, power = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
    if _largest_size(numbers) < _HUGE:
        return Sums(
            *_round_parts(_combine_parts(_split_sums(groups, count, numbers, weights), count)), power, endless
        )
    finite = np.isfinite(numbers)
    endless[groups[~finite]] = True
    numbers = np.where(finite, numbers, 0.0)
    huge = np.abs(numbers) >= _HUGE
    rows = np.flatnonzero(huge)
    shrunk = np.ldexp(numbers[rows], -_SHRINK)
    weighed = None if weights is None else weights[rows]
    large = _combine_parts(_split_sums(groups[rows], count, shrunk, weighed), count)
    small = _combine_parts(_split_sums(groups, count, np.where(huge, 0.0, numbers), weights), count)
    with_large = large[0] != 0
    power[with_large] = _SHRINK
    beside = [np.where(with_large, _shrink_numbers(part), part) for part in small]
    return Sums(*_round_parts(_combine_parts([*large, *beside], count)), power, endless)


LARGEST_PART = _HUGE
"""Sums of larger numbers cannot be cut into parts."""


def cut_into_parts(groups: Positions, count: int, numbers: Floats) -> list[Floats]:
    """Numbers whose sum is exactly that of each group; the numbers may come from several places.

    All are less than `LARGEST_PART`. `sums_by_group` of all parts is the same however the numbers were
    distributed over places.
    """
    return list(_split_sums(groups, count, numbers, None))


def _largest_size(numbers: Floats) -> float:
    """The size of the largest number; not a number where one of them is none."""
    return float(max(numbers.max(), -numbers.min())) if len(numbers) else 0.0


def _shrink_numbers(numbers: Floats) -> Floats:
    """Numbers as much smaller as those that were huge; what is too small then keeps its sign."""
    found = np.ldexp(numbers, -_SHRINK)
    faint = (numbers != 0) & (np.abs(found) < _FAINT)
    return np.where(faint, np.copysign(_FAINT, numbers), found)


def _split_sums(groups: Positions, count: int, numbers: Floats, weights: Whole | None) -> Iterator[Floats]:
    """Sums of parts of the numbers, each of them exact; those of the largest parts first."""
    if weights is not None:
        groups, numbers, weights = _with_small_weights(groups, numbers, weights)
    most = float(len(numbers)) if weights is None else float(weights.sum(dtype=np.float64))
    bits = max(1, math.ceil(math.log2(most)) + 1) if most > 1 else 1
    while (top := _largest_size(numbers)) > 0.0:
        unit = math.ldexp(1.0, math.frexp(top)[1] + bits)
        part = (unit + numbers) - unit
        yield np.bincount(groups, part if weights is None else part * weights, count).astype(np.float64)
        numbers = numbers - part
        if 2 * np.count_nonzero(numbers) < len(numbers):
            left = np.flatnonzero(numbers)
            numbers, groups = numbers[left], groups[left]
            weights = None if weights is None else weights[left]


def _with_small_weights(
    groups: Positions, numbers: Floats, weights: Whole
) -> tuple[Positions, Floats, Whole]:
    """The same sums with rows of smaller weights: a row for each run of bits of a weight that is not 0."""
    most = int(weights.max(initial=0))
    if most < 1 << _WEIGHT_BITS:
        return groups, numbers, weights
    found = []
    for shift in range(0, most.bit_length(), _WEIGHT_BITS):
        held = (weights >> shift) & ((1 << _WEIGHT_BITS) - 1)
        rows = np.flatnonzero(held)
        found.append((groups[rows], np.ldexp(numbers[rows], shift), held[rows]))
    one, other, third = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return one, other, third


# --- rounding once ---------------------------------------------------------------------------------


def _combine_parts(parts: Iterable[Floats], count: int) -> list[Floats]:
    """Few parts with the sum of all, each too small to change the one before it."""
    found = [np.zeros(count)]
    for part in parts:
        found = _separate_parts([*found, part])
        if len(found) > _KEPT:
            found[-2:] = [found[-2] + found[-1]]
    return found


def _round_parts(parts: list[Floats]) -> tuple[Floats, Floats]:
    """The float nearest to the sum of parts, and about what is left over, for each group."""
    first, second, third, *_ = [*parts, np.zeros_like(parts[0]), np.zeros_like(parts[0])]
    # Half way between two floats the sign of what comes behind decides, which rounding did not see.
    doubled = second * 2.0
    other = first + doubled
    wrong = (np.sign(second) * np.sign(third) > 0) & (other - first == doubled)
    return np.where(wrong, other, first), np.where(wrong, -second, second)


def _separate_parts(parts: list[Floats]) -> list[Floats]:
    """Parts with the same sum, each too small to change the one before it."""
    moved = True
    while moved:
        moved = False
        for at in reversed(range(len(parts) - 1)):
            total, error = _two_sum(parts[at], parts[at + 1])
            moved = moved or bool((total != parts[at]).any())
            parts[at], parts[at + 1] = total, error
    return parts


def _two_sum(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The rounded sum, and exactly what rounding left out."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


def _compute_remainder(dividend: Floats, quotient: Floats, divisor: Floats) -> Floats:
    """`dividend - quotient * divisor` without rounding in between."""
    product = quotient * divisor
    high, low = _split_halves(quotient)
    upper, lower = _split_halves(divisor)
    error = ((high * upper - product) + high * lower + low * upper) + low * lower
    found: Floats = (dividend - product) - error
    return found


def _split_halves(numbers: Floats) -> tuple[Floats, Floats]:
    """Numbers as sums of two with half as many digits."""
    scaled = numbers * (2.0 ** ((_MANTISSA + 1) // 2) + 1.0)
    high = scaled - (scaled - numbers)
    return high, numbers - high
