"""A DataFrame into a graph: written by its tasks, loaded like files, in one commit or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, LoadRejected
from omnigraph.graph import Graph
from omnigraph.pipeline import frame_spool
from omnigraph.pipeline.datasource import register
from omnigraph.pipeline.frame_spool import PARTS, Stage, to_loadable
from tests.pipeline.graphs import SCHEMA, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph", schema=SCHEMA) as made:
        yield made


def waiting(graph: Graph) -> list[Path]:
    """Files of loads that are still there."""
    return [path for path in (Path(graph.uri) / "__staging").rglob("*") if path.is_file()]


def test_tasks_write_files_that_load_in_their_order(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_spool, "PART_BYTES", 1)
    stage = Stage(graph.uri, "01M7H6TK5HV8H6GPZPNM0M0FVK", "node:Person")
    batches = [pa.record_batch({"name": [name]}) for name in ("ada", "bo")]
    parts = pa.Table.from_batches(stage(batches), PARTS)
    # Of a task that ran again only the answer counts, whatever its first run left.
    list(stage(batches))
    files = stage.list_files(parts, batches[0].schema)
    assert (len(files), len(waiting(graph))) == (2, 4)
    assert [(file.type, file.before) for file in files] == [("Person", 0), ("Person", 1)]
    assert graph.load(files, mode="append").nodes == {"Person": 2}
    stage.clear()
    assert waiting(graph) == []


def test_no_rows_are_a_file_without_rows(graph: Graph) -> None:
    stage = Stage(graph.uri, "01M7H6TK5HV8H6GPZPNM0M0FVK", "node:Person")
    files = stage.list_files(pa.Table.from_batches(stage([]), PARTS), pa.schema([("name", pa.string())]))
    done = graph.load(files, mode="append")
    assert (len(files), done.total, done.commit) == (1, 0, None)


def test_whole_decimals_become_integers() -> None:
    wide, narrow, fraction = pa.decimal128(20, 0), pa.decimal128(10, 0), pa.decimal128(10, 2)
    rows = pa.table(
        {
            "src": ["a"],
            "wide": pa.array([Decimal(2**64 - 1)], wide),
            "below": pa.array([Decimal(-1)], wide),
            "narrow": pa.array([Decimal(7)], narrow),
            "fraction": pa.array([Decimal("1.50")], fraction),
            "many": pa.array([[Decimal(2**64 - 1)]], pa.list_(wide)),
        }
    )
    found = to_loadable(rows)
    assert found.column_names == ["src", "wide", "below", "narrow", "fraction", "many"]
    assert found.schema.types[1:] == [
        pa.uint64(),
        pa.int64(),
        pa.int64(),
        fraction,
        pa.list_(pa.uint64()),
    ]


def test_a_graph_goes_through_frames_unchanged(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    with people(tmp_path / "first") as first:
        frames = first.spark(spark)
        everything = ["id", *first.schema.nodes["Person"].properties]
        nodes = frames.nodes("Person", columns=everything).repartition(2)
        done = graph.load(nodes, type="Person", mode="append")
        assert (done.nodes, done.engine and done.engine.name) == ({"Person": 2}, "spark")
        assert graph.load(frames.edges("Knows"), type="Knows", mode="append", engine="local").total == 2
        first.export(tmp_path / "first.ndjson")
    graph.export(tmp_path / "second.ndjson")
    assert (tmp_path / "first.ndjson").read_bytes() == (tmp_path / "second.ndjson").read_bytes()
    assert waiting(graph) == []


def test_a_frame_without_rows_empties_the_type_it_overwrites(spark: SparkSession, tmp_path: Path) -> None:
    schema = "node Follows { name: String @key }  edge Follows: Follows -> Follows"
    with og.init(tmp_path / "two", schema=schema) as graph:
        graph.load(pa.table({"name": ["ada", "bo"]}), type="node:Follows", mode="append", engine="local")
        ends = spark.createDataFrame(pa.table({"src": ["ada", "bo"], "dst": ["bo", "bo"]}))
        assert graph.load(ends, type="edge:Follows", mode="append").edges == {"Follows": 2}
        done = graph.load(ends.where("false"), type="edge:Follows", mode="overwrite")
        assert (done.edges, done.commit is None) == ({"Follows": 0}, False)
        kept = [graph.snapshot().rows(key).num_rows for key in ("node:Follows", "edge:Follows")]
        assert kept == [2, 0]


def test_a_patch_by_tasks_changes_the_columns_it_has(spark: SparkSession, tmp_path: Path) -> None:
    with og.init(tmp_path / "g", schema="node P { k: String @key  a: I32?  b: String? }") as graph:
        graph.load([{"k": f"p{at}", "a": at, "b": "x"} for at in range(20)], type="P", mode="append")
        frame = spark.createDataFrame([(f"p{at}", at + 100) for at in range(0, 20, 2)], "k string, a int")
        register(spark)
        order = {"uri": graph.uri, "type": "P", "mode": "patch", "retry": "1"}
        frame.repartition(3).write.format("omnigraph").mode("append").options(**order).save()
        found = graph.snapshot().rows("P").sort_by("k").to_pylist()
        assert {row["a"] for row in found} == {*range(1, 20, 2), *range(100, 120, 2)}
        assert {row["b"] for row in found} == {"x"}


def test_rows_that_are_wrong_leave_no_trace(spark: SparkSession, graph: Graph) -> None:
    before = graph.snapshot().id
    twice = spark.createDataFrame(pa.table({"name": ["ada", "ada"], "age": pa.array([1, 2], pa.int32())}))
    with pytest.raises(LoadRejected):
        graph.load(twice, type="Person", mode="append")
    with pytest.raises(LoadRejected, match="unknown input field 'agee'"):
        graph.load(twice.withColumnRenamed("age", "agee"), type="Person", mode="append")
    with pytest.raises(BadRequest, match="do not tell which type"):
        graph.load(twice, mode="append")
    with pytest.raises(BadRequest, match="unknown type 'Persn'"):
        graph.spark(spark).write(twice, type="Persn", mode="append")
    assert (graph.snapshot().id, waiting(graph)) == (before, [])


def test_edges_with_properties_called_like_their_ends_go_through_frames_and_exports(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = (
        "node T { src: String @key  dst: I64?  from: String? }\nedge E: T -> T { from: I64?  to: String? }"
    )
    with (
        og.init(tmp_path / "first", schema=schema) as first,
        og.init(tmp_path / "second", schema=schema) as second,
    ):
        first.load([{"src": "a", "dst": 1, "from": "x"}, {"src": "b"}], type="T", mode="append")
        first.load([{"src": "a", "dst": "b", "from": 7, "to": "y"}], type="E", mode="append")
        frames = first.spark(spark)
        second.load(frames.nodes("T"), type="T", mode="append")
        second.load(frames.edges("E"), type="E", mode="append")
        assert frames.edges("E", where="`from` = 7").count() == 1
        assert frames.edges("E", where='from = "b"').count() == 0
        for graph, name in ((first, "first"), (second, "second")):
            graph.export(tmp_path / f"{name}.ndjson")
        for form in ("csv", "parquet", "ndjson"):
            first.export(tmp_path / form, format=form, engine="spark")
            with og.init(tmp_path / f"back-{form}", schema=schema) as back:
                back.load(tmp_path / form, mode="append")
                back.export(tmp_path / f"{form}.ndjson")
            assert (tmp_path / f"{form}.ndjson").read_bytes() == (tmp_path / "first.ndjson").read_bytes()
    assert (tmp_path / "first.ndjson").read_bytes() == (tmp_path / "second.ndjson").read_bytes()
