"""Algorithms on Spark: the same values to the last bit as in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from omnigraph.pipeline import table_scan
from omnigraph.pipeline.algorithms import spark_graph
from omnigraph.pipeline.algorithms.edge_blocks import (
    ByBlock,
    BySource,
    ByTarget,
    IntoBlocks,
    Piece,
    StraightToBlocks,
    emit_numbers,
    unpack_blocks,
)
from omnigraph.pipeline.map_reduce import BLOBS
from omnigraph.pipeline.table_scan import plan_scan
from omnigraph.query.algorithms.algorithms import (
    Algorithm,
    ConnectedComponents,
    Degree,
    LabelPropagation,
    PageRank,
    ShortestPaths,
    TriangleCount,
)
from omnigraph.query.algorithms.edge_block import Block, Part, list_corners
from omnigraph.query.algorithms.local_graph import Numbering, sort_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Person { name: String @key  rank: F64? }
node City { name: String @key }
edge Knows: Person -> Person { cost: F64? }
edge Lives: Person -> City { cost: F64? }
"""
PEOPLE, CITIES, BUCKETS, COLOURS = 40, 7, 3, 2


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """People in a ring with chords, doubled edges and loops, most of whom live somewhere."""
    with og.init(tmp_path_factory.mktemp("algorithms") / "g.omni", schema=SCHEMA) as made:
        for half in range(2):
            with made.write() as tx:
                for number in range(half, PEOPLE, 2):
                    tx.insert("Person", name=f"p{number}")
                for number in range(half, CITIES, 2):
                    tx.insert("City", name=f"c{number}")
        for step in (1, 3, 4, 0):
            with made.write() as tx:
                for number in range(0, PEOPLE - 5, 1 + step % 3):
                    ends = (f"p{number}", f"p{(number + step) % (PEOPLE - 5)}")
                    tx.insert_edge("Knows", *ends, cost=0.1 * (number % 7))
                    tx.insert_edge("Lives", ends[0], f"c{(number * step) % 5}", cost=1.0)
        yield made


ALGORITHMS: list[Algorithm] = [
    PageRank(max_iterations=3),
    PageRank(max_iterations=3, way="in", weight="cost"),
    ConnectedComponents(),
    LabelPropagation(3),
    ShortestPaths(("p3", "p38"), "out", "cost"),
    TriangleCount(),
    Degree("out", distinct=True),
]


class Tasks:
    """The tasks of Spark in this process, and a shuffle in a dictionary."""

    def __init__(self, graph: Graph) -> None:
        snapshot = graph.snapshot()
        self.nodes = Numbering(
            {name: sort_ids(_whole(snapshot.rows(name).column("id")))[0] for name in ("City", "Person")}
        )
        self.pieces = []
        for edge in graph.schema.edges.values():
            scan = plan_scan(graph.uri, snapshot, f"edge:{edge.name}", ["src", "dst", "cost"])
            self.pieces += [
                Piece(scan, some, edge.name, edge.source, edge.target) for some in scan.plan_pieces()
            ]

    def blocks(self, algorithm: Algorithm, *, straight: bool) -> list[Block]:
        arranged = algorithm.arrangement
        places = len(list_corners(COLOURS)) if arranged.corners else BUCKETS
        placing = ByBlock(arranged, places, COLOURS)
        if straight:
            task = StraightToBlocks(self.nodes, placing)
            whole = [batch for piece in self.pieces for batch in task(piece)]
        else:
            whole = self._shuffled(arranged.weight, placing)
        rows = _reduce(whole, IntoBlocks(arranged.distinct, self.nodes.count))
        return [block for row in rows for block in unpack_blocks(row)]

    def _shuffled(self, weight: str | None, placing: ByBlock) -> list[pa.RecordBatch]:
        raw = [batch for piece in self.pieces for batch in BySource(weight, BUCKETS)(piece)]
        half = _reduce([*raw, *emit_numbers(self.nodes, BUCKETS)], ByTarget(BUCKETS))
        return _reduce([*half, *emit_numbers(self.nodes, BUCKETS)], placing)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _reduce(batches: list[pa.RecordBatch], reducer: Callable[[Any], Any]) -> list[pa.RecordBatch]:
    arrived: dict[int, dict[str, list[pa.Table]]] = {}
    for row in pa.Table.from_batches(batches, BLOBS).to_pylist():
        tables = arrived.setdefault(row["bucket"], {}).setdefault(row["tag"], [])
        tables.append(pa.ipc.open_stream(row["blob"]).read_all())
    return [
        batch
        for tables in arrived.values()
        for batch in reducer({tag: pa.concat_tables(parts) for tag, parts in tables.items()})
    ]


