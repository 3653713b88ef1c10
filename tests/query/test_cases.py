"""Every case of `tests/query/cases/*.gqt`, by the oracle and by the engine in each condition of a graph."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.errors import OmnigraphError
from omnigraph.lang.query.compile import CompiledRead, check_query, compile_query, select_query
from omnigraph.lang.query.parameters import Decoder, check_count
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.patterns import find_pattern_parameters
from omnigraph.lang.query.resolved import ResolvedRead
from omnigraph.lang.query.terms import ParamRef
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.lang.values import arrow_type, to_json_value
from omnigraph.query.read_cache import shared_cache
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.indexes import read_coverage
from tests.lang.casefile import CASES as LANGUAGE_CASES
from tests.lang.casefile import Case, read_cases
from tests.query.conftest import BRANCH, CONDITIONS, Shelf
from tests.query.oracle import Answer, answer, graph_of

FOLDER = Path(__file__).parent / "cases"
CASES = [case for path in sorted(FOLDER.glob("*.gqt")) for case in read_cases(path)]
ANSWERED = [case for case in CASES if case.section("error") is None]
REFUSED = [case for case in CASES if case.section("error") is not None]
GIVEN = {"schema", "data", "query", "params"}
EXPECTED = {"columns", "rows", "ordered rows", "objects", "error"}
NOW = 1_900_000_000_000

F_SCHEMA = (LANGUAGE_CASES / "F.pg").read_text(encoding="utf-8")
F_DATA = (LANGUAGE_CASES.parent.parent / "engine" / "cases" / "F.jsonl").read_text(encoding="utf-8")


@cache
def catalog_of(schema: str) -> Catalog:
    return compile_schema(schema)


def schema_of(case: Case) -> str:
    found = case.section("schema")
    return F_SCHEMA if found is None else found


def data_of(case: Case) -> str:
    found = case.section("data")
    if found is None:
        assert case.section("schema") is None, f"{case}: a schema of its own needs data of its own"
        return F_DATA
    return found


def query_of(case: Case) -> str:
    found = case.section("query")
    assert found, f"{case}: no query"
    return found


def params_of(case: Case) -> Any:
    return json.loads(case.section("params") or "{}")


# --- the oracle ----------------------------------------------------------------------------------


def ask_oracle(case: Case) -> Answer:
    """What the oracle says, or the error of a query that cannot run."""
    catalog = catalog_of(schema_of(case))
    source = Source(query_of(case))
    compiled = compile_query(source, catalog)  # refuses what cannot be planned, too
    assert isinstance(compiled, CompiledRead)
    query = select_query(parse_queries(source))
    read = check_query(query, catalog, source)
    assert isinstance(read, ResolvedRead)
    params = Decoder(query.parameters, find_pattern_parameters(compiled.plan))(params_of(case))
    for count in (read.limit, read.offset):
        if isinstance(count, ParamRef):
            check_count(count.name, params[count.name])  # type: ignore[arg-type]
    return answer(read, graph_of(catalog, data_of(case).splitlines()), params, NOW)


def objects(found: Answer) -> list[dict[str, Any]]:
    """Rows as a result gives them: JSON values by column name."""
    values = [
        [to_json_value(value, type_) for value, type_ in zip(row, found.types, strict=True)]
        for row in found.rows
    ]
    return [dict(zip(found.columns, row, strict=True)) for row in values]


# --- expectations --------------------------------------------------------------------------------


def expect(case: Case, columns: list[str], rows: list[dict[str, Any]]) -> None:
    """Compare a result with what the case says of it."""
    sections = {name for name, _ in case.sections}
    if "columns" in sections:
        assert columns == json.loads(case.section("columns") or "")
    if "objects" in sections:
        expect_rows(rows, lines(case, "objects"), ordered=False)
    for name in ("rows", "ordered rows"):
        if name in sections:
            wanted = [dict(zip(columns, row, strict=True)) for row in lines(case, name)]
            expect_rows(rows, wanted, ordered=name == "ordered rows")


def lines(case: Case, section: str) -> list[Any]:
    return [json.loads(line) for line in (case.section(section) or "").splitlines()]


def expect_rows(found: list[dict[str, Any]], wanted: list[dict[str, Any]], *, ordered: bool) -> None:
    assert len(found) == len(wanted), found
    if ordered:
        before: dict[str, Any] = {}
        for row, hope in zip(found, wanted, strict=True):
            assert fits(row, hope, before), f"found {found}"
            before = row
        return
    missing = list(found)
    for hope in wanted:
        fitting = [row for row in missing if fits(row, hope, {})]
        assert fitting, f"no row fits {hope}: {found}"
        missing.remove(fitting[0])


def fits(row: dict[str, Any], hope: dict[str, Any], before: dict[str, Any]) -> bool:
    return row.keys() == hope.keys() and all(
        value_fits(row[name], hope[name], before.get(name)) for name in hope
    )


def value_fits(value: Any, hope: Any, before: Any) -> bool:
    """Scores have no exact value: `<positive>` is any, `<smaller>` one below that of the row before."""
    if hope in ("<positive>", "<smaller>"):
        return isinstance(value, float) and value > 0 and (hope == "<positive>" or value < before)
    # JSON has one kind of number; results have two.
    return type(value) is type(hope) and value == hope


# --- the tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_is_well_formed(case: Case) -> None:
    sections = [name for name, _ in case.sections]
    assert len(set(sections)) == len(sections), f"{case}: a section is repeated"
    assert set(sections) <= GIVEN | EXPECTED, sections
    assert set(sections) & EXPECTED, f"{case}: nothing is expected"
    is_ordered = re.search(r"^  order ", query_of(case), re.MULTILINE) is not None
    assert ("ordered rows" in sections) <= is_ordered, f"{case}: the query leaves the order open"
    assert ("rows" in sections) <= (not is_ordered), f"{case}: the query settles the order"


@pytest.mark.parametrize("case", ANSWERED, ids=str)
def test_the_oracle_gives_the_rows_of_each_case(case: Case) -> None:
    found = ask_oracle(case)
    expect(case, found.columns, objects(found))


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_the_oracle_is_asked_nothing_that_is_refused(case: Case) -> None:
    with pytest.raises(OmnigraphError) as caught:
        ask_oracle(case)
    expect_error(case, caught.value)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("case", ANSWERED, ids=str)
def test_a_read_gives_the_rows_of_its_case(case: Case, condition: str, shelf: Shelf) -> None:
    oracle = ask_oracle(case)
    branch = BRANCH if condition == "branch" else MAIN
    with shelf.reading(schema_of(case), data_of(case), condition) as graph:
        if condition == "warm":
            graph.query(query_of(case), params_of(case))
        result = graph.query(query_of(case), params_of(case), branch=branch)
    assert list(result.columns) == oracle.columns
    assert result.to_arrow().schema.types == [arrow_type(type_) for type_ in oracle.types]
    assert result.to_arrow().num_rows == len(result.rows())
    expect(case, list(result.columns), result.rows())


WALK = 'query q() { match { $p: Person { handle: "ada" }  $p mentors $q } return { $q.handle as h } }'
RANK = """query q() { match { $d: D } return { $d.s as s } order { nearest($d.v, [0.0, 0.0]) } limit 2 }"""
RANKED = next(case for case in ANSWERED if case.name.startswith("X29"))


def test_each_condition_is_what_it_says(shelf: Shelf) -> None:
    """A graph that is cold has nothing in memory, one with indexes is read through them, and so on."""
    for condition in CONDITIONS:
        with shelf.reading(F_SCHEMA, F_DATA, condition) as graph:
            if condition == "cold":
                assert shared_cache().used == 0
            branch = BRANCH if condition == "branch" else MAIN
            steps = graph.explain(WALK, branch=branch).steps
            ways = {step.name: step.how for step in steps}
            assert (ways["Expand"] == "indexes of its ends") is (condition in ("indexed", "reference")), ways
            people = open_table(graph._opened, graph.snapshot(branch)._pinned, "node:Person")
            assert (people.branch is not None) is (condition == "branch")
            assert (len(list_fragments(people)) == 1) is (condition in ("compacted", "branch"))
            assert bool(read_coverage(people)) is (condition in ("indexed", "compacted", "reference"))
    with shelf.reading(schema_of(RANKED), data_of(RANKED), "indexed") as graph:
        calls: list[str] = []
        graph._opened.root.tables.access.observe = lambda operation, _: calls.append(operation)
        graph.query(RANK)
        assert "search" in calls, "the stored vectors are asked"
        assert {step.name: step.how for step in graph.explain(RANK).steps}["Search"] == "stored index"
    with shelf.reading(schema_of(RANKED), data_of(RANKED), "cold") as graph:
        words = RANK.replace("nearest($d.v, [0.0, 0.0])", 'bm25($d.t, "graph")')
        searches = ["vectors compared", "text index made first", "text index in memory"]
        for text, way in zip([RANK, words, words], searches, strict=True):
            assert [step.how for step in graph.explain(text).steps if step.name == "Search"] == [way]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refused_read_says_why(case: Case, shelf: Shelf) -> None:
    with (
        shelf.reading(schema_of(case), data_of(case), "warm") as graph,
        pytest.raises(OmnigraphError) as caught,
    ):
        graph.query(query_of(case), params_of(case))
    expect_error(case, caught.value)


def expect_error(case: Case, error: OmnigraphError) -> None:
    kind, part = (case.section("error") or "").split("\n")
    assert type(error).__name__ == kind
    assert part
    assert part in str(error.message)


@pytest.mark.parametrize(
    ("letter", "numbers"),
    [("E", range(1, 36)), ("X", [*range(1, 5), *range(7, 32)]), ("V", range(1, 6))],
)
def test_every_conformance_case_exists(letter: str, numbers: list[int]) -> None:
    names = {case.name.split()[0] for case in CASES}
    assert {f"{letter}{number}" for number in numbers} <= names
