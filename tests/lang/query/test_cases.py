"""Every case of `tests/lang/cases/*.gqt`."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, get_args

import pytest

from omnigraph.errors import CompileError, OmnigraphError
from omnigraph.lang.query import plan
from omnigraph.lang.query.compile import TYPE_CODES, CompiledMutation, CompiledQuery, compile_query
from omnigraph.lang.query.explain import explain, show_predicate, show_term
from omnigraph.lang.query.expressions import FUNCTIONS
from omnigraph.lang.query.lint import LINT_CODES, lint
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.printer import print_file
from omnigraph.lang.query.resolved import InsertEdge, InsertNode, Statement, UpdateEdges, UpdateNodes
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from tests.lang.casefile import CASES as FOLDER
from tests.lang.casefile import Case, cases_in

CASES = cases_in("*.gqt")
GIVEN = ("schema", "name", "query")
FILE_NAME = re.compile(r"[A-Z]\.pg")
PLACE = re.compile(r"\d+:\d+ ")
CLASS_NAME = re.compile(r"[A-Z][A-Za-z]+")


@cache
def catalog_of(schema: str | None) -> Catalog:
    text = "F.pg" if schema is None else schema
    is_file = FILE_NAME.fullmatch(text)
    return compile_schema((FOLDER / text).read_text(encoding="utf-8") if is_file else text)


def text(case: Case, section: str) -> str:
    found = case.section(section)
    assert found is not None, f"{case.path.name}:{case.line}: no section {section}"
    return found


def compile_case(case: Case) -> CompiledQuery:
    return compile_query(text(case, "query"), catalog_of(case.section("schema")), case.section("name"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_query_means_what_its_case_says(case: Case) -> None:
    sections = [name for name, _ in case.sections]
    expected = [name for name in sections if name not in GIVEN]
    assert len(set(sections)) == len(sections), f"{case.path.name}:{case.line}: a section is repeated"
    assert expected, f"{case.path.name}:{case.line}: nothing is expected"
    assert set(expected) <= CHECKS.keys(), f"{case.path.name}:{case.line}: unknown section in {sections}"
    for name in expected:
        CHECKS[name](case)


def check_ok(case: Case) -> None:
    assert text(case, "ok") == ""
    compile_case(case)


def check_error(case: Case) -> None:
    lines = text(case, "error").splitlines()
    wanted = lines.pop(0) if CLASS_NAME.fullmatch(lines[0]) else "TypeCheckError"
    with pytest.raises(OmnigraphError) as caught:
        compile_case(case)
    error = caught.value
    if isinstance(error, CompileError):
        found = [f"{each.line}:{each.column} {each.message}" for each in error.diagnostics]
    else:
        found = [error.message]
    assert type(error).__name__ == wanted, found
    assert len(found) == len(lines), found
    for actual, line in zip(found, lines, strict=True):
        place = PLACE.match(line)
        part = line[place.end() :] if place else line
        assert part, f"{case.path.name}:{case.line}: an empty part matches everything"
        assert part in actual, found
        assert place is None or actual.startswith(place.group()), found


def check_plan(case: Case) -> None:
    query = compile_case(case)
    if isinstance(query, CompiledMutation):
        shown = "\n".join(show_statement(statement) for statement in query.statements)
    else:
        shown = explain(query.plan)
    assert shown == text(case, "plan")


def show_statement(statement: Statement) -> str:
    name = statement.type_name
    if isinstance(statement, InsertNode):
        return f"{_verb(statement)} node {name}: {_values(statement)}"
    if isinstance(statement, InsertEdge):
        ends = f"{show_term(statement.source)} -> {show_term(statement.target)}"
        return f"{_verb(statement)} edge {name}: {ends} {_values(statement)}".rstrip()
    if isinstance(statement, UpdateEdges):
        return f"update edges {name}: {_values(statement)} where {show_predicate(statement.where)}"
    if isinstance(statement, UpdateNodes):
        return f"update {name}: {_values(statement)} where {show_predicate(statement.where)}"
    kind = type(statement).__name__.removeprefix("Delete").lower()
    return f"delete {kind} {name} where {show_predicate(statement.where)}"


def _verb(statement: InsertNode | InsertEdge) -> str:
    return "create" if statement.strict else "insert"


def _values(statement: InsertNode | InsertEdge | UpdateNodes | UpdateEdges) -> str:
    return ", ".join(f"{name} = {show_term(value)}" for name, value in statement.values)


def check_operation(case: Case) -> None:
    assert compile_case(case).operation.to_json() == json.loads(text(case, "operation"))


def check_result(case: Case) -> None:
    """The columns alone, one in each line: name, kind, `?` when nullable."""
    shown = []
    for column in compile_case(case).operation.result:
        extra = f" of {column.item_kind}" if column.item_kind else ""
        extra += f"({column.vector_dim})" if column.vector_dim else ""
        shown.append(f"{column.name} {column.kind}{extra}{'?' if column.nullable else ''}")
    assert shown == text(case, "result").splitlines()


def check_lint(case: Case) -> None:
    report = lint(Source(text(case, "query")), catalog_of(case.section("schema")))
    found = report.to_json({"kind": "file", "path": "schema.pg"}, "queries.gq")
    expect_part(found, json.loads(text(case, "lint")), "report")


def expect_part(found: Any, wanted: Any, where: str) -> None:
    """Objects may hold more than expected (null: the member must be absent), lists may not."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            if value is None:
                assert key not in found, f"{where}.{key}: {found}"
            else:
                assert key in found, f"{where}.{key} is missing: {found}"
                expect_part(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), f"{where}: {found}"
        for position, (one, other) in enumerate(zip(found, wanted, strict=True)):
            expect_part(one, other, f"{where}[{position}]")
    else:
        assert found == wanted, where


def check_printed(case: Case) -> None:
    tree = parse_queries(Source(text(case, "query")))
    printed = print_file(tree)
    assert printed == text(case, "printed") + "\n"
    assert parse_queries(Source(printed)) == tree


def check_same(case: Case) -> None:
    assert parse_queries(Source(text(case, "query"))) == parse_queries(Source(text(case, "same")))


def check_different(case: Case) -> None:
    assert parse_queries(Source(text(case, "query"))) != parse_queries(Source(text(case, "different")))


CHECKS = {
    "ok": check_ok,
    "error": check_error,
    "plan": check_plan,
    "operation": check_operation,
    "result": check_result,
    "lint": check_lint,
    "printed": check_printed,
    "same": check_same,
    "different": check_different,
}


def expectations(section: str) -> str:
    return "\n".join(text for case in CASES for name, text in case.sections if name == section)


@pytest.mark.parametrize("code", TYPE_CODES)
def test_every_type_code_has_a_case(code: str) -> None:
    assert re.search(rf"^(\d+:\d+ )?{code}: ", expectations("error"), re.MULTILINE)


@pytest.mark.parametrize("code", LINT_CODES)
def test_every_lint_code_has_a_case(code: str) -> None:
    assert f'"{code}"' in expectations("lint")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_has_a_case(function: str) -> None:
    assert f"{function}(" in expectations("query")


def test_every_kind_of_plan_has_a_case() -> None:
    shown = expectations("plan")
    for kind in get_args(plan.Plan):
        assert re.search(rf"^ *{kind.__name__}\b", shown, re.MULTILINE), kind


def test_every_case_file_is_read() -> None:
    assert {case.path for case in CASES} == set(FOLDER.glob("*.gqt"))
