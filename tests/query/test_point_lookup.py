"""Properties of one node by its key, from memory at once: the same as by matching, whatever is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph
from omnigraph.lang.query.compile import CompiledRead, compile_query
from omnigraph.query import rows as rows_of_tables
from omnigraph.query.reader import prepare_read
from omnigraph.query.result import Result
from tests.lang.casefile import Case
from tests.query.conftest import Shelf
from tests.query.test_cases import ANSWERED, catalog_of, data_of, params_of, query_of, schema_of

OFTEN = 40
"""So many questions, and the ids of a table are in a dictionary."""

KEYS: dict[str, list[Any]] = {
    "String": ["ann", "böb", ""],
    "enum(red, green)": ["red", "green"],
    "I32": [-1, 0, 7],
    "I64": [-(2**63), 5, 2**63 - 1],
    "U32": [0, 2**32 - 1],
    "U64": [0, 2**63],
    "F64": [0.5, -1.25, 3.0],
    "F32": [0.5, 16777216.0],
    "Bool": [True],
    "Date": ["2030-01-31", "1969-12-31"],
    "DateTime": ["2030-01-31T12:00:00Z"],
}
ASKED: dict[str, list[Any]] = {
    "String": ["ann", "böb", "", "missing", "red", "blue", "true", "5", None],
    "I32": [0, 7, 8, -1],
    "I64": [0, 7, 2**63 - 1, -(2**63), 16777217, None],
    "U32": [0, 7, 2**32 - 1, None],
    "U64": [0, 5, 2**63 - 1, None],
    "F64": [0.5, 7.0, 7.5, 3.0, 1e300, -0.0],
    "F32": [0.5, 3.0, None],
    "Bool": [True, False, None],
    "Date": ["2030-01-31", "1969-12-31", "2000-01-01", None],
    "DateTime": ["2030-01-31T12:00:00Z", "2030-01-31T12:00:00.001Z", None],
}
NUMBERS = {"I32", "I64", "U32", "U64", "F32", "F64"}


def kind(key: str) -> str:
    return "String" if key.startswith("enum") else key


def type_of(key: str) -> str:
    return f"By{kind(key)}" if key == kind(key) else "ByEnum"


def meets(key: str, asked: str) -> bool:
    return kind(key) == asked or {key, asked} <= NUMBERS


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    types = " ".join(
        f"node {type_of(key)} {{ k: {key} @key  note: String?  at: Date?  list: [I32]? }}" for key in KEYS
    )
    with og.init(tmp_path_factory.mktemp("points") / "g", schema=types) as made:
        with made.write() as tx:
            for key, values in KEYS.items():
                for place, value in enumerate(values):
                    more = {"at": "2031-02-03", "list": [place, 1]} if place else {}
                    tx.insert(type_of(key), k=value, note=f"{place}", **more)
        yield made


def steps(graph: Graph, text: str, params: dict[str, Any]) -> list[str]:
    return [step.name for step in graph.explain(text, params).steps]


Asked = list[tuple[str, dict[str, Any]]]


def both(graph: Graph, asked: Asked) -> Iterator[tuple[Result, Result]]:
    """What each question gives by matching, and from memory once one of them was asked often."""
    assert len(asked) < OFTEN - 10, "more, and the last ones are not matched"
    graph.refresh()
    matched = [graph.query(text, params) for text, params in asked]
    assert steps(graph, *asked[0]) == ["Scan", "Project"]
    for _ in range(OFTEN):
        graph.query(*asked[0])
    for one, (text, params) in zip(matched, asked, strict=True):
        assert steps(graph, text, params) == ["Lookup"]
        yield one, graph.query(text, params)


def assert_same(one: Result, other: Result) -> None:
    assert one.tuples() == other.tuples()
    assert one.rows() == other.rows()
    assert list(one) == list(other)
    assert one.to_arrow().equals(other.to_arrow())
    assert one.types == other.types
    assert len(one) == len(other) == other.to_arrow().num_rows
    assert repr(one) == repr(other)
    assert one.envelope() == other.envelope()


@pytest.mark.parametrize("key", KEYS)
def test_a_point_is_what_matching_finds(graph: Graph, key: str) -> None:
    asked: Asked = [
        (
            f"""query q($v: {type_}?) {{
                match {{ $p: {type_of(key)} {{ k: $v }} }}
                return {{ $p.note as note, $p.k as k, $p.at, $p.list, $p }}
            }}""",
            {"v": value},
        )
        for type_ in sorted(ASKED, key=lambda type_: type_ != kind(key))
        if meets(key, type_)
        for value in ASKED[type_]
    ]
    found = 0
    for one, other in both(graph, asked):
        assert_same(one, other)
        found += len(other)
    assert 0 < found < len(asked)


def is_point(case: Case) -> bool:
    catalog = catalog_of(schema_of(case))
    compiled = compile_query(query_of(case), catalog)
    return isinstance(compiled, CompiledRead) and prepare_read(compiled, catalog).point_lookup is not None


POINTS = [case for case in ANSWERED if is_point(case)]


@pytest.mark.parametrize("case", POINTS, ids=str)
def test_every_case_that_is_a_point_has_the_same_rows_both_ways(case: Case, shelf: Shelf) -> None:
    with shelf.reading(schema_of(case), data_of(case), "cold") as graph:
        for one, other in both(graph, [(query_of(case), params_of(case))]):
            assert_same(one, other)


@pytest.mark.parametrize(
    "body",
    [
        'match { $p: ByString { k: $k }  $p.note = "0" } return { $p.note as n }',
        "match { $p: ByString  $p.k != $k } return { $p.note as n }",
        'match { $p: ByString  $p.k in ["ann"] } return { $p.note as n }',
        "match { $p: ByString { note: $k } } return { $p.note as n }",
        "match { $p: ByString { k: $k } } return { lower($p.note) as n }",
        "match { $p: ByString { k: $k } } return { count($p) as n }",
        "match { $p: ByString { k: $k } } return { $p.note as n } limit 1",
    ],
)
def test_what_is_more_than_a_point_is_matched(graph: Graph, body: str) -> None:
    point = "query q($k: String) { match { $p: ByString { k: $k } } return { $p.note as n } }"
    for _ in range(OFTEN):
        graph.query(point, {"k": "ann"})
    assert steps(graph, point, {"k": "ann"}) == ["Lookup"]
    assert "Lookup" not in steps(graph, f"query q($k: String) {{ {body} }}", {"k": "ann"})


def test_a_point_keeps_to_limits(graph: Graph) -> None:
    text = "query q($k: String) { match { $p: ByString { k: $k } } return { $p.note as n } }"
    for _ in range(OFTEN):
        graph.query(text, {"k": "ann"}, max_rows=1)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(errors.ResourceLimitExceeded, match="rows of query 'q'"):
        graph.query(text, {"k": "ann"}, max_rows=0)
    with pytest.raises(errors.QueryCancelled):
        graph.query(text, {"k": "ann"}, cancel=cancelled)
    with pytest.raises(errors.QueryCancelled):
        graph.query(text, {"k": "ann"}, timeout=0)
    assert graph.query(text, {"k": "missing"}, max_rows=0).tuples() == []


def test_what_is_known_of_keys_outlives_small_writes(tmp_path: Path) -> None:
    """A newer version of a table is not looked through again and again before its keys are known, too."""
    text = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n } }"
    known = {f"p{number}": number for number in range(60)}
    with og.init(tmp_path / "g", schema="node P { k: String @key  n: I32 }") as graph:
        with graph.write() as tx:
            for key, number in known.items():
                tx.insert("P", k=key, n=number)
        for _ in range(OFTEN):
            graph.query(text, {"k": "p1"})
        for turn in range(5):
            graph.mutate(f'query d() {{ delete P where k = "p{turn}" }}')
            with graph.write() as tx:
                tx.update("P", ("k", "=", "p7"), n=100 + turn)
                tx.insert("P", k=f"new {turn}", n=turn)
                if turn > 3:
                    tx.insert("P", k=f"p{turn - 3}", n=-turn)
                    known[f"p{turn - 3}"] = -turn
            known |= {"p7": 100 + turn, f"new {turn}": turn}
            del known[f"p{turn}"]
            graph.query(text, {"k": "p9"})
            assert steps(graph, text, {"k": "p7"}) == ["Lookup"]
            for key in [*known, "missing", *(f"p{number}" for number in range(7))]:
                wanted = [(known[key],)] if key in known else []
                assert graph.query(text, {"k": key}).tuples() == wanted, (turn, key)


def test_a_point_sees_every_write_at_once(tmp_path: Path) -> None:
    text = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n } }"
    schema = "node P { k: String @key  n: I32 }"
    with og.init(tmp_path / "g", schema=schema) as graph, og.open(tmp_path / "g") as other:
        for turn in range(4):
            with other.write() as tx:
                tx.insert("P", k="ann", n=turn)
                tx.insert("P", k=f"more {turn}", n=turn)
            before = graph.snapshot()
            for _ in range(OFTEN):
                assert graph.query(text, {"k": "ann"}).tuples() == [(turn,)]
            assert steps(graph, text, {"k": "ann"}) == ["Lookup"]
            other.mutate('query d() { delete P where k = "ann" }')
            assert graph.query(text, {"k": "ann"}).tuples() == []
            assert before.query(text, {"k": "ann"}).tuples() == [(turn,)], "the past stays"


@pytest.mark.parametrize(
    "known",
    [
        "query q($k: String) { match { $p: P } return { count($p) as n } }",
        "query q($k: String) { match { $p: P { k: $k } } return { $p.k as k } }",
    ],
    ids=["rows", "rows and ids"],
)
def test_a_point_whose_rows_were_cleaned_up_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """The newer rows are known and their values are not: of many these are read when the first point asks."""
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    monkeypatch.setattr(rows_of_tables, "_FEW_CHANGES", 100)
    text = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n } }"
    keys = [f"{number} {'long' * 50}" for number in range(6000)]

    def put(graph: Graph, count: int, n: int) -> None:
        rows = pa.table({"k": keys[:count], "n": pa.array([n] * count, pa.int32())})
        graph.load(rows, type="P", mode="merge")

    with og.init(tmp_path / "g", schema="node P { k: String @key  n: I32 }") as graph:
        put(graph, len(keys), 0)
        for _ in range(OFTEN):
            graph.query(text, {"k": keys[0]})
        put(graph, 1000, 1)
        past = graph.snapshot()
        graph.query(known, {"k": keys[0]})
        put(graph, 1000, 2)
        with og.open(tmp_path / "g") as other:
            other.cleanup(keep=1)
        with pytest.raises(errors.HistoricalVersionReclaimed):
            past.query(text, {"k": keys[0]})
        assert graph.query(text, {"k": keys[0]}).tuples() == [(2,)]