class _Kept:
    """Blocks without Spark."""

    def __init__(self, count: int, blocks: list[Block]) -> None:
        self.count = count
        self.corners = COLOURS
        self._blocks = blocks

    def parts(self, stage: str, task: Callable[[Block], Part]) -> Iterator[Part]:
        return map(task, self._blocks)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.name)
def test_blocks_of_tasks_give_the_values_of_this_process(
    graph: Graph, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_scan, "ROWS_PER_TASK", 10)
    tasks, wanted = Tasks(graph), local(graph, algorithm)
    for straight in (True, False):
        blocks = tasks.blocks(algorithm, straight=straight)
        assert len(blocks) > 1
        found = algorithm.run(_Kept(tasks.nodes.count, blocks), tasks.nodes)
        assert tasks.nodes.table(found.column).equals(wanted), straight


def local(graph: Graph, algorithm: Algorithm) -> pa.Table:
    name, how = algorithm.name, _how(algorithm)
    found: pa.Table = getattr(graph.algorithms, name)(**how, engine="local").to_arrow()
    return found


def _how(algorithm: Algorithm) -> dict[str, Any]:
    match algorithm:
        case PageRank(way=way, weight=weight):
            return {"max_iterations": 3, "direction": way, "weight": weight}
        case LabelPropagation():
            return {"max_iterations": 3}
        case ShortestPaths():
            return {"sources": ["p3", "p38"], "weight": "cost"}
        case Degree():
            return {"direction": "out", "distinct": True}
    return {}


def test_what_spark_finds_is_a_dataframe(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_graph, "BYTES_FOR_EVERY_TASK", 0)
    found = graph.spark(spark).algorithms.triangle_count().toArrow()
    assert found.sort_by([("type", "ascending"), ("id", "ascending")]).equals(local(graph, TriangleCount()))


def test_ranks_of_spark_are_those_of_this_process_and_become_a_property(
    spark: SparkSession, graph: Graph
) -> None:
    graph.branches.create("ranks")
    where = {"Person": ['name != "p7"'], "Knows": "cost > 0.05"}
    how: Any = {"edges": "Knows", "max_iterations": 2, "branch": "ranks", "weight": "cost"}
    filtered = graph.algorithms.pagerank(**how, where=where, engine="spark").to_arrow()
    assert filtered.equals(graph.algorithms.pagerank(**how, where=where, engine="local").to_arrow())
    assert len(filtered) == PEOPLE - 1
    found = graph.algorithms.pagerank(**how, engine="spark", write_to="Person.rank")
    assert (found.engine, found.why) == ("spark", "it was asked for")
    assert found.to_arrow().equals(graph.algorithms.pagerank(**how, engine="local").to_arrow())
    assert found.written is not None
    assert found.written.rows == PEOPLE
    stored = graph.snapshot("ranks").rows("Person", columns=["id", "rank"]).sort_by("id")
    assert stored.column("rank").to_pylist() == found.to_arrow().column("value").to_pylist()


def test_a_weight_that_is_negative_is_reported_by_the_task_that_finds_it(
    spark: SparkSession, graph: Graph
) -> None:
    graph.branches.create("debts")
    with graph.write("debts") as tx:
        tx.insert_edge("Knows", "p1", "p2", cost=-1.0)
    with pytest.raises(BadRequest, match=r"has the 'cost' -1[.]0; a weight"):
        graph.spark(spark).algorithms.shortest_paths("p1", edges="Knows", weight="cost", branch="debts")


def test_dataframes_are_made_by_spark_alone(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="DataFrames are made by Spark, not by 'local'"):
        _frames(graph).degree(engine="local")


def _frames(graph: Graph) -> Any:
    from omnigraph.pipeline.algorithms.frame_algorithms import FrameAlgorithms

    session: Any = None
    return FrameAlgorithms(graph, session)
