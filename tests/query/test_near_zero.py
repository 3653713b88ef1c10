"""What is done for large tables only gives the rows that the oracle gives, on small ones."""

from __future__ import annotations

import ast
import inspect

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.query.read_cache import shared_cache
from tests.examples import EXAMPLES
from tests.query import oracle
from tests.query.conftest import every_index
from tests.query.generate import CATALOG, Query, graphs, queries
from tests.query.near_zero import OTHERS, SIZES, engine_modules, near_zero, numbers_of
from tests.query.test_against_oracle import ask_oracle, check_all, disagreement, load, stored, stored_graph

SCHEMA_OF_TWO = "node A { k: String @key  n: I64? }\nnode B { k: String @key  n: I64? }\nedge Ab: A -> B"


def check_streams(graph: Graph, model: oracle.Graph, asked: list[Query], size: int) -> None:
    """The same rows, a few at a time."""
    for query in asked:
        wanted = ask_oracle(query, model)
        if wanted is None:
            continue
        shared_cache().forget()
        table = graph.stream(query.text, query.params, batch_rows=size).read_all()
        wrong = disagreement(query, wanted, table)
        assert wrong is None, f"{query.text}\nwith {query.params}\nstreamed {wrong}"


@pytest.mark.fuzz
@settings(stored, max_examples=max(6, EXAMPLES // 100))
@given(graphs(), graphs(), st.lists(queries(), min_size=8, max_size=12), st.booleans(), st.integers(1, 3))
def test_every_size_near_zero_changes_no_answer(
    lines: list[str], more: list[str], asked: list[Query], indexed: bool, size: int
) -> None:
    with stored_graph(lines) as graph, every_index(), near_zero():
        model = oracle.graph_of(CATALOG, lines)
        if indexed:
            graph.ensure_indices()
        check_all(graph, model, asked)
        check_streams(graph, model, asked[::2], size)
        load(graph, more, "merge")
        merged = oracle.graph_of(CATALOG, [*lines, *more])
        check_all(graph, merged, asked)
        shared_cache().forget()
        check_all(graph, merged, asked[::2])
        graph.mutate('query q() { delete Thing where k = "t1" delete Item where code = 0 }')
        merged.delete_node(CATALOG, "Thing", "t1")
        merged.delete_node(CATALOG, "Item", "0")
        check_all(graph, merged, asked)
        check_streams(graph, merged, asked[1::2], size)


@pytest.mark.parametrize("keys", ["none", "one without", "one with", "both"])
def test_a_stream_of_a_cold_table_has_null_where_there_is_no_match(keys: str) -> None:
    """One row, or rows in the order of their table, of which an optional variable has no match."""
    chosen = {"none": ["z"], "one without": ["a"], "one with": ["b"], "both": ["a", "b"]}[keys]
    lines = [f'{{"type": "{kind}", "data": {{"k": "{key}", "n": 1}}}}' for kind in "AB" for key in "abc"]
    lines.append('{"edge": "Ab", "from": "b", "to": "a", "data": {}}')
    text = """query q($keys: [String]) {
      match { $a: A  $a.k in $keys  optional { $a ab $b } } return { $a.k as a, $b.n as n }
    }"""
    with stored_graph(lines, SCHEMA_OF_TWO) as graph, near_zero():
        shared_cache().forget()
        found = graph.stream(text, {"keys": chosen}).read_all()
        wanted = [{"a": key, "n": 1 if key == "b" else None} for key in chosen if key != "z"]
        assert sorted(found.to_pylist(), key=lambda row: row["a"]) == wanted
        assert found.schema.types == [pa.string(), pa.int64()]


def test_every_number_of_the_engine_is_known() -> None:
    """A new size that decides between two ways is tried near zero, too."""
    modules = engine_modules()
    for name, module in modules.items():
        own = {each for each in numbers_of(module) if _assigns(module, each)}
        known = SIZES.get(name, {}).keys() | OTHERS.get(name, set())
        assert own == known, f"omnigraph.query.{name}"


def _assigns(module: object, name: str) -> bool:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    targets = [
        target
        for statement in tree.body
        for target in (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
    ]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
