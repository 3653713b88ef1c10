"""Hostile texts get a typed error with a place, in bounded time."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError, ParseError
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

MEGABYTE = 1024 * 1024


def compile_refused(text: str | Source) -> ParseError:
    with pytest.raises(ParseError) as caught:
        compile_schema(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        pytest.param("node P { a\0: I32 }", (1, 11), "a NUL character", id="nul"),
        pytest.param("node P {\n a: \ud800 }", (2, 5), "a lone surrogate", id="surrogate"),
        pytest.param("\ufeffnode P { }", (1, 1), "byte order mark", id="byte order mark"),
        pytest.param("node P { }\ufeff", (1, 11), "unexpected character", id="byte order mark inside"),
        pytest.param("node P\u00a0{ a: I32 }", (1, 7), "unexpected character", id="no-break space"),
        pytest.param("node Pé { }", (1, 7), "", id="letters outside ASCII"),
        pytest.param("node " + "P" * 10 * MEGABYTE, (1, 6), "names have at most 255", id="huge type name"),
        pytest.param(
            "node P { " + "a" * 10 * MEGABYTE + ": I32 }", (1, 10), "names have at most 255", id="huge name"
        ),
        pytest.param(
            "node P { a: enum(" + "x" * 10 * MEGABYTE + ") }", (1, 18), "at most 255", id="huge enum value"
        ),
        pytest.param("9" * 10 * MEGABYTE, (1, 1), "expected `node`", id="huge number"),
        pytest.param(
            "node P { v: Vector(" + "9" * MEGABYTE + ") }", (1, 20), "exceeds maximum", id="huge dimension"
        ),
        pytest.param(
            "node P { a: F64 @range(a, 0.." + "9" * MEGABYTE + ".0) }",
            (1, 30),
            "out of range",
            id="huge float",
        ),
        pytest.param('node P @a("' + "x" * MEGABYTE, (1, 11), "no closing quote", id="huge open string"),
        pytest.param("/*" + "*" * MEGABYTE, (1, 1), "no closing `*/`", id="huge open comment"),
        pytest.param("node P { a: " + "[" * MEGABYTE, (1, 14), "expected a scalar type", id="deep brackets"),
        pytest.param("node P " + "{" * 10_000, (1, 9), "expected a property name", id="deep braces"),
        pytest.param("x " * (MEGABYTE // 2), (1, 1), "expected `node`", id="long line"),
        pytest.param("x" * 17 * MEGABYTE, (1, 1), "longer than", id="too long"),
    ],
)
def test_hostile_text_is_refused_with_a_place(text: str, place: tuple[int, int], message: str) -> None:
    error = compile_refused(text)
    first = error.diagnostics[0]
    assert (first.line, first.column) == place
    assert message in first.message
    assert len(error.render()) < 20_000, "a message must not repeat a huge text"
    assert len(str(error.to_json())) < 20_000


def test_bytes_that_are_not_utf8_are_refused_with_a_place() -> None:
    with pytest.raises(ParseError, match="not valid UTF-8") as caught:
        Source.from_bytes(b"node P {\n  a\xff: I32 }", "x.pg")
    assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].column) == (2, 4)


def test_carriage_returns_are_space() -> None:
    assert compile_schema("node P {\r\n  a: I32\r\n  // c\r\n}\r\n") == compile_schema("node P {\n a: I32 }")


def test_places_count_lines_of_a_text_with_carriage_returns() -> None:
    first = compile_refused("node P {\r\n  a: Strin\r\n}").diagnostics[0]
    assert (first.line, first.column, first.source_line) == (2, 6, "  a: Strin")


def test_spans_are_bytes_and_columns_are_characters() -> None:
    first = compile_refused('node P @d("é😀") { a: Strin }').diagnostics[0]
    assert (first.column, first.start, first.end) == (22, 25, 30)


def test_a_valid_line_of_a_megabyte_compiles() -> None:
    body = " ".join(f"p{index}: String?" for index in range(40_000))
    assert len(compile_schema(f"node P {{ {body} }}").nodes["P"].properties) == 40_000


def test_no_more_than_twenty_errors_are_reported() -> None:
    error = compile_refused("\n".join(f"node P{index} {{ a: Strin }}" for index in range(50)))
    assert len(error.diagnostics) == 20
    assert error.truncated
    assert [each.line for each in error.diagnostics] == list(range(1, 21))


@pytest.mark.parametrize("count", [1, 5, 20])
def test_as_many_errors_as_mistakes(count: int) -> None:
    error = compile_refused("\n".join(f"node P{index} {{ a: I32, b: I32 }}" for index in range(count)))
    assert len(error.diagnostics) == count
    assert not error.truncated


@pytest.mark.parametrize(
    "schema",
    [
        "".join(f"node P{index} implements Nope {{}}\n" for index in range(30)),
        "".join(f"node P{index} {{ a: [I32] @key }}\n" for index in range(30)),
        "".join(f"node P{index} {{ @unique(a) }}\n" for index in range(30)),
        "".join("node P { }\n" for _ in range(30)),
    ],
    ids=["interfaces", "annotations", "constraints", "types"],
)
def test_every_stage_stops_after_twenty_errors(schema: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_schema(schema)
    assert len(caught.value.diagnostics) == 20
    assert caught.value.truncated


def test_an_error_names_its_file() -> None:
    with pytest.raises(ParseError, match=r"people\.pg:1:13"):
        compile_schema("node P { a: Strin }", name="people.pg")
