"""Counts up to the last one that 64 bits hold are exact, and the next one is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryError
from omnigraph.query.frame import checked_sums, multiply_counts, sum_counts

LARGEST = 2**63 - 1
counts = st.one_of(st.integers(0, 5), st.integers(2**30, 2**34), st.integers(2**60, LARGEST))


def _array(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


@given(st.lists(counts, max_size=6))
def test_a_total_is_exact_or_refused(numbers: list[int]) -> None:
    if sum(numbers) <= LARGEST:
        assert sum_counts(_array(numbers)) == sum(numbers)
    else:
        with pytest.raises(QueryError, match="does not fit 64 bits"):
            sum_counts(_array(numbers))


@given(st.lists(st.tuples(counts, counts), max_size=6))
def test_products_are_exact_or_refused(pairs: list[tuple[int, int]]) -> None:
    one, other = _array([left for left, _ in pairs]), _array([right for _, right in pairs])
    expected = [left * right for left, right in pairs]
    if max(expected, default=0) <= LARGEST:
        assert multiply_counts(one, other).tolist() == expected
    else:
        with pytest.raises(QueryError, match="does not fit 64 bits"):
            multiply_counts(one, other)


@given(st.lists(st.lists(counts, min_size=1, max_size=4), min_size=1, max_size=4))
def test_runs_that_fit_are_added_up_whatever_all_of_them_come_to(runs: list[list[int]]) -> None:
    starts = np.cumsum([0, *map(len, runs[:-1])])
    numbers = _array([number for run in runs for number in run])
    expected = [sum(run) for run in runs]
    if max(expected) <= LARGEST:
        assert checked_sums(numbers, lambda each: np.add.reduceat(each, starts)).tolist() == expected
    else:
        with pytest.raises(QueryError, match="does not fit 64 bits"):
            checked_sums(numbers, lambda each: np.add.reduceat(each, starts))


def test_large_numbers_of_different_rows_do_not_refuse_each_other() -> None:
    assert multiply_counts(_array([2**62, 1]), _array([1, 2**62])).tolist() == [2**62, 2**62]
