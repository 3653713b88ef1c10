"""Dates at the ends of their range: parts and arithmetic agree with whole numbers, or are null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.lang.query.expressions import DATE_PARTS, INTERVALS
from omnigraph.lang.types import DATE, DATETIME, Scalar
from omnigraph.lang.values import arrow_type
from omnigraph.query.expressions.date_operators import cast_date, date_part, shift_dates, subtract_dates
from tests.query.oracle import moments

pytestmark = pytest.mark.fuzz

DAYS = st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 800_000)
MILLISECONDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**46), 2**46)
AMOUNTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5000, 5000)


def column(values: list[int | None], scalar: Scalar) -> pa.Array:
    number = pa.int32() if scalar is Scalar.DATE else pa.int64()
    return pa.array(values, number).cast(arrow_type(DATE if scalar is Scalar.DATE else DATETIME))


def numbers(found: pa.Array) -> list[Any]:
    if pa.types.is_date32(found.type):
        found = found.cast(pa.int32())
    elif pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    return found.to_pylist()  # type: ignore[no-any-return]


@given(DAYS, MILLISECONDS)
@example(-(2**31), -(2**63))
@example(2**31 - 1, 2**63 - 1)
def test_parts_are_those_of_the_calendar(day: int, moment: int) -> None:
    for part in DATE_PARTS:
        found = date_part(part, column([moment, None], Scalar.DATETIME))
        assert found.to_pylist() == [moments.part(part, moment), None], part
        if part not in ("hour", "minute", "second"):
            of_date = date_part(part, column([None, day], Scalar.DATE))
            assert of_date.to_pylist() == [None, moments.part(part, day * moments.DAY)], part


@given(DAYS, MILLISECONDS, AMOUNTS)
@example(2**31 - 1, 2**63 - 1, 1)
@example(-(2**31), -(2**63), -1)
@example(0, 0, -(2**63))
def test_what_cannot_be_stored_after_a_step_is_null(day: int, moment: int, amount: int) -> None:
    amounts = pa.array([amount, None])
    for backward in (False, True):
        steps = -amount if backward else amount
        for unit in INTERVALS:
            found = shift_dates(column([moment, moment], Scalar.DATETIME), amounts, unit, backward=backward)
            assert numbers(found) == [moments.shift(moment, steps, unit, Scalar.DATETIME), None], unit
        for unit in INTERVALS[:4]:
            found = shift_dates(column([day], Scalar.DATE), amounts, unit, backward=backward)
            assert numbers(found) == [moments.shift(day, steps, unit, Scalar.DATE), None], unit


@given(DAYS, DAYS, MILLISECONDS, MILLISECONDS)
@example(-(2**31), 2**31 - 1, -(2**63), 2**63 - 1)
def test_casts_and_differences_are_exact_or_null(day: int, other: int, moment: int, later: int) -> None:
    elapsed = subtract_dates(column([day, None], Scalar.DATE), column([other], Scalar.DATE))
    assert elapsed.to_pylist() == [day - other, None]
    between = subtract_dates(column([moment], Scalar.DATETIME), column([later], Scalar.DATETIME))
    fits = -(2**63) <= moment - later < 2**63
    assert between.to_pylist() == [float(moment - later) / 1000 if fits else None]
    assert numbers(cast_date(column([day, None], Scalar.DATE), DATETIME)) == [day * moments.DAY, None]
    dates = cast_date(column([moment, None], Scalar.DATETIME), DATE)
    assert numbers(dates) == [moments.cast(moment, False, Scalar.DATE), None]
