"""Expressions of Spark SQL in the mapping of a load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.engine.load.sources.mapping import parse_mapping
from omnigraph.errors import BadRequest
from tests.pipeline.graphs import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPING = """
inputs:
  - files: people.csv
    type: Person
    expressions: {name: "lower(first || '.' || last)", age: cast(age as int), active: "age > 40"}
    drop: [first, last]
    nulls: ["-"]
  - files: "friends/*.parquet"
    edge: Knows
    expressions: {from: lower(a), since: cast(year(at) as int)}
    to: b
    drop: "*"
  - files: "*.arrow"
    type: Person
    expressions: {weight: sqrt(weight)}
"""


def test_values_are_worked_out_and_land_with_plain_files_in_one_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text('first,last,age\nAda,"L, x",36\nBo,-,50\nBo,B,50\n')
    (tmp_path / "friends").mkdir()
    rows = pa.table({"a": ["ADA.L, X"], "b": ["bo.b"], "at": pa.array([0], pa.timestamp("ms"))})
    pq.write_table(rows, tmp_path / "friends/1.parquet")
    with pa.OSFile(str(tmp_path / "more.arrow"), "wb") as sink:
        table = pa.table({"name": ["cy"], "weight": [4.0]})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    (tmp_path / "plain.jsonl").write_text('{"type": "Team", "data": {"title": "t"}}\n')
    (tmp_path / "map.yaml").write_text(MAPPING)
    with og.init(tmp_path / "graph", schema=SCHEMA) as graph:
        files = [tmp_path / name for name in ("people.csv", "friends", "more.arrow", "plain.jsonl")]
        before = graph.snapshot().id
        done = graph.load(files, mode="append", mapping=tmp_path / "map.yaml", skip_bad=True)
        assert (done.nodes, done.edges) == ({"Person": 3, "Team": 1}, {"Knows": 1})
        assert done.skipped_total == 1
        assert done.commit is not None
        assert done.commit.parent == before
        found = graph.snapshot().rows("Person", columns=["id", "age", "active", "weight"]).to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == [
            {"id": "ada.l, x", "age": 36, "active": False, "weight": None},
            {"id": "bo.b", "age": 50, "active": True, "weight": None},
            {"id": "cy", "age": None, "active": None, "weight": 2.0},
        ]
        [edge] = graph.snapshot().rows("Knows", columns=["src", "dst", "since"]).to_pylist()
        assert edge == {"src": "ada.l, x", "dst": "bo.b", "since": 1970}
        staging = tmp_path / "graph/__staging"
        assert [path for path in staging.rglob("*") if path.is_file()] == []
        wrong = {"inputs": [{"files": "*.csv", "type": "Person", "expressions": {"name": "missing"}}]}
        with pytest.raises(BadRequest, match=r"`expressions`: .*missing"):
            graph.load(tmp_path / "people.csv", mode="append", mapping=wrong)


def test_without_spark_expressions_are_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("first\nAda\n")
    (tmp_path / "map.yaml").write_text(MAPPING)
    with og.init(tmp_path / "graph", schema=SCHEMA) as graph, pytest.raises(BadRequest) as refused:
        graph.load(tmp_path / "people.csv", mode="append", mapping=tmp_path / "map.yaml", engine="local")
    assert "map.yaml:3: `expressions` are worked out by Spark" in refused.value.message
    assert "--engine spark" in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{files: a.csv, expressions: {name: x}}", "needs `type` or `edge`"),
        (
            "{files: a.csv, type: Person, expressions: {name: x}, columns: {a: name}}",
            "'name' has a value from two",
        ),
        ("{files: a.csv, type: Person, expressions: {nmae: x}}", "has no property 'nmae'"),
        ("{files: a.csv, type: Person, expressions: {from: x}}", "has no property 'from'"),
        ("{files: a.csv, type: Person, expressions: {name: 7}}", "`expressions.name` must be a text"),
    ],
)
def test_an_entry_with_expressions_is_checked_like_any_other(
    entry: str, message: str, tmp_path: Path
) -> None:
    with og.init(tmp_path / "graph", schema=SCHEMA) as graph, pytest.raises(BadRequest, match=message):
        parse_mapping(f"inputs: [{entry}]").check(graph.schema)
