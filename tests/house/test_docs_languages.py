"""The pages about queries and lint say everything the code knows, and their examples are real."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from omnigraph.engine.write.pending_rows import PendingLimits
from omnigraph.errors import ResourceLimitExceeded
from omnigraph.lang.query import ast
from omnigraph.lang.query.compile import TYPE_CODES, compile_parsed
from omnigraph.lang.query.expressions import FUNCTIONS, MAX_CONDITIONS, MAX_OPERATORS, OPERATOR_WORDS
from omnigraph.lang.query.lint import LINT_CODES, NO_PARAMETERS, Finding, LintReport, QueryResult
from omnigraph.lang.query.parser import MAX_CLAUSES, parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from omnigraph.lang.tokens import MAX_NAME_CHARS, MAX_NESTING
from omnigraph.lang.types import SCALARS

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUERIES = (DOCS / "queries.md").read_text(encoding="utf-8")
LINT = (DOCS / "lint.md").read_text(encoding="utf-8")
LANG = Path(compile_parsed.__code__.co_filename).parent

WORDS = [
    "query",
    "match",
    "return",
    "distinct",
    "having",
    "shortest",
    "order",
    "asc",
    "desc",
    "limit",
    "offset",
    "as",
    "not",
    "and",
    "or",
    "optional",
    "case",
    "when",
    "then",
    "else",
    "end",
    "in",
    "is",
    "null",
    *OPERATOR_WORDS,
    "insert",
    "update",
    "set",
    "delete",
    "where",
    "true",
    "false",
    "from",
    "to",
    "@description",
    "@instruction",
]


def fences(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def rows(page: str) -> dict[str, str]:
    """Table rows by their first cell."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `?([^|`]+?)`? \|.*\|$", page, re.MULTILINE)}


@pytest.mark.parametrize("code", TYPE_CODES)
def test_every_type_code_is_documented(code: str) -> None:
    assert len(rows(QUERIES)[code].split(" | ")) == 3


def test_no_type_code_is_documented_that_is_not_there() -> None:
    assert {name for name in rows(QUERIES) if re.fullmatch(r"T\d+", name)} == set(TYPE_CODES)


def test_every_type_code_in_the_source_is_listed() -> None:
    used = {
        code
        for path in LANG.glob("*.py")
        for code in re.findall(r'"(T\d+)[":]', path.read_text(encoding="utf-8"))
    }
    assert used == set(TYPE_CODES)


def test_every_lint_code_is_documented_and_no_other() -> None:
    assert {name for name in rows(LINT) if re.fullmatch(r"[LQ]\d+", name)} == LINT_CODES.keys()
    assert NO_PARAMETERS in LINT


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_is_in_the_table_of_functions(function: str) -> None:
    table = QUERIES.partition("### Functions")[2].partition("###")[0]
    assert re.search(rf"`{function}\(", table), function


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_grammar_is_documented(word: str) -> None:
    code = re.findall(r"`[^`\n]+`", QUERIES) + re.findall(r"```.*?```", QUERIES, re.DOTALL)
    assert any(re.search(rf"(?<![\w@]){re.escape(word)}\b", part) for part in code), word


def test_every_word_the_parser_looks_for_is_checked_here() -> None:
    source = "".join((LANG / name).read_text(encoding="utf-8") for name in ("parser.py", "expressions.py"))
    found = set(
        re.findall(r'(?:word\(|_accept_word\(|take_word\(|accept\(LOWER, |_parse_junction\()"(\w+)"', source)
    )
    assert found <= {word.removeprefix("@") for word in WORDS} | set(FUNCTIONS)


@pytest.mark.parametrize("scalar", [*SCALARS, "Vector(n)"])
def test_every_parameter_type_is_documented(scalar: str) -> None:
    assert f"`{scalar}`" in QUERIES.partition("## Parameters")[2].partition("\n## ")[0]


@pytest.mark.parametrize("limit", [MAX_NAME_CHARS, MAX_NESTING, MAX_OPERATORS, MAX_CLAUSES, MAX_CONDITIONS])
def test_every_limit_is_documented(limit: int) -> None:
    assert re.search(rf"\b{limit}\b", QUERIES)


def test_the_limits_of_mutations_are_documented() -> None:
    section = QUERIES.partition("### How much one mutation writes")[2].partition("\n## ")[0]
    limits = PendingLimits()
    assert f"| {limits.rows:,} |" in section
    assert f"| {limits.bytes // 2**20} MiB |" in section
    error = ResourceLimitExceeded("keyed entities for node:Log", limit=limits.rows, actual=12000)
    assert f"error[{error.code}]: {error.message}\n  help: {error.remedy}\n" in section
    assert f"`{json.dumps(error.data())}`" in section


def test_every_member_of_the_report_is_documented() -> None:
    report = LintReport((), ()).to_json({}, "x.gq")
    finding = Finding("warning", "L201", "m", "T", "p", ("q",))
    result = QueryResult("q", "read", ("w",))
    for member in (*report, *finding.to_json(), *result.to_json(), "diagnostics", "error", "operation"):
        assert f"`{member}`" in LINT, member


def test_the_examples_compile() -> None:
    (schema,) = fences(QUERIES, "pg")
    catalog = compile_schema(schema)
    examples = fences(QUERIES, "gq")
    names = []
    for example in examples:
        source = Source(example)
        for query in parse_queries(source).queries:
            compile_parsed(query, catalog, source)
            names.append(query.name)
    assert len(names) >= 9
    assert len(set(names)) == len(names)


def test_the_examples_show_every_kind_of_clause() -> None:
    trees = [query for example in fences(QUERIES, "gq") for query in parse_queries(Source(example)).queries]
    shown = "".join(map(repr, trees))
    kinds: tuple[type[ast.Syntax], ...] = (
        *(ast.Binding, ast.Traversal, ast.Comparison, ast.InTest, ast.Negation, ast.OptionalBlock),
        *(ast.Junction, ast.CaseWhen, ast.Coalesce, ast.DateCall, ast.Interval),
        *(ast.Aggregate, ast.Arithmetic, ast.CaseCall, ast.Rrf, ast.Insert, ast.Update),
    )
    for kind in kinds:
        assert f"{kind.__name__}(" in shown
