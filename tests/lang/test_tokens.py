"""Tokens: what is one, what is not, and that scanning stays linear."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.source import Source, Span
from omnigraph.lang.tokens import (
    BAD,
    END,
    FLOAT,
    INT,
    LOWER,
    MAX_NAME_CHARS,
    STR,
    UPPER,
    VAR,
    Cursor,
    SyntaxFault,
    escape,
    parse_integer,
    unescape,
)


def scan(text: str) -> list[tuple[str, str]]:
    cursor = Cursor(Source(text))
    found = []
    while cursor.kind != END:
        found.append((cursor.kind, cursor.text))
        cursor.advance()
    return found


def test_every_kind_of_token() -> None:
    assert scan('ab Ab $ab 12 1.5 "x" ->..>= <=!={}') == [
        (LOWER, "ab"),
        (UPPER, "Ab"),
        (VAR, "$ab"),
        (INT, "12"),
        (FLOAT, "1.5"),
        (STR, '"x"'),
        ("->", "->"),
        ("..", ".."),
        (">=", ">="),
        ("<=", "<="),
        ("!=", "!="),
        ("{", "{"),
        ("}", "}"),
    ]


def test_a_range_is_three_tokens() -> None:
    assert [kind for kind, _ in scan("0..150")] == [INT, "..", INT]


def test_comments_and_space_are_skipped() -> None:
    assert scan("a // b\n /* c * / ** */ d /**/\r\n\te") == [(LOWER, "a"), (LOWER, "d"), (LOWER, "e")]


@pytest.mark.parametrize("text", ["1e5", "12abc", "1.5x", "$", "$Ab", "#", "'x'", "é", '"open', "/* open"])
def test_what_is_no_token_is_bad(text: str) -> None:
    assert scan(text)[0][0] == BAD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1e5", "invalid number: 1e5"),
        ("$Ab", "invalid variable: $Ab"),
        ('"open', "the string has no closing quote"),
        ("/* open", "the comment has no closing `*/`"),
        ("#", "unexpected character `#`"),
        ("a" * (MAX_NAME_CHARS + 1), f"names have at most {MAX_NAME_CHARS} characters"),
    ],
)
def test_a_bad_token_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=re.escape(message)):
        Cursor(Source(text)).expected("anything")


def test_peeking_moves_nothing() -> None:
    cursor = Cursor(Source("a { b"))
    assert cursor.peek(3) == [("{", "{"), (LOWER, "b"), (END, "")]
    assert (cursor.kind, cursor.text, cursor.braces) == (LOWER, "a", 0)


def test_braces_are_counted_when_they_are_passed() -> None:
    cursor = Cursor(Source("{ { } x"))
    depths = []
    while cursor.kind != END:
        depths.append(cursor.braces)
        cursor.advance()
    assert depths == [0, 1, 2, 1]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_string_reads_back_as_it_was(value: str) -> None:
    text = escape(value)
    assert scan(text) == [(STR, text)]
    assert unescape(text, Span(0, len(text))) == value


def test_an_unknown_escape_is_placed() -> None:
    with pytest.raises(SyntaxFault, match=r"unsupported escape sequence: \\q") as caught:
        unescape(r'"ab\qc"', Span(10, 17))
    assert caught.value.span == Span(13, 15)


@pytest.mark.parametrize(
    ("text", "limit", "value"),
    [
        ("7", 10, 7),
        ("0010", 10, 10),
        ("11", 10, None),
        ("9" * 1_000_000, 2**64 - 1, None),
        ("0" * 9999, 5, 0),
    ],
)
def test_integers_are_bounded_without_converting_huge_ones(text: str, limit: int, value: int | None) -> None:
    assert parse_integer(text, limit) == value


@pytest.mark.parametrize(
    "text",
    ["a" * 5_000_000, "/*" + "*" * 5_000_000, '"' + "\\" * 5_000_001, "/* x " * 1_000_000, "//" * 2_500_000],
    ids=["name", "stars", "backslashes", "comments", "slashes"],
)
def test_huge_garbage_is_one_token_and_not_a_hang(text: str) -> None:
    assert len(scan(text)) <= 1
