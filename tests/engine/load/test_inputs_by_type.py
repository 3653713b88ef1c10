"""Inputs of a load by type: frames and files together, iterators, lazy queries, lines without types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.engine.load import spool
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected, ReadOnlyGraph

SCHEMA = "node Person { name: String @key  age: I32? }  edge Knows: Person -> Person { since: I32? }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "graph", schema=SCHEMA) as graph:
        yield graph


def stored(graph: og.Graph, type_name: str = "Person") -> list[dict[str, Any]]:
    rows = graph.snapshot().rows(type_name)
    names = [name for name in rows.column_names if type_name == "Person" or name != "id"]
    found: list[dict[str, Any]] = rows.select(names).to_pylist()
    return sorted(({k: v for k, v in row.items() if k != "id"} for row in found), key=str)


def test_frames_and_files_of_several_types_are_one_commit(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "staff.csv").write_text("name,age\nada,36\n", encoding="utf-8")
    pq.write_table(pa.table({"name": ["bo"]}), tmp_path / "more.parquet")
    knows = tmp_path / "k.jsonl"
    knows.write_text('{"source": "ada", "target": "bo", "since": 2019.0}\n\n', encoding="utf-8")
    before = graph.snapshot().id
    people = [tmp_path / "staff.csv", tmp_path / "more.parquet"]
    done = graph.load({"Person": people, "Knows": knows}, mode="append")
    assert done.commit is not None
    assert done.commit.parent == before
    assert stored(graph) == [{"name": "ada", "age": 36}, {"name": "bo", "age": None}]
    assert stored(graph, "Knows") == [{"src": "ada", "dst": "bo", "since": 2019}]


def test_a_folder_and_a_pattern_have_rows_of_one_type(graph: og.Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in[1]" / "a"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text("name\nada\n", encoding="utf-8")
    (folder / "2.jsonl").write_text('{"name": "bo"}\n', encoding="utf-8")
    assert graph.load(tmp_path / "in[1]", type="Person", mode="append").total == 2
    assert graph.load(str(tmp_path / "in*" / "a" / "*.csv"), type="Person", mode="merge").total == 1


def test_rows_of_an_iterator_are_loaded_in_parts(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_ROWS_AT_ONCE", 2)
    rows = ({"name": f"p{number}", "age": number or None} for number in range(5))
    assert graph.load(rows, type="Person", mode="append").total == 5
    with pytest.raises(LoadRejected) as refused:
        graph.load(({"name": "x", "age": age} for age in (1, 2, 3, 4.5)), type="Person", mode="append")
    assert str(refused.value.violations[0]).startswith("<rows of Person>: row 4: ")
    assert graph.load(iter([]), type="Person", mode="append").total == 0
    batches = (pa.record_batch({"name": [name]}) for name in "xyz")
    assert graph.load(batches, type="Person", mode="append").total == 3


class Relation:
    """The protocol of a DuckDB relation, as releases without an Arrow stream have it."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def fetch_arrow_reader(self, size: int = 1) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return self._rows.to_reader(size)


def test_queries_that_were_not_run_yet_are_rows(graph: og.Graph) -> None:
    lazy = pl.LazyFrame({"name": ["ada", "bo"], "age": [36, 40]}).filter(pl.col("age") > 36)
    relation = Relation(pa.table({"name": ["cy", "dee"]}))
    assert graph.load(lazy, type="Person", mode="append").total == 1
    assert graph.load(relation, type="Person", mode="append").total == 2
    assert "name: String @key" in og.infer_schema({"Person": lazy})


def test_lines_of_one_type_are_reported_by_line(graph: og.Graph, tmp_path: Path) -> None:
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"name": "a"}\n[1]\n{"name": "b", "age": 1.5}\n{"name"\n{"nam": "c"}\n', "utf-8")
    with pytest.raises(LoadRejected) as refused:
        graph.load(lines, type="Person", mode="append")
    assert [(one.line, one.reason.partition(" at line")[0]) for one in refused.value.violations] == [
        (2, "line 2: a row must be one JSON object"),
        (3, "strict property 'age' expects Int32, got 1.5"),
        (4, "invalid strict JSON"),
        (5, "unknown input field 'nam' for 'node:Person'"),
        (5, "non-nullable property 'name' has null or invalid values"),
    ]
    lines.write_text('{"from": "a"}\n{"from": "a", "to": true}\n', "utf-8")
    with pytest.raises(LoadRejected) as refused:
        graph.load(lines, type="Knows", mode="append")
    assert [one.reason for one in refused.value.violations] == [
        "line 1: graph batch record requires field 'to'",
        "line 2: graph batch field 'to' must be a string, got true",
    ]


def test_a_mapping_without_a_pattern_is_for_everything(graph: og.Graph, tmp_path: Path) -> None:
    rename = {"columns": {"who": "name"}, "drop": ["x"]}
    graph.load([{"who": "ada", "x": 1}], type="Person", mode="append", mapping=rename)
    (tmp_path / "p.csv").write_text("who,x\nbo,1\n", encoding="utf-8")
    graph.load(tmp_path / "p.csv", type="Person", mode="append", mapping=rename)
    named = {**rename, "type": "Person"}
    graph.load(tmp_path / "p.csv", mode="merge", mapping=named)
    assert [row["name"] for row in stored(graph)] == ["ada", "bo"]


def test_a_dry_run_checks_everything_and_commits_nothing(graph: og.Graph, tmp_path: Path) -> None:
    before = graph.snapshot().id
    done = graph.load([{"name": "ada"}], type="Person", mode="append", dry_run=True)
    assert (dict(done.nodes), done.commit) == ({"Person": 1}, None)
    with pytest.raises(LoadRejected, match="dst 'bo' not found in Person"):
        graph.load(
            {"Person": [{"name": "ada"}], "Knows": [{"from": "ada", "to": "bo"}]}, mode="append", dry_run=True
        )
    assert graph.snapshot().id == before
    graph.load([{"name": "ada"}], type="Person", mode="append")
    with pytest.raises(KeyConflict):
        graph.load([{"name": "ada"}], type="Person", mode="append", dry_run=True)
    with og.open(graph.uri, read_only=True) as reader:
        assert reader.load([{"name": "bo"}], type="Person", mode="append", dry_run=True).total == 1
        with pytest.raises(ReadOnlyGraph):
            reader.load([{"name": "bo"}], type="Person", mode="append")


def test_a_dry_run_makes_no_branch(graph: og.Graph) -> None:
    done = graph.load(
        [{"name": "ada"}], type="Person", mode="append", branch="new", from_="main", dry_run=True
    )
    assert not done.branch_created
    assert graph.branches.list() == ["main"]


def test_the_command_line_takes_a_type_and_a_dry_run(
    graph: og.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "p.jsonl"
    data.write_text('{"name": "ada", "age": 36}\n', encoding="utf-8")
    call = ["load", graph.uri, "--data", str(data), "--type", "Person", "--mode", "append"]
    assert main([*call, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would load ")
    assert stored(graph) == []
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_entities"] == 1
    assert stored(graph) == [{"name": "ada", "age": 36}]


def test_wrong_inputs_by_type_are_reported(graph: og.Graph) -> None:
    with pytest.raises(BadRequest, match="unknown type 'Persn'"):
        graph.load("p.csv", type="Persn", mode="append")
    with pytest.raises(BadRequest, match="a load of 'Person' takes rows or paths, and no 'int'"):
        graph.load({"Person": 7}, mode="append")
