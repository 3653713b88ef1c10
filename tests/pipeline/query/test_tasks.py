"""What tasks of a read do with Arrow batches, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.lang.query.compile import CompiledRead, compile_query
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.pipeline.query.needs import properties_of
from omnigraph.pipeline.query.scope import Lookup, RequestValues, restore_type
from omnigraph.pipeline.query.tasks import FAR, NEAR, ReadLinks, ReadRows
from omnigraph.pipeline.table_scan import plan_scan, to_spark_types
from tests.pipeline.graphs import people


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "graph") as made:
        yield made


@pytest.mark.parametrize(
    ("direction", "steps"),
    [
        ("out", [("ada", "ada"), ("ada", "bo")]),
        ("in", [("ada", "ada"), ("bo", "ada")]),
        ("both", [("ada", "ada"), ("ada", "bo"), ("bo", "ada")]),
    ],
)
def test_an_edge_is_a_step_in_each_direction_and_a_self_loop_one(
    graph: Graph, direction: EdgeDirection, steps: list[tuple[str, str]]
) -> None:
    scan = plan_scan(graph.uri, graph.snapshot(), "edge:Knows", ["src", "dst"])
    task = ReadLinks(ReadRows(scan, (), {}, RequestValues({}, 0), {}), direction)
    batches = [batch for piece in scan.plan_pieces() for batch in task(piece)]
    found = [
        pair
        for batch in batches
        for pair in zip(*(batch[end].to_pylist() for end in (NEAR, FAR)), strict=True)
    ]
    assert sorted(found) == steps


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0, 2.0], None, [3.0, 4.0], None], pa.list_(pa.float32(), 2)),
        pa.array([None, None], pa.list_(pa.float32(), 2)),
        pa.array([2**64 - 1, None, 0], pa.uint64()),
        pa.array([[2**64 - 1], None, []], pa.list_(pa.uint64())),
        pa.array([2**32 - 1, None], pa.uint32()),
        pa.array([-62135596800000, 253402300799999, None], pa.timestamp("ms", "UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_values_come_back_from_the_types_of_spark(column: pa.Array) -> None:
    (there,) = to_spark_types(pa.schema([("column", column.type)])).types
    for part in (column, column.slice(1), column.slice(0, 0)):
        assert restore_type(part.cast(there), column.type).equals(part)


def test_a_search_has_no_score_for_other_ids() -> None:
    ids = pa.array(["a", "b", "c", None])
    scores = Lookup(pa.array(["b"]), pa.array([0.5]))
    assert scores.of(ids).to_pylist() == [None, 0.5, None, None]
    matches = Lookup(pa.array(["b", "c"]), pa.array([True, None]), otherwise=False)
    assert matches.of(ids).to_pylist() == [False, True, None, None]


def test_only_what_expressions_look_at_is_needed(graph: Graph) -> None:
    text = """query q() {
      match {
        $p: Person { age: 3 }
        $p $k:knows $q
        not { $q.rank > 1 }
        search($q.name, "x")
      }
      return { $p, count($k.since) as n }
    }"""
    compiled = compile_query(text, graph.schema)
    assert isinstance(compiled, CompiledRead)
    assert properties_of(compiled.plan) == {"p": {"age"}, "q": {"rank"}, "k": {"since"}}
