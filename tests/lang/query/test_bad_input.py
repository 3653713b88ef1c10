"""Texts that are huge, deep or not text at all: a typed error with a place, in bounded time and memory."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import CompileError, ParseError, TypeCheckError
from omnigraph.lang.query.compile import CompiledMutation, CompiledRead, compile_query
from omnigraph.lang.query.explain import explain
from omnigraph.lang.query.expressions import MAX_OPERATORS
from omnigraph.lang.query.lint import lint
from omnigraph.lang.query.parser import MAX_CLAUSES, parse_queries
from omnigraph.lang.query.printer import print_file
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import MAX_SOURCE_CHARS, Source
from omnigraph.lang.tokens import MAX_NESTING
from tests.lang.casefile import CASES
from tests.lang.query.limits import hang_guard, memory_guard

F = compile_schema((CASES / "F.pg").read_text(encoding="utf-8"))
MEGABYTES = 10 * 1024 * 1024


def compile_refused(text: str, kind: type[CompileError] = ParseError, seconds: float = 10) -> CompileError:
    with hang_guard(seconds), pytest.raises(kind) as caught:
        compile_query(text, F)
    error = caught.value
    assert 1 <= len(error.diagnostics) <= 20
    assert all(each.line >= 1 and each.column >= 1 for each in error.diagnostics)
    assert all(len(each.message) < 500 for each in error.diagnostics)
    assert len(error.render()) < 20_000
    assert len(json.dumps(error.to_json())) < 50_000
    return error


def places(error: CompileError) -> list[tuple[int, int]]:
    return [(each.line, each.column) for each in error.diagnostics]


def read(clauses: str = "", returns: str = "$p.handle as h") -> str:
    return f"query q() {{ match {{ $p: Person {clauses} }} return {{ {returns} }} }}"


# --- not text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("query q() {\n \0 }", "the text contains a NUL character", (2, 2)),
        (
            'query q() { match { $p: Person { handle: "\ud800" } } return { $p } }',
            "a lone surrogate",
            (1, 43),
        ),
        ("\ufeffquery q() { }", "the text begins with a byte order mark", (1, 1)),
        ("query q() { \ufeff }", "unexpected character", (1, 13)),
        ("query q() {\r\n\r\n ; }", "unexpected character `;`", (3, 2)),
    ],
    ids=["NUL", "surrogate", "BOM", "BOM inside", "CRLF"],
)
def test_what_is_not_text_is_refused_where_it_stands(text: str, message: str, place: tuple[int, int]) -> None:
    error = compile_refused(text)
    assert message in error.diagnostics[0].message
    assert places(error)[0] == place


@pytest.mark.parametrize("data", [b"\xff\xfe", b"query q() {\n \xc3\x28", b"\xed\xa0\x80", b"query \x80"])
def test_invalid_utf8_is_refused_at_the_first_bad_byte(data: bytes) -> None:
    with pytest.raises(ParseError, match="the text is not valid UTF-8") as caught:
        Source.from_bytes(data)
    before = data[: data.index(next(byte for byte in data if byte >= 0x80))].decode()
    assert places(caught.value) == [(before.count("\n") + 1, len(before) - before.rfind("\n"))]


def test_byte_offsets_count_utf8_and_columns_count_characters() -> None:
    text = 'query q() { match { $p: Person { handle: "é𝔘" } $p.nope = 1 } return { $p } }'
    (found,) = compile_refused(text, TypeCheckError).diagnostics
    assert text[found.column - 1 :].startswith("$p.nope")
    assert text.encode()[found.start : found.end] == b"$p.nope"


# --- huge ------------------------------------------------------------------------------------------


def test_a_text_over_the_limit_is_refused_before_it_is_read() -> None:
    with memory_guard(80):
        assert places(compile_refused(" " * (MAX_SOURCE_CHARS + 1))) == [(1, 1)]


@pytest.mark.parametrize(
    "garbage", ["#", "{", "}", "(", "$x ", "a ", "1 ", '"a"', "\n$x", ";\n", "/ ", "é", "@(["]
)
def test_ten_megabytes_of_garbage_cost_no_more_than_their_first_errors(garbage: str) -> None:
    text = garbage * (MEGABYTES // len(garbage))
    compile_refused(text, seconds=5)
    compile_refused(f"query q() {{ match {{ $p: Person {text}", seconds=5)


def test_many_broken_queries_stop_at_twenty_errors() -> None:
    error = compile_refused("query q() { match { $p } }\n" * 100_000)
    assert len(error.diagnostics) == 20
    assert error.truncated


def test_a_huge_name_is_refused_with_a_short_message() -> None:
    for text in (read("$p." + "a" * MEGABYTES + " = 1"), read("$" + "a" * MEGABYTES)):
        assert "names have at most 255 characters" in compile_refused(text).message
    assert places(compile_refused("q" * MEGABYTES)) == [(1, 1)]


def test_a_huge_string_is_a_value() -> None:
    with hang_guard(10), memory_guard(200):
        compiled = compile_query(read(f'$p.handle = "{"a" * MEGABYTES}"'), F)
    assert isinstance(compiled, CompiledRead)


@pytest.mark.parametrize("opening", ['"', "/*", '"' + "\\" * 1001, "/*" + "*" * 1000])
def test_a_huge_string_or_comment_without_an_end_is_refused(opening: str) -> None:
    compile_refused(read(opening + "a/ " * (MEGABYTES // 3)))


def test_huge_numbers_are_refused_with_a_short_message() -> None:
    digits = "9" * 1_000_000
    for value in (digits, f"-{digits}", f"{digits}.0", f"[{digits}]"):
        assert "invalid" in compile_refused(read(f"$p.age in [{value}]")).message
    for text in (
        read(f"$p mentors{{1,{digits}}} $q"),
        read() + digits,
        f"query q($v: Vector({digits})) {{ }}",
    ):
        compile_refused(text)


def test_a_long_fraction_is_a_number() -> None:
    compiled = compile_query(read(f"$p.score = 0.{'1' * 1_000_000}"), F)
    assert isinstance(compiled, CompiledRead)
    assert explain(compiled.plan).endswith("$p.score = 0.1111111111111111")


def test_a_sum_of_too_many_terms_is_refused() -> None:
    for operator in "+-*/":
        error = compile_refused(read(returns=operator.join(["$p.age"] * 100_000) + " as x"))
        assert f"an expression has at most {MAX_OPERATORS} operators" in error.message


def test_the_longest_sum_can_be_used_in_every_way() -> None:
    for operator in "+*":
        text = read(returns=f"{operator.join(['$p.age'] * (MAX_OPERATORS + 1))} as x, count($p) as n")
        compiled = compile_query(text, F)
        assert isinstance(compiled, CompiledRead)
        assert explain(compiled.plan)
        assert compile_query(text, F) == compiled
        assert hash(compiled.plan)
        tree = parse_queries(Source(text))
        assert parse_queries(Source(print_file(tree))) == tree


@pytest.mark.parametrize(
    ("opening", "inside", "closing"),
    [("not { ", "$p.age = 1", "}"), ("optional { ", "$p.age = 1", "}"), ("(", "$p.age", ") = 1")],
    ids=["not", "optional", "parentheses"],
)
def test_deep_blocks_are_refused(opening: str, inside: str, closing: str) -> None:
    for depth in (MAX_NESTING + 1, 100_000):
        error = compile_refused(read(opening * depth + inside + closing * depth))
        assert f"nesting deeper than {MAX_NESTING}" in error.message


@pytest.mark.parametrize("form", ["{}$p.age", "({}", "lower({}", "count({}", "{}", "[{}"])
def test_deep_expressions_are_refused(form: str) -> None:
    opening, _, inside = form.partition("{}")
    closing = {"(": ")", "[": "]"}.get(opening[-1:], "")
    opening = opening or "-"
    deep = opening * 100_000 + inside + closing * 100_000
    assert f"nesting deeper than {MAX_NESTING}" in compile_refused(read(returns=deep)).message
    assert f"nesting deeper than {MAX_NESTING}" in compile_refused(read(f"$p.age = {deep}")).message


def test_the_deepest_expressions_can_be_used_in_every_way() -> None:
    # The block itself is one level.
    for text in (
        read(returns="-" * MAX_NESTING + "1 as x"),
        read(returns="-" * MAX_NESTING + "$p.age as x"),
        read(returns="(" * MAX_NESTING + "$p.age" + ")" * MAX_NESTING + " as x"),
        read(returns="lower(" * MAX_NESTING + "$p.handle" + ")" * MAX_NESTING + " as x"),
        read(returns="(1 + " * MAX_NESTING + "$p.age" + ")" * MAX_NESTING + " as x"),
        read("$p mentors $q not { $q: Person " * (MAX_NESTING - 1) + "}" * (MAX_NESTING - 1)),
        read("optional { $p mentors $q " * (MAX_NESTING - 1) + "}" * (MAX_NESTING - 1)),
    ):
        compiled = compile_query(text, F)
        assert isinstance(compiled, CompiledRead)
        assert explain(compiled.plan)
        tree = parse_queries(Source(text))
        assert parse_queries(Source(print_file(tree))) == tree
        assert lint(Source(text), F).status == "ok"


def test_a_deep_list_is_refused() -> None:
    assert "nested list literals" in compile_refused(read("$p.age in [[[1]]]"), TypeCheckError).message
    assert f"nesting deeper than {MAX_NESTING}" in compile_refused(read("$p.age in " + "[" * 100_000)).message


# --- many ------------------------------------------------------------------------------------------


def test_too_many_clauses_are_refused_once() -> None:
    chain = " ".join(f"$a{i} mentors $a{i + 1}" for i in range(20_000))
    assert [each.message for each in compile_refused(read(chain)).diagnostics] == [
        f"a query has at most {MAX_CLAUSES} clauses"
    ]


@pytest.mark.parametrize("form", ["$a{0} mentors $a{1} $a{1}.age > 1", "$b{0}: Person $b{0}.age > $p.age"])
def test_the_most_clauses_make_a_plan_that_can_be_walked(form: str) -> None:
    clauses = " ".join(form.format(i, i + 1) for i in range(MAX_CLAUSES // 2 - 1))
    with hang_guard(2):
        compiled = compile_query(read(f"$a0: Person {clauses}"), F)
        assert isinstance(compiled, CompiledRead)
        assert explain(compiled.plan).count("\n") >= MAX_CLAUSES // 2


def test_thousands_of_inserts_compile() -> None:
    with hang_guard(10):
        compiled = compile_query("query q() {" + 'insert Log { msg: "a" } ' * 8193 + "}", F)
    assert isinstance(compiled, CompiledMutation)
    assert len(compiled.statements) == 8193


def test_thousands_of_parameters_columns_and_list_items_compile() -> None:
    parameters = ", ".join(f"$x{i}: I32" for i in range(5_000))
    columns = ", ".join(f"$x{i} as x{i}" for i in range(5_000))
    numbers = ", ".join(map(str, range(100_000)))
    with hang_guard(10):
        compiled = compile_query(
            f"query q({parameters}) {read(f'$p.age in [{numbers}]', columns).removeprefix('query q()')}", F
        )
    assert len(compiled.parameters) == 5_000
    assert len(compiled.operation.result) == 5_000


def test_thousands_of_order_terms_compile() -> None:
    columns = ", ".join(f"$p.age as x{i}" for i in range(1_000))
    order = ", ".join(f"x{i}" for i in range(1_000))
    with hang_guard(5):
        compiled = compile_query(read(returns=columns)[:-1] + f" order {{ {order} }} }}", F)
    assert isinstance(compiled, CompiledRead)
    assert explain(compiled.plan).count("$p.age, ") >= 999


def test_type_errors_stop_at_twenty() -> None:
    error = compile_refused(read(returns=" ".join(f"$p.x{i}" for i in range(10_000))), TypeCheckError)
    assert len(error.diagnostics) == 20
    assert error.truncated


def test_lint_reports_a_huge_broken_file() -> None:
    with hang_guard(5):
        report = lint(Source("#" * MEGABYTES), F)
    assert [finding.code for finding in report.findings] == ["Q000"]
