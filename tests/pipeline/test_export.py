"""An export in parts has the rows of one without, in the same order, whichever process writes the parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.export import export_job as job
from omnigraph.engine.export.export_request import ExportFormat, ExportOutput, ExportRequest, ExportResult
from omnigraph.engine.export.exporter import export as exported
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from tests.pipeline.graphs import SCHEMA, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [f"{number * 7919 % 1000:03} {'é' * (number % 3)}" for number in range(60)]


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """Rows that are not stored in the order of their ids, and parts of about eight of them."""
    monkeypatch.setattr(job, "ROWS_PER_PART", 8)
    with people(tmp_path / "graph") as made:
        made.load(pa.table({"name": NAMES}), type="Person", mode="append")
        yield made


def in_parts(graph: Graph, output: ExportOutput, format: str, *, overwrite: bool = False) -> ExportResult:
    """The export by tasks, without Spark."""
    engine = Engine(LocalRunner(), "a test")
    request = ExportRequest(output, ExportFormat(format), None, overwrite, engine=lambda: engine)
    pinned = graph.snapshot()
    return exported(graph._opened, pinned._pinned, request)


@pytest.mark.parametrize("name", ["all.ndjson", "all.ndjson.gz"])
def test_one_file_has_the_bytes_of_an_export_without_parts(graph: Graph, tmp_path: Path, name: str) -> None:
    done = in_parts(graph, tmp_path / name, "ndjson")
    plain = graph.export(tmp_path / f"plain-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"plain-{name}").read_bytes()
    assert [(one.name, one.rows, one.bytes) for one in done.types] == [
        (one.name, one.rows, one.bytes) for one in plain.types
    ]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_parts_follow_each_other_by_id(graph: Graph, tmp_path: Path) -> None:
    done = in_parts(graph, tmp_path / "parts", "ndjson")
    graph.export(tmp_path / "plain")
    files = sorted((tmp_path / "parts" / "nodes" / "Person").iterdir())
    assert len(files) > 4
    assert [file.name for file in files] == [f"part-{number:05}.ndjson" for number in range(len(files))]
    joined = b"".join(file.read_bytes() for file in files)
    assert joined == (tmp_path / "plain" / "nodes" / "Person.ndjson").read_bytes()
    assert [(str(one.file), one.rows) for one in done.types] == [
        (str(tmp_path / "parts" / "nodes" / "Person"), 62),
        (str(tmp_path / "parts" / "nodes" / "Team"), 0),
        (str(tmp_path / "parts" / "edges" / "Knows"), 2),
    ]


@pytest.mark.parametrize("format", ["ndjson", "parquet", "csv", "lance"])
def test_parts_of_every_format_load_back_to_an_equal_graph(graph: Graph, tmp_path: Path, format: str) -> None:
    in_parts(graph, tmp_path / "parts", format)
    with og.init(tmp_path / "copy", schema=SCHEMA) as copy:
        copy.load(tmp_path / "parts", mode="append")
        copy.export(tmp_path / "copy.ndjson")
    graph.export(tmp_path / "plain.ndjson")
    assert (tmp_path / "copy.ndjson").read_bytes() == (tmp_path / "plain.ndjson").read_bytes()


@pytest.mark.parametrize("format", ["parquet", "lance"])
def test_an_earlier_export_in_parts_is_replaced_and_nothing_else(
    graph: Graph, tmp_path: Path, format: str
) -> None:
    target = tmp_path / "parts"
    in_parts(graph, target, format)
    with pytest.raises(BadRequest, match="exists already"):
        in_parts(graph, target, format)
    in_parts(graph, target, format, overwrite=True)
    (target / "nodes" / "Mine").mkdir()
    (target / "nodes" / "Mine" / "notes.txt").touch()
    with pytest.raises(BadRequest, match="which no export wrote"):
        in_parts(graph, target, format, overwrite=True)


def test_a_task_that_runs_again_leaves_no_second_part(graph: Graph, tmp_path: Path) -> None:
    class Twice(LocalRunner):
        def each(self, stage: str, items: Sequence[Any], task: Callable[[Any], Any]) -> Iterator[Any]:
            list(map(task, items))
            return map(task, items)

    engine = Engine(Twice(), "a test")
    request = ExportRequest(tmp_path / "parts", ExportFormat.CSV, ("Person",), engine=lambda: engine)
    done = exported(graph._opened, graph.snapshot()._pinned, request)
    files = sorted((tmp_path / "parts" / "nodes" / "Person").iterdir())
    assert [file.name for file in files] == [f"part-{number:05}.csv" for number in range(len(files))]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) - 1 for file in files) == done.rows == 62


def test_lance_is_written_without_spark_too(graph: Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "tables", format="lance", types=["Team"])
    assert [(one.name, one.rows, one.file) for one in done.types] == [
        ("Team", 0, tmp_path / "tables" / "nodes" / "Team.lance")
    ]


def test_a_graph_in_the_place_of_another_is_exported_as_it_is(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        with og.init(tmp_path / "graph", schema="node Person { name: String @key }") as made:
            made.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}')
            made.export(tmp_path / "tables", format="lance", overwrite=True)
        found = lance.dataset(str(tmp_path / "tables" / "nodes" / "Person.lance")).to_table()
        assert found.column("name").to_pylist() == [name]


def test_a_stream_cannot_have_parts(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="cannot be one stream"):
        in_parts(graph, BytesIO(), "ndjson")


def test_spark_writes_what_this_process_writes(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "spark.ndjson", engine="spark")
    graph.export(tmp_path / "plain.ndjson")
    assert (tmp_path / "spark.ndjson").read_bytes() == (tmp_path / "plain.ndjson").read_bytes()
    assert done.rows == 64
