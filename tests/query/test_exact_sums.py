"""Sums by group are those of exact arithmetic, rounded once, whatever the order and the weights."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.query.exact_sums import sums_by_group

EDGES = [
    1e308,
    -1e308,
    1.7976931348623157e308,
    2.0**1023,
    5e-324,
    2.0**-53,
    2.0**-54,
    1 + 2.0**-52,
    1e16,
    -1e16,
]
floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(EDGES), st.integers(-9, 9)
)
rows = st.lists(st.tuples(st.integers(0, 2), floats.map(float), st.sampled_from([1, 2, 3, 2**21, 2**40 + 7])))


def nearest(exact: Fraction) -> float | None:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return None


@pytest.mark.fuzz
@given(rows, st.booleans())
@example([(0, 1e308, 1), (0, 1e308, 1), (0, -1e308, 1)], False)
@example([(0, 1.0, 1), (0, 2.0**-53, 1), (0, 2.0**-106, 1)], False)
@example([(0, 1e308, 1), (0, 1e-300, 1), (0, -1e308, 1)], False)
def test_a_sum_is_exact_and_rounded_once(given_rows: list[tuple[int, float, int]], weighted: bool) -> None:
    groups = np.array([group for group, _, _ in given_rows], dtype=np.int64)
    numbers = np.array([number for _, number, _ in given_rows], dtype=np.float64)
    weights = np.array([weight for _, _, weight in given_rows], dtype=np.int64) if weighted else None
    held = [
        [(Fraction(x), w if weighted else 1) for g, x, w in given_rows if g == group] for group in range(3)
    ]
    counts = np.array([sum(w for _, w in each) for each in held], dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sums_by_group(groups, 3, numbers, weights)
        (totals, missing), (means, no_mean) = found.totals(), found.means(counts)
    for group, each in enumerate(held):
        exact = sum((x * w for x, w in each), Fraction(0))
        assert (None if missing[group] else totals[group]) == nearest(exact)
        if each:
            mean = nearest(exact / int(counts[group]))
            assert mean is not None
            assert not no_mean[group]
            assert math.isclose(means[group], mean, rel_tol=4e-16, abs_tol=5e-324)


def test_a_number_that_is_not_finite_has_no_sum() -> None:
    found = sums_by_group(np.array([0, 0, 1]), 2, np.array([1.0, math.nan, 2.0]))
    totals, missing = found.totals()
    assert missing.tolist() == [True, False]
    assert totals.tolist() == [0.0, 2.0]


def test_the_order_of_many_rows_does_not_matter() -> None:
    made = np.random.default_rng(7)
    numbers = made.normal(size=200_000) * 10.0 ** made.integers(-200, 200, 200_000)
    groups = made.integers(0, 50, 200_000)
    order = made.permutation(200_000)
    one, other = sums_by_group(groups, 50, numbers), sums_by_group(groups[order], 50, numbers[order])
    assert one.totals()[0].tolist() == other.totals()[0].tolist()
    assert one.totals()[0].tolist() == [math.fsum(numbers[groups == group]) for group in range(50)]
