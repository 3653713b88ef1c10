"""What holds for every query text, tried on generated trees and on broken texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import CompileError, OmnigraphError
from omnigraph.lang.query import ast
from omnigraph.lang.query.compile import CompiledRead, compile_parsed
from omnigraph.lang.query.explain import explain
from omnigraph.lang.query.lint import LINT_CODES, lint
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.printer import print_expr, print_file, print_query
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from tests.examples import EXAMPLES
from tests.lang.casefile import CASES
from tests.lang.query.limits import hang_guard
from tests.lang.query.strategies import CORPUS, changes, clause, expr, files, mutate, queries

pytestmark = pytest.mark.fuzz
thrice = settings(max_examples=3 * EXAMPLES)
# A whole tree costs a hundred times what a mutation costs, so the long form tries fewer of them.
trees = settings(max_examples=max(100, EXAMPLES // 10))

F = compile_schema((CASES / "F.pg").read_text(encoding="utf-8"))
SCHEMA_SOURCE = {"kind": "file", "path": "F.pg"}


def result_of(work: Callable[[], Any]) -> Any:
    """What `work` gives, or its typed error; another exception, or no answer in time, fails the test."""
    with hang_guard():
        try:
            return work()
        except OmnigraphError as error:
            return error


def use(source: Source) -> None:
    """Parse, compile and lint a text in every way a caller would."""
    parsed = result_of(lambda: parse_queries(source))
    if isinstance(parsed, OmnigraphError):
        check_error(parsed, source)
    else:
        for query in parsed.queries:
            compiled = result_of(partial(compile_parsed, query, F, source))
            if isinstance(compiled, OmnigraphError):
                check_error(compiled, source)
            else:
                json.dumps(compiled.operation.to_json())
                assert explain(compiled.plan) if isinstance(compiled, CompiledRead) else compiled.statements
    report = result_of(lambda: lint(source, F))
    shown = json.loads(json.dumps(report.to_json(SCHEMA_SOURCE, "x.gq")))
    assert {finding["code"] for finding in shown["findings"]} <= LINT_CODES.keys()
    assert (shown["status"] == "error") == (shown["errors"] > 0)


def use_broken(broken: str) -> None:
    source = result_of(lambda: Source(broken))
    if isinstance(source, OmnigraphError):
        assert isinstance(source, CompileError)
    else:
        use(source)


def check_error(error: OmnigraphError, source: Source) -> None:
    if not isinstance(error, CompileError):
        assert error.message
        return
    lines = source.text.split("\n")
    places = [(each.line, each.column) for each in error.diagnostics]
    assert 1 <= len(places) <= 20
    assert places == sorted(places)
    for line, column in places:
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
    assert error.render().startswith("error")


@trees
@given(files)
def test_a_printed_file_parses_back_to_itself(file: ast.QueryFile) -> None:
    printed = print_file(file)
    again = parse_queries(Source(printed))
    assert again == file
    assert print_file(again) == printed


@trees
@given(st.lists(clause, min_size=1, max_size=4))
def test_clauses_that_follow_each_other_stay_apart(clauses: list[ast.Clause]) -> None:
    read = ast.Read(tuple(clauses), (ast.Projection(ast.VarRef("p")),))
    query = ast.Query("q", (), read)
    assert parse_queries(Source(print_query(query))) == ast.QueryFile((query,))


@trees
@given(expr)
def test_an_expression_means_the_same_in_more_parentheses(found: ast.Expr) -> None:
    body = "query q() {{ match {{ $p: Person }} return {{ {} }} }}"
    one, other = (body.format(form.format(print_expr(found))) for form in ("{}", "(({}))"))
    assert parse_queries(Source(one)) == parse_queries(Source(other))


@trees
@given(queries)
def test_any_tree_compiles_or_is_refused(query: ast.Query) -> None:
    use(Source(print_query(query)))


@thrice
@given(st.sampled_from(CORPUS), changes)
def test_a_broken_text_is_compiled_or_refused(text: str, edits: list[Any]) -> None:
    use_broken(mutate(text, edits))


@trees
@given(files, changes)
def test_a_broken_tree_is_compiled_or_refused(file: ast.QueryFile, edits: list[Any]) -> None:
    use_broken(mutate(print_file(file), edits))


@given(
    st.binary(max_size=200) | st.sampled_from(CORPUS).map(str.encode), st.binary(max_size=3), st.floats(0, 1)
)
def test_any_bytes_are_compiled_or_refused(data: bytes, inserted: bytes, place: float) -> None:
    at = int(place * len(data))
    source = result_of(lambda: Source.from_bytes(data[:at] + inserted + data[at + 1 :]))
    if isinstance(source, OmnigraphError):
        assert isinstance(source, CompileError)
        assert source.diagnostics[0].line >= 1
    else:
        use(source)


@given(st.sampled_from(CORPUS), st.floats(0, 1))
def test_a_text_cut_short_is_compiled_or_refused(text: str, place: float) -> None:
    use(Source(text[: int(place * len(text))]))
