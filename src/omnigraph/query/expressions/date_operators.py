"""Parts of dates and moments, and arithmetic with them, on Arrow columns.

The calendar is the Gregorian one in all years, moments are in UTC, and every day has 86,400 seconds. Nothing
fails: what cannot be stored is null. Of two columns one may have a single row that stands for all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.lang.dates import DAY
from omnigraph.lang.query.ast import DatePartFn, IntervalFn
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import arrow_type
from omnigraph.query.expressions.operators import Flags, calculate_whole, find_missing

Numbers = NDArray[np.int64]

_MONTHS: dict[IntervalFn, int] = {"years": 12, "months": 1}
_MILLISECONDS: dict[IntervalFn, int] = {
    "weeks": 7 * DAY,
    "days": DAY,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1000,
}
_MOST_MONTHS = 2**33
"""More than any moment that can be stored is from 1970."""


# --- parts ---------------------------------------------------------------------------------------


def date_part(part: DatePartFn, column: pa.Array) -> pa.Array:
    """A part of each date or moment as I64."""
    days, rest = _split_days(column)
    return pa.array(_PARTS[part](days, rest), pa.int64(), mask=_missing(column, len(days)))


def _split_days(column: pa.Array) -> tuple[Numbers, Numbers]:
    """Days since 1970-01-01, and milliseconds since midnight; nulls are some day."""
    numbers = _to_numbers(column)
    if pa.types.is_date32(column.type):
        return numbers, np.zeros_like(numbers)
    days = np.floor_divide(numbers, DAY)
    return days, numbers - days * DAY


def _to_numbers(column: pa.Array) -> Numbers:
    number = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    found: Numbers = column.cast(number).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _missing(column: pa.Array, length: int) -> Flags:
    return np.broadcast_to(find_missing(column), length)


def _to_months(days: Numbers) -> Numbers:
    """Months since 1970-01."""
    return days.view("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_days(months: Numbers) -> Numbers:
    return months.view("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _year(days: Numbers) -> Numbers:
    return 1970 + np.floor_divide(_to_months(days), 12)


def _month(days: Numbers) -> Numbers:
    return np.mod(_to_months(days), 12) + 1


def _weekday(days: Numbers) -> Numbers:
    """1 is Monday, 7 is Sunday."""
    return np.mod(days + 3, 7) + 1


def _week(days: Numbers) -> Numbers:
    """The week belongs to the year that its Thursday is in."""
    thursdays = days + 4 - _weekday(days)
    first = _first_days((_year(thursdays) - 1970) * 12)
    weeks: Numbers = np.floor_divide(thursdays - first, 7) + 1
    return weeks


_PARTS: dict[DatePartFn, Callable[[Numbers, Numbers], Numbers]] = {
    "year": lambda days, _: _year(days),
    "quarter": lambda days, _: np.floor_divide(_month(days) - 1, 3) + 1,
    "month": lambda days, _: _month(days),
    "week": lambda days, _: _week(days),
    "day": lambda days, _: days - _first_days(_to_months(days)) + 1,
    "weekday": lambda days, _: _weekday(days),
    "hour": lambda _, rest: np.floor_divide(rest, 3_600_000),
    "minute": lambda _, rest: np.mod(np.floor_divide(rest, 60_000), 60),
    "second": lambda _, rest: np.mod(np.floor_divide(rest, 1000), 60),
}


# --- casts and arithmetic ------------------------------------------------------------------------


def cast_date(column: pa.Array, type_: ValueType) -> pa.Array:
    """The date of each moment, or the first moment of each date."""
    wanted = arrow_type(type_)
    if column.type.equals(wanted):
        return column
    if type_.scalar is Scalar.DATE:
        days, _ = _split_days(column)
        return _to_dates(days, _missing(column, len(days)))
    return pa.array(_to_numbers(column) * DAY, mask=_missing(column, len(column))).cast(wanted)


def _to_dates(days: Numbers, missing: Flags) -> pa.Array:
    bounds = np.iinfo(np.int32)
    wrong = missing | (days < bounds.min) | (days > bounds.max)
    return pa.array(np.where(wrong, 0, days).astype(np.int32), mask=wrong).cast(pa.date32())


def shift_dates(column: pa.Array, amounts: pa.Array, unit: IntervalFn, *, backward: bool) -> pa.Array:
    """Each date or moment moved by so many units; the day of a month is at most its last one."""
    length = max(len(column), len(amounts)) if len(column) and len(amounts) else 0
    missing = _missing(column, length) | _missing(amounts, length)
    factor = np.array([-1 if backward else 1]) * (_MONTHS.get(unit) or _MILLISECONDS[unit])
    unsigned = amounts.fill_null(0).to_numpy(zero_copy_only=False)
    delta, wrong = calculate_whole("*", unsigned, factor)
    is_date = pa.types.is_date32(column.type)
    if unit in _MONTHS:
        days, rest = _split_days(column)
        moved, too_far = _add_months(days, delta)
        moved, overflow = (moved, too_far) if is_date else _join_days(moved, rest, too_far)
    elif is_date:
        moved, overflow = calculate_whole("+", _to_numbers(column), delta // DAY)
    else:
        moved, overflow = calculate_whole("+", _to_numbers(column), delta)
    wrong = missing | wrong | overflow
    if is_date:
        return _to_dates(moved, wrong)
    return pa.array(np.where(wrong, 0, moved), pa.int64(), mask=wrong).cast(column.type)


def _add_months(days: Numbers, months: Numbers) -> tuple[Numbers, Flags]:
    before = _to_months(days)
    total, wrong = calculate_whole("+", before, months)
    wrong = wrong | (np.abs(total) > _MOST_MONTHS)
    total = np.where(wrong, 0, total)
    first, following = _first_days(total), _first_days(total + 1)
    return np.minimum(first + (days - _first_days(before)), following - 1), wrong


def _join_days(days: Numbers, rest: Numbers, wrong: Flags) -> tuple[Numbers, Flags]:
    start, too_far = calculate_whole("*", days, np.array([DAY]))
    found, overflow = calculate_whole("+", start, rest)
    return found, wrong | too_far | overflow


def subtract_dates(left: pa.Array, right: pa.Array) -> pa.Array:
    """Days from one date to another as I64, seconds from one moment to another as F64."""
    found, wrong = calculate_whole("-", _to_numbers(left), _to_numbers(right))
    wrong = wrong | find_missing(left) | find_missing(right)
    if pa.types.is_date32(left.type):
        return pa.array(found, mask=np.broadcast_to(wrong, len(found)))
    return pa.array(found / 1000, mask=np.broadcast_to(wrong, len(found)))
