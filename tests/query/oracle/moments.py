"""Dates and moments on whole numbers: days, and milliseconds, since 1970-01-01."""

from __future__ import annotations

from omnigraph.lang.types import Scalar

DAY = 86_400_000
UNITS = {"weeks": 7 * DAY, "days": DAY, "hours": DAY // 24, "minutes": 60_000, "seconds": 1000}
BOUNDS = {Scalar.DATE: 2**31, Scalar.DATETIME: 2**63}
ERA = 146_097
"""Days in 400 years."""


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; January and February count with the year before."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day, found by trying."""
    year = 1970 + days * 400 // ERA
    year = next(each for each in (year + 1, year, year - 1) if days_of(each, 1, 1) <= days)
    month = next(each for each in range(12, 0, -1) if days_of(year, each, 1) <= days)
    return year, month, days - days_of(year, month, 1) + 1


def part(name: str, milliseconds: int) -> int:
    days, rest = divmod(milliseconds, DAY)
    year, month, day = date_of(days)
    weekday = (days + 3) % 7 + 1
    if name == "week":
        thursday = days + 4 - weekday
        return (thursday - days_of(date_of(thursday)[0], 1, 1)) // 7 + 1
    parts = {"year": year, "quarter": (month + 2) // 3, "month": month, "day": day, "weekday": weekday}
    return {
        **parts,
        "hour": rest // UNITS["hours"],
        "minute": rest // 60_000 % 60,
        "second": rest // 1000 % 60,
    }[name]


def cast(value: int, of_date: bool, wanted: Scalar) -> int | None:
    if of_date:
        return value if wanted is Scalar.DATE else value * DAY
    return in_bounds(value // DAY, wanted) if wanted is Scalar.DATE else value


def shift(start: int, steps: int, unit: str, scalar: Scalar) -> int | None:
    size = 1 if scalar is Scalar.DATE else DAY
    if unit in UNITS:
        return in_bounds(start + steps * UNITS[unit] // (DAY // size), scalar)
    days, rest = divmod(start, size)
    year, month, day = date_of(days)
    months = year * 12 + month - 1 + steps * (12 if unit == "years" else 1)
    year, month = divmod(months, 12)
    following = days_of((months + 1) // 12, (months + 1) % 12 + 1, 1)
    moved = min(days_of(year, month + 1, day), following - 1)
    return in_bounds(moved * size + rest, scalar)


def in_bounds(value: int, scalar: Scalar) -> int | None:
    return value if -BOUNDS[scalar] <= value < BOUNDS[scalar] else None
