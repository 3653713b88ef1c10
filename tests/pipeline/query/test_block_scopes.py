"""Names that several variables share mean on Spark what they mean to the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import EXAMPLES
from tests.query import oracle
from tests.query.generate import Query
from tests.query.nested import CATALOG, SCHEMA, small_graphs
from tests.query.test_against_oracle import ask_oracle, disagreement, stored, stored_graph
from tests.query.test_block_scopes import draw_shared


@pytest.mark.fuzz
@pytest.mark.usefixtures("frugal")
@settings(stored, max_examples=max(3, EXAMPLES // 1000))
@given(small_graphs(), st.lists(draw_shared(), min_size=6, max_size=8))
def test_local_variables_may_be_called_like_others(lines: list[str], asked: list[tuple[Query, str]]) -> None:
    model = oracle.graph_of(CATALOG, lines)
    with stored_graph(lines, SCHEMA) as graph:
        for query, text in asked:
            wanted = ask_oracle(query, model, CATALOG)
            assert wanted is not None, query.text
            wrong = disagreement(query, wanted, graph.query(text, engine="spark").to_arrow())
            assert wrong is None, f"{text}\ngave {wrong}"
