"""Dates and moments: text on one side, days and milliseconds since 1970-01-01 on the other.

A date is `YYYY-MM-DD`. A moment is a date, `T` or a space, `HH:MM:SS`, and optionally a fraction and
a zone (`Z` or `+HH:MM`). Years outside 0000 to 9999 carry a sign (`+12024-05-01`, `-0043-03-15`), so
that everything that can be stored can be written and read back. The calendar is the Gregorian one
in all years, and every day has 86,400 seconds.
"""

from __future__ import annotations

import re
from typing import NoReturn

from omnigraph.errors import InvalidValue
from omnigraph.lang.source import shorten

MIN_DAYS, MAX_DAYS = -(2**31), 2**31 - 1
MIN_MILLISECONDS, MAX_MILLISECONDS = -(2**63), 2**63 - 1
DAY = 86_400_000
"""Milliseconds in a day."""

# From 0000-01-01 to 9999-12-31 years have four digits and no sign.
PLAIN_DAYS = (-719_528, 2_932_896)
PLAIN_MILLISECONDS = (PLAIN_DAYS[0] * DAY, (PLAIN_DAYS[1] + 1) * DAY - 1)

_DATE = "([0-9]{4}|[+-][0-9]{4,9})-([0-9]{2})-([0-9]{2})"
_TIME = "([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.]([0-9]+))?"
_ZONE = "([Zz]|[+-][0-9]{2}:[0-9]{2})?"
_MOMENT = re.compile(f"{_DATE}(?:[Tt ]{_TIME}{_ZONE})?")

_MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_date(text: str) -> int:
    """Days since 1970-01-01; a full moment counts as the date written in it, whatever its zone."""
    parts = _MOMENT.fullmatch(text)
    days = None if parts is None or _time_of_day(parts) is None else _count_days(parts)
    if days is None or not MIN_DAYS <= days <= MAX_DAYS:
        _raise_invalid("Date", text, "write a date as YYYY-MM-DD")
    return days


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970-01-01 00:00 UTC.

    No zone means UTC, and a bare date midnight. Digits after the milliseconds are cut off, which
    rounds down, before 1970 too.
    """
    parts = _MOMENT.fullmatch(text)
    days = _count_days(parts) if parts else None
    time = _time_of_day(parts) if parts else None
    found = None if days is None or time is None else days * DAY + time
    if found is None or not MIN_MILLISECONDS <= found <= MAX_MILLISECONDS:
        _raise_invalid("DateTime", text, "write a moment as YYYY-MM-DDTHH:MM:SSZ")
    return found


def format_date(days: int) -> str:
    """`YYYY-MM-DD`."""
    year, month, day = _to_civil_date(days)
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def format_datetime(milliseconds: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`, always with three decimals and in UTC."""
    days, time = divmod(milliseconds, DAY)
    seconds, fraction = divmod(time, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{format_date(days)}T{hour:02d}:{minute:02d}:{second:02d}.{fraction:03d}Z"


def _raise_invalid(kind: str, text: str, remedy: str) -> NoReturn:
    # A lone surrogate would make the message itself unprintable.
    given = shorten(text).encode("utf-8", "backslashreplace").decode("utf-8")
    raise InvalidValue(f"invalid {kind} literal '{given}'", remedy=remedy)


def _count_days(parts: re.Match[str]) -> int | None:
    """The day a text names; None when there is no such day."""
    year, month, day = int(parts[1]), int(parts[2]), int(parts[3])
    if parts[1][0] in "+-" and 0 <= year <= 9999:
        return None  # each year has one spelling
    if not 1 <= month <= 12 or not 1 <= day <= _month_length(year, month):
        return None
    return _day_number(year, month, day)


def _time_of_day(parts: re.Match[str]) -> int | None:
    """Milliseconds to add to the day a text names, zone included; None when there is no such time."""
    if parts[4] is None:
        return 0
    hour, minute, second = int(parts[4]), int(parts[5]), int(parts[6])
    offset = _parse_offset(parts[8])
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return None
    milliseconds = int((parts[7] or "")[:3].ljust(3, "0"))
    return ((hour * 60 + minute - offset) * 60 + second) * 1000 + milliseconds


def _parse_offset(zone: str | None) -> int | None:
    """Minutes ahead of UTC."""
    if zone is None or zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


def _month_length(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_LENGTHS[month - 1] + leap


# Years are counted from March here, so that the leap day is the last day of its year and the lengths
# of all months before it are the same in every year. The calendar repeats after 400 years.

_ERA_YEARS, _ERA_DAYS = 400, 146_097
_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


def _day_number(year: int, month: int, day: int) -> int:
    era, year_of_era = divmod(year - (month <= 2), _ERA_YEARS)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _ERA_DAYS + day_of_era - _EPOCH


def _to_civil_date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day number."""
    era, day_of_era = divmod(days + _EPOCH, _ERA_DAYS)
    leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = (month_from_march + 2) % 12 + 1
    return era * _ERA_YEARS + year_of_era + (month <= 2), month, day
