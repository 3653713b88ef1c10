"""Texts know where their parts are, and refuse what cannot be read."""

from __future__ import annotations

import pytest

from omnigraph.diagnostics import MAX_DIAGNOSTICS
from omnigraph.errors import ParseError
from omnigraph.lang.source import MAX_SOURCE_CHARS, Problems, Source, Span, TooManyProblems, shorten


def test_a_place_has_line_column_and_bytes() -> None:
    found = Source("ab\nc\u00e9\u6f22 x\n", "f.gq").diagnostic("m", Span(6, 8))
    assert (found.line, found.column, found.start, found.end) == (2, 4, 9, 11)
    assert (found.source_line, found.width) == ("c\u00e9\u6f22 x", 2)


def test_an_empty_place_is_widened_by_one() -> None:
    found = Source("abc").diagnostic("m", Span(1, 1))
    assert (found.start, found.end, found.width) == (1, 2, 1)


def test_the_end_of_the_text_is_a_place() -> None:
    found = Source("abc\n").diagnostic("m", Span(4, 4))
    assert (found.line, found.column, found.source_line) == (2, 1, "")


def test_a_place_over_several_lines_underlines_the_first() -> None:
    found = Source("one two\nthree").diagnostic("m", Span(4, 13))
    assert (found.line, found.width) == (1, 3)


def test_a_carriage_return_is_not_shown() -> None:
    assert Source("ab\r\ncd").diagnostic("m", Span(0, 1)).source_line == "ab"


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("\ufeffquery", "byte order mark", 1),
        ("ab\0c", "NUL", 3),
        ("x \ud800 y", "lone surrogate", 3),
    ],
)
def test_unreadable_text_is_refused_where_it_is(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        Source(text)
    assert caught.value.diagnostics[0].column == column


def test_bytes_that_are_not_utf8_are_refused_where_they_are() -> None:
    with pytest.raises(ParseError, match="not valid UTF-8") as caught:
        Source.from_bytes(b"line\nab\xff", "f.pg")
    place = caught.value.diagnostics[0]
    assert (place.line, place.column, place.source_name) == (2, 3, "f.pg")


def test_a_text_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ParseError, match="longer than"):
        Source("x" * (MAX_SOURCE_CHARS + 1))


def test_problems_are_raised_together_in_source_order() -> None:
    problems = Problems(Source("abc def"))
    problems.add("second", Span(4, 5))
    problems.add("first", Span(0, 1))
    with pytest.raises(ParseError) as caught:
        problems.raise_if_any()
    assert [found.message for found in caught.value.diagnostics] == ["first", "second"]
    assert caught.value.message == "parse error: first"


def test_collecting_stops_after_the_limit() -> None:
    problems = Problems(Source("abc"))
    for _ in range(MAX_DIAGNOSTICS):
        problems.add("m", Span(0, 1))
    with pytest.raises(TooManyProblems):
        problems.add("m", Span(0, 1))
    with pytest.raises(ParseError) as caught:
        problems.raise_if_any(truncated=True)
    assert f"stopped after {MAX_DIAGNOSTICS} errors" in str(caught.value)


def test_long_names_are_shortened_in_messages() -> None:
    assert shorten("short") == "short"
    assert len(shorten("x" * 10_000)) < 70
