"""A graph as DataFrames: exact values, one moment, only the columns and rows that were asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, QueryNotFound
from omnigraph.graph import Graph
from omnigraph.pipeline import table_scan
from omnigraph.pipeline.fan_out import arrow_schema, conform, spark_schema
from omnigraph.pipeline.graph_frames import GraphFrames
from omnigraph.pipeline.table_scan import plan_scan, to_spark_types
from tests.pipeline.graphs import people
from tests.reference_graphs import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "graph") as made:
        yield made


def rows(graph: Graph, key: str, **how: Any) -> list[dict[str, Any]]:
    """What the tasks of a scan yield, in the types that Spark takes."""
    scan = plan_scan(graph.uri, graph.snapshot(), key, **how)
    wanted = arrow_schema(spark_schema(scan.schema))
    batches = [conform(batch, wanted) for piece in scan.plan_pieces() for batch in scan(piece)]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, wanted).to_pylist()
    return found


def test_every_value_arrives_in_a_type_of_spark(graph: Graph) -> None:
    ada, bo = sorted(rows(graph, "node:Person"), key=lambda row: row["id"])
    assert ada == {
        "id": "ada",
        "name": "ada",
        "age": 36,
        "score": Decimal(2**64 - 1),
        "rank": 2**32 - 1,
        "weight": 1.5,
        "active": True,
        "born": date(1815, 12, 10),
        "seen": datetime(2024, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC),
        "tags": ["x", "y"],
        "counts": [Decimal(1), Decimal(2**64 - 1)],
        "place": [0.5, 1.5],
    }
    assert {name for name, value in bo.items() if value is not None} == {"id", "name"}


def test_tables_of_the_reference_implementation_give_the_same_rows(graph: Graph, tmp_path: Path) -> None:
    wanted = sorted(rows(graph, "node:Person"), key=lambda row: row["id"])
    convert(Path(graph.uri), tmp_path / "reference")
    with og.open(tmp_path / "reference", read_only=True) as other:
        found = sorted(rows(other, "node:Person"), key=lambda row: row["id"])
        assert [dict(sorted(row.items())) for row in found] == [dict(sorted(row.items())) for row in wanted]
        later = 'seen > datetime("2024-05-01T12:00:00.122Z")'
        seen = rows(other, "node:Person", where=later, columns=["name"])
        assert seen == [{"name": "ada"}]


def test_blobs_come_as_bytes_when_they_are_named(graph: Graph) -> None:
    assert rows(graph, "node:Person", columns=["photo", "name"]) == [
        {"photo": b"\0\1\2", "name": "ada"},
        {"photo": None, "name": "bo"},
    ]


def test_columns_that_are_not_there_are_reported_with_those_that_are(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="'Knows' has no column 'until'") as caught:
        plan_scan(graph.uri, graph.snapshot(), "edge:Knows", ["until"])
    assert caught.value.remedy == "it has: id, src, dst, since"
    with pytest.raises(BadRequest, match="there is no edge type 'Person'"):
        plan_scan(graph.uri, graph.snapshot(), "edge:Person")
    with pytest.raises(BadRequest, match="at least one column"):
        plan_scan(graph.uri, graph.snapshot(), "edge:Knows", [])


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("age >= 36", ["ada"]),
        ("age is null", ["bo"]),
        ('name in ["bo", "cy"]', ["bo"]),
        ("score > 9007199254740993", ["ada"]),
        ('seen >= datetime("2024-05-01T12:00:00.123Z")', ["ada"]),
        (["age > 1", 'name != "ada"'], []),
    ],
)
def test_a_filter_means_what_it_means_in_a_mutation(graph: Graph, where: Any, names: list[str]) -> None:
    found = rows(graph, "node:Person", columns=["name"], where=where)
    assert [row["name"] for row in found] == names


def test_edges_are_filtered_by_their_ends(graph: Graph) -> None:
    assert [row["dst"] for row in rows(graph, "edge:Knows", where='to = "bo"')] == ["bo"]


@pytest.mark.parametrize("where", ["", 'name = "a" } query more() { delete Person where age > 1'])
def test_a_filter_that_is_no_comparison_is_refused(graph: Graph, where: str) -> None:
    with pytest.raises((BadRequest, QueryNotFound)):
        plan_scan(graph.uri, graph.snapshot(), "node:Person", where=where)


def test_fragments_are_shared_out_among_tasks(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = plan_scan(graph.uri, graph.snapshot(), "node:Person", ["name"])
    together = scan.plan_pieces()
    assert len(together) == 1
    monkeypatch.setattr(table_scan, "ROWS_PER_TASK", 1)
    apart = scan.plan_pieces()
    assert [(one,) for one in together[0]] == apart
    assert [batch["name"].to_pylist() for piece in apart for batch in scan(piece)] == [["ada"], ["bo"]]


def test_a_version_that_was_cleaned_up_is_reported_as_reclaimed(graph: Graph) -> None:
    scan = plan_scan(graph.uri, graph.snapshot(), "node:Person")
    with pytest.raises(HistoricalVersionReclaimed, match="version 99 of table 'node:Person'"):
        replace(scan, version=99).plan_pieces()


def test_a_branch_that_was_recreated_is_not_taken_for_the_one_that_was_read(graph: Graph) -> None:
    def made(name: str) -> None:
        graph.branches.create("work")
        with graph.write("work") as tx:
            tx.insert("Person", name=name)

    made("cy")
    snapshot = graph.snapshot("work")
    scan = plan_scan(graph.uri, snapshot, "node:Person", ["name"])
    (piece,) = scan.plan_pieces()
    assert [name for batch in scan(piece) for name in batch["name"].to_pylist()] == ["ada", "bo", "cy"]
    graph.branches.delete("work")
    made("dee")
    assert graph.snapshot("work").tables["node:Person"].version == scan.version
    for read in (
        scan.plan_pieces,
        lambda: list(scan(piece)),
        lambda: plan_scan(graph.uri, snapshot, "node:Person"),
        replace(scan, work="another process").plan_pieces,
    ):
        with pytest.raises(HistoricalVersionReclaimed, match="of table 'node:Person'"):
            read()


def test_lists_of_other_widths_take_the_form_of_their_items() -> None:
    given = pa.schema([("a", pa.list_(pa.uint32(), 3)), ("b", pa.timestamp("ms", "UTC"))])
    assert to_spark_types(given).types == [pa.list_(pa.int64()), pa.timestamp("us", "UTC")]


def test_a_frame_shows_the_moment_it_was_made(spark: SparkSession, graph: Graph) -> None:
    frames = graph.spark(spark)
    assert isinstance(frames, GraphFrames)
    nodes, edges = frames.nodes("Person", columns=["name", "age"]), frames.edges("Knows")
    with graph.write() as tx:
        tx.delete("Person", ("name", "=", "ada"))
    assert sorted(map(tuple, nodes.collect())) == [("ada", 36), ("bo", None)]
    assert sorted((row.src, row.dst, row.since) for row in edges.collect()) == [
        ("ada", "ada", 1),
        ("ada", "bo", None),
    ]
    assert frames.nodes("Person").count() == 1
    assert frames.nodes("Person", version=nodes_version(graph)).count() == 2
    assert frames.nodes("Team").count() == 0


def nodes_version(graph: Graph) -> int:
    """The version of main before its newest commit."""
    return graph.snapshot().version - 1


def test_what_a_query_finds_is_a_frame(spark: SparkSession, graph: Graph) -> None:
    text = "query q($n: String) { match { $p: Person  $p.name = $n } return { $p.name, $p.score } }"
    frames = graph.spark(spark)
    found = frames.query(text, {"n": "ada"})
    assert [tuple(row) for row in found.collect()] == [("ada", Decimal(2**64 - 1))]
    assert frames.query(text, {"n": "missing"}).count() == 0


def test_a_graph_that_took_the_place_of_another_is_not_read_as_that_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Workers live on, and tables have the same places and version numbers again."""
    for names in (["ann"], ["bob", "eve"]):
        shutil.rmtree(tmp_path / "g.omni", ignore_errors=True)
        with og.init(tmp_path / "g.omni", schema="node P { name: String @key }") as graph:
            graph.load(pa.table({"name": names}), type="P", mode="append", engine="local")
            found = graph.spark(spark).nodes("P").select("name").collect()
            assert sorted(row.name for row in found) == names
