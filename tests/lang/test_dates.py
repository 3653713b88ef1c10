"""Dates and moments: which texts are one, and which number each stands for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.diagnostics import printable
from omnigraph.errors import InvalidValue
from omnigraph.lang import dates

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1970-01-02", 1),
        ("1969-12-31", -1),
        ("2000-02-29", 11_016),
        ("2024-02-29", 19_782),
        ("2024-03-01", 19_783),
        ("0000-01-01", -719_528),
        ("0001-01-01", -719_162),
        ("9999-12-31", 2_932_896),
        ("+10000-01-01", 2_932_897),
        ("-0001-12-31", -719_529),
        ("+5881580-07-11", 2**31 - 1),
        ("-5877641-06-23", -(2**31)),
    ],
)
def test_a_date_is_its_distance_from_1970(text: str, days: int) -> None:
    assert dates.parse_date(text) == days
    assert dates.format_date(days) == text


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-17T00:00:00Z",
        "2024-05-17 23:59:59.999",
        "2024-05-17T23:59:59-11:00",
        "2024-05-17T00:00:00+14:00",
    ],
)
def test_a_moment_given_for_a_date_is_cut_to_the_date_written_in_it(text: str) -> None:
    assert dates.parse_date(text) == dates.parse_date("2024-05-17")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01", 0),
        ("2024-01-01T02:00:00+02:00", 1_704_067_200_000),
        ("2024-01-01T00:00:00", 1_704_067_200_000),
        ("2024-01-01 00:00:00", 1_704_067_200_000),
        ("2024-01-01t00:00:00z", 1_704_067_200_000),
        ("2024-01-01", 1_704_067_200_000),
        ("2023-12-31T18:30:00-05:30", 1_704_067_200_000),
        ("2024-01-01T00:00:00.1Z", 1_704_067_200_100),
        ("2024-01-01T00:00:00.12Z", 1_704_067_200_120),
        ("2024-01-01 00:00:00.123+00:00", 1_704_067_200_123),
        ("2024-01-01T00:00:00.123999999999Z", 1_704_067_200_123),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000),
        # Half a millisecond before 1970 lies in the millisecond that begins at -1.
        ("1969-12-31T23:59:59.9995Z", -1),
        ("+292278994-08-17T07:12:55.807Z", 2**63 - 1),
        ("-292275055-05-16T16:47:04.192Z", -(2**63)),
    ],
)
def test_a_moment_is_its_distance_from_1970_in_utc(text: str, milliseconds: int) -> None:
    assert dates.parse_datetime(text) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_704_067_200_120, "2024-01-01T00:00:00.120Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
    ],
)
def test_a_moment_is_written_in_utc_with_three_decimals(milliseconds: int, text: str) -> None:
    assert dates.format_datetime(milliseconds) == text


NO_DATES = [
    "",
    " ",
    "today",
    "2024",
    "2024-01",
    "2024-1-1",
    "24-01-01",
    "20240101",
    "2024/01/01",
    "2024-00-01",
    "2024-13-01",
    "2024-01-00",
    "2024-01-32",
    "2024-04-31",
    "2023-02-29",
    "1900-02-29",
    "2100-02-29",
    "2024-02-30",
    "10000-01-01",
    "+2024-01-01",
    "+0000-01-01",
    "-0000-01-01",
    "+1000000000-01-01",
    " 2024-01-01",
    "2024-01-01 ",
    "2024-01-01\n",
    "2024-01-01Z",
    "2024-01-01T",
    "2024-01-01T00",
    "2024-01-01T00:00",
    "2024-01-01T24:00:00",
    "2024-01-01T00:60:00",
    "2024-01-01T00:00:60",
    "2024-01-01T00:00:00.",
    "2024-01-01T00:00:00,5",
    "2024-01-01T00:00:00+02",
    "2024-01-01T00:00:00+0200",
    "2024-01-01T00:00:00+24:00",
    "2024-01-01T00:00:00+02:60",
    "2024-01-01T00:00:00 Z",
    "2024-01-01T00:00:00UTC",
    "2024-01-01  00:00:00",
    "٢٠٢٤-01-01",
    "2024-01-01\0",
]


@pytest.mark.parametrize("text", NO_DATES)
def test_a_text_that_names_no_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as date:
        dates.parse_date(text)
    assert date.value.message == f"invalid Date literal '{printable(text)}'"
    assert date.value.remedy is not None
    with pytest.raises(InvalidValue) as moment:
        dates.parse_datetime(text)
    assert moment.value.message == f"invalid DateTime literal '{printable(text)}'"
    assert moment.value.remedy is not None


@pytest.mark.parametrize("text", ["+5881580-07-12", "-5877641-06-22"])
def test_a_day_that_32_bits_cannot_count_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="invalid Date literal"):
        dates.parse_date(text)
    assert dates.parse_datetime(text) % dates.DAY == 0


@pytest.mark.parametrize(
    "text", ["+292278994-08-17T07:12:55.808Z", "-292275055-05-16T16:47:04.191Z", "+999999999-01-01"]
)
def test_a_moment_that_64_bits_cannot_count_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="invalid DateTime literal"):
        dates.parse_datetime(text)


def test_a_refusal_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(InvalidValue) as found:
        dates.parse_date("2024-01-01T00:00:00." + "9" * 1_000_000 + "x")
    assert len(found.value.message) < 120


@pytest.mark.fuzz
@given(st.integers(dates.MIN_DAYS, dates.MAX_DAYS))
@example(dates.MIN_DAYS)
@example(dates.MAX_DAYS)
def test_every_day_is_read_back_from_its_text(days: int) -> None:
    assert dates.parse_date(dates.format_date(days)) == days


@pytest.mark.fuzz
@given(st.integers(dates.MIN_MILLISECONDS, dates.MAX_MILLISECONDS))
@example(dates.MIN_MILLISECONDS)
@example(dates.MAX_MILLISECONDS)
def test_every_millisecond_is_read_back_from_its_text(milliseconds: int) -> None:
    assert dates.parse_datetime(dates.format_datetime(milliseconds)) == milliseconds


def test_days_of_the_years_1_to_9999_agree_with_the_standard_library() -> None:
    # A prime step meets every month and day of month, and leap years of each kind.
    for days in range(-719_162, 2_932_897, 29):
        assert dates.format_date(days) == (EPOCH + timedelta(days=days)).date().isoformat()


@pytest.mark.fuzz
@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),  # noqa: DTZ001
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from("T "),
)
def test_moments_agree_with_the_standard_library(naive: datetime, offset: int, separator: str) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset)))
    assert dates.parse_datetime(moment.isoformat(sep=separator)) == (moment - EPOCH) // MILLISECOND


@pytest.mark.fuzz
@given(st.text(alphabet="0123456789-+:.TZ ", max_size=32))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    try:
        found = dates.parse_datetime(text)
    except InvalidValue:
        return
    assert dates.parse_datetime(dates.format_datetime(found)) == found
