"""The engine and the oracle give the same rows for any read of any graph."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.lang.query.compile import check_query, compile_query, select_query
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.resolved import ResolvedRead
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.lang.values import arrow_type
from omnigraph.query import context, match
from omnigraph.query.read_cache import shared_cache
from tests.examples import EXAMPLES
from tests.query import oracle
from tests.query.conftest import every_index
from tests.query.generate import CATALOG, SCHEMA, Query, graphs, queries
from tests.query.small_limits import through_indexes

pytestmark = pytest.mark.fuzz
# An example is a stored graph and several reads of it, a thousand times the cost of a broken text: there are
# fewer of them, and only the long form spends minutes on making a failing one small.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
stored = settings(
    max_examples=max(30, EXAMPLES // 50),
    phases=PHASES if EXAMPLES <= 1000 else [*PHASES, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
NOW = 1_900_000_000_000


def ask_oracle(query: Query, graph: oracle.Graph, catalog: Catalog = CATALOG) -> oracle.Answer | None:
    """What the oracle says, or None for the few texts that do not compile."""
    source = Source(query.text)
    try:
        compile_query(source, catalog)
    except OmnigraphError:
        return None
    parsed = select_query(parse_queries(source))
    read = check_query(parsed, catalog, source)
    assert isinstance(read, ResolvedRead)
    return oracle.answer(read, graph, decode_parameters(parsed.parameters, query.params), NOW)


# --- comparing -----------------------------------------------------------------------------------


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of stored values: moments as numbers, lists as tuples."""
    columns = [_storage_values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _storage_values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type.value_type if pa.types.is_list(column.type) else column.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        column = column.cast(pa.list_(number) if pa.types.is_list(column.type) else number)
    return [tuple(value) if isinstance(value, list) else value for value in column.to_pylist()]


def disagreement(query: Query, wanted: oracle.Answer, table: pa.Table) -> str | None:
    """What is wrong with an engine's result, or None."""
    types = [arrow_type(type_) for type_ in wanted.types]
    if table.column_names != wanted.columns or table.schema.types != types:
        return f"columns {table.schema} instead of {list(zip(wanted.columns, types, strict=True))}"
    shape = _comparable(query)
    found, hoped = (list(map(shape, rows)) for rows in (rows_of(table), wanted.rows))
    same = found == hoped if wanted.in_order and not query.loose else Counter(found) == Counter(hoped)
    return None if same else f"rows\n  {found}\ninstead of\n  {hoped}"


def _comparable(query: Query) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def rounded(value: Any) -> Any:
        if not isinstance(value, float) or value == 0 or not math.isfinite(value):
            return value
        return float(f"{value:.5e}")

    def shape(row: tuple[Any, ...]) -> tuple[Any, ...]:
        cells = list(row)
        for at in query.approximate:
            cells[at] = rounded(cells[at])
        for at in query.scored:
            cells[at] = cells[at] is not None
        return tuple(cells)

    return shape


# --- the tests -----------------------------------------------------------------------------------


@contextmanager
def stored_graph(lines: list[str], schema: str = SCHEMA) -> Iterator[Graph]:
    with tempfile.TemporaryDirectory() as folder, og.init(Path(folder) / "g", schema=schema) as graph:
        load(graph, lines, "append")
        yield graph


def load(graph: Graph, lines: list[str], mode: Literal["append", "merge"]) -> None:
    if lines:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.write("\n".join(lines))
            file.flush()
            graph.load(file.name, mode=mode)


def check_all(graph: Graph, model: oracle.Graph, asked: list[Query], branch: str = MAIN) -> None:
    for query in asked:
        wanted = ask_oracle(query, model)
        if wanted is None:
            continue
        result = graph.query(query.text, query.params, branch=branch)
        wrong = disagreement(query, wanted, result.to_arrow())
        assert wrong is None, f"{query.text}\nwith {query.params}\ngave {wrong}"


@stored
@given(graphs(), st.lists(queries(), min_size=8, max_size=14))
def test_the_engine_agrees_with_the_oracle(lines: list[str], asked: list[Query]) -> None:
    with stored_graph(lines) as graph:
        model = oracle.graph_of(CATALOG, lines)
        check_all(graph, model, asked[::2])
        # The others as they are answered where tables are too large to be looked through beside a few nodes.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(match, "_SMALL", 0)
            patch.setattr(match, "_VERY_FEW", 1)
            patch.setattr(context, "_FEW", 1)
            patch.setattr(context, "MOST_BYTES", 500)
            check_all(graph, model, asked[1::2])


@settings(stored, max_examples=max(6, EXAMPLES // 250))
@given(graphs(), graphs(), st.lists(queries(), min_size=4, max_size=8))
def test_a_warm_reader_follows_every_write(lines: list[str], more: list[str], asked: list[Query]) -> None:
    """What is kept from the state before must not show in the next one, nor on another branch."""
    model = oracle.graph_of(CATALOG, lines)
    with stored_graph(lines) as graph:
        check_all(graph, model, asked)
        graph.branches.create("before")
        load(graph, more, "merge")
        merged = oracle.graph_of(CATALOG, [*lines, *more])
        check_all(graph, merged, asked)
        graph.mutate('query q() { delete Thing where k = "t1" delete Item where code = 0 }')
        merged.delete_node(CATALOG, "Thing", "t1")
        merged.delete_node(CATALOG, "Item", "0")
        check_all(graph, merged, asked)
        check_all(graph, model, asked, branch="before")


@settings(stored, max_examples=max(5, EXAMPLES // 500))
@given(graphs(), graphs(), st.lists(queries(), min_size=6, max_size=10))
def test_indexes_and_compaction_change_no_answer(
    lines: list[str], more: list[str], asked: list[Query]
) -> None:
    """Whether all rows are in the indexes, or only those that were there when they were built."""
    with stored_graph(lines) as graph, every_index():
        graph.ensure_indices()
        with through_indexes():
            check_all(graph, oracle.graph_of(CATALOG, lines), asked)
            load(graph, more, "merge")
            merged = oracle.graph_of(CATALOG, [*lines, *more])
            check_all(graph, merged, asked)
            shared_cache().forget()
            check_all(graph, merged, asked)
        graph.optimize()
        check_all(graph, merged, asked)


@settings(max_examples=30)
@given(graphs(), st.lists(queries(), min_size=5, max_size=5))
def test_generated_reads_are_worth_asking(lines: list[str], asked: list[Query]) -> None:
    """Nearly all compile; a generator that only writes refused texts would prove nothing."""
    model = oracle.graph_of(CATALOG, lines)
    answers = [ask_oracle(query, model) for query in asked]
    assert answers.count(None) <= 1, asked[answers.index(None)].text
