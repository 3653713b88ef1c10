"""A block sees the variables bound before it; what it binds first is its own, whatever others are called."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import OmnigraphError
from omnigraph.lang.query.compile import compile_query
from tests.examples import EXAMPLES
from tests.query import oracle
from tests.query.generate import Query
from tests.query.nested import CATALOG, SCHEMA, nested_queries, small_graphs
from tests.query.shared_names import with_shared_names
from tests.query.test_against_oracle import ask_oracle, disagreement, stored, stored_graph


@st.composite
def draw_shared(draw: st.DrawFn) -> tuple[Query, str]:
    """A query in which no two variables have one name, and a text that means the same with fewer names."""
    query = draw(nested_queries())
    return query, with_shared_names(query.text, lambda names: draw(st.sampled_from(names)))


@pytest.mark.fuzz
@settings(stored, max_examples=max(8, EXAMPLES // 50))
@given(small_graphs(), st.lists(draw_shared(), min_size=20, max_size=40))
def test_local_variables_may_be_called_like_others(lines: list[str], asked: list[tuple[Query, str]]) -> None:
    model = oracle.graph_of(CATALOG, lines)
    with stored_graph(lines, SCHEMA) as graph:
        for query, text in asked:
            wanted = ask_oracle(query, model, CATALOG)
            assert wanted is not None, query.text
            wrong = disagreement(query, wanted, graph.query(text).to_arrow())
            assert wrong is None, f"{text}\ngave {wrong}"


@pytest.mark.fuzz
@settings(max_examples=max(1, EXAMPLES // 5))
@given(st.lists(draw_shared(), min_size=10, max_size=10))
def test_generated_queries_compile(asked: list[tuple[Query, str]]) -> None:
    for query, text in asked:
        try:
            compile_query(text, CATALOG)
        except OmnigraphError as error:
            pytest.fail(f"{text}\n{query.text}\n{error}")


def test_names_are_shared_wherever_scopes_allow_it() -> None:
    clauses = (
        '$n1 e $n2 not { $n3 e $n1 not { $n4: A { k: "{$n9" } } } optional { $n1 e $n5 } not { $n6 e $n5 }'
    )
    text = with_shared_names(clauses, lambda names: names[0])
    assert text == clauses.replace("$n3", "$n5").replace("$n6", "$n4")
