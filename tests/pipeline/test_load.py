"""A load on Spark is a load in this process: the same rows, the same ids, the same refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.engine.load import loader as run
from omnigraph.engine.load.checks import check_scope as scope
from omnigraph.engine.load.sources import plan
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.upkeep import after_write as tidy
from omnigraph.engine.upkeep import index_catch_up as reach
from omnigraph.engine.upkeep import index_upkeep
from omnigraph.errors import KeyConflict, LoadRejected
from omnigraph.graph import Graph
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.storage import index_parts
from omnigraph.storage.indexes import read_coverage
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store
from tests.engine.upkeep_graph import table_of
from tests.storage.conftest import s3_server, use_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Person {
  slug: String @key
  email: String? @unique
  born: Date?
}
node City { name: String? }
edge Knows: Person -> Person @card(0..3) { since: I32? }
edge Lives: Person -> City { @key(src, dst) }
"""
Mode = Literal["append", "merge", "patch", "overwrite"]
PEOPLE = 60


@contextmanager
def split_small() -> Iterator[None]:
    """Ids that do not change from run to run, many items of a few lines each, and all checks by tasks."""
    with (
        patch.object(scope, "FEW", 0),
        patch.object(run, "LoadIds", lambda _: LoadIds(1_700_000_000_000, 5)),
        patch.object(plan, "SMALLEST", 700),
        patch.object(plan, "LARGEST", 700),
    ):
        yield


def _ndjson(at: Path, records: list[dict[str, Any]]) -> Path:
    at.write_text("".join(json.dumps(record) + "\n" for record in records))
    return at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Inputs of several formats: people as lines, cities as Parquet, edges as CSV and as lines."""
    data = tmp_path / "data"
    data.mkdir()
    people = [
        {
            "type": "Person",
            "data": {"slug": f"p{at}", "email": f"{at}@x", "born": f"2000-01-{at % 28 + 1:02}"},
        }
        for at in range(PEOPLE)
    ]
    _ndjson(data / "people.jsonl", people)
    cities = pa.table({"id": [f"c{at}" for at in range(5)], "name": ["a", None, "", "d", "e"]})
    pq.write_table(cities, data / "City.parquet", row_group_size=2)
    lives = "".join(f"p{at},c{at % 5}\n" for at in range(PEOPLE))
    (data / "Lives.csv").write_text("from,to\n" + lives)
    knows = [
        {"edge": "Knows", "from": f"p{at}", "to": f"p{(at * 7 + 1) % PEOPLE}", "data": {"since": at}}
        for at in range(PEOPLE)
    ]
    _ndjson(data / "z-knows.jsonl", knows)
    return data


def _export_lines(graph: Graph) -> bytes:
    stream = BytesIO()
    graph.export(stream)
    return stream.getvalue()


def _choose_runner(spark: SparkSession | None) -> Any:
    runner: Any = LocalRunner() if spark is None else SparkRunner(spark)
    return lambda *_, **__: Engine(runner, "chosen by a test")


def _both(spark: SparkSession) -> Iterator[Any]:
    for engine in (None, spark):
        with split_small(), patch("omnigraph.graph.select_engine", _choose_runner(engine)):
            yield engine


@pytest.mark.parametrize("mode", ["append", "merge", "patch", "overwrite"])
def test_files_of_several_formats_make_the_same_graph(
    spark: SparkSession, tmp_path: Path, folder: Path, mode: Mode
) -> None:
    more = _ndjson(
        tmp_path / "more.jsonl",
        [{"type": "Person", "data": {"slug": f"p{at}", "email": f"{at}@y"}} for at in range(0, 90, 3)]
        if mode == "merge"
        else [
            {"type": "Person", "data": {"slug": f"p{at}", **({"born": None} if at % 2 else {})}}
            for at in range(0, PEOPLE, 3)
        ]
        if mode == "patch"
        else [{"type": "City", "data": {"id": f"c{at}"}} for at in range(7)]
        if mode == "overwrite"
        else [{"type": "City", "data": {"name": "new"}}],
    )
    found = []
    for number, _ in enumerate(_both(spark)):
        with omnigraph.init(tmp_path / f"g{number}", schema=SCHEMA) as graph:
            first = graph.load(folder, mode="append")
            second = graph.load(more, mode=mode, branch="draft", from_="main")
            assert first.engine is not None
            assert first.engine.name == ("local", "spark")[number]
            found.append((_export_lines(graph), _branch(graph), first.nodes, first.edges, second.nodes))
            assert not list((tmp_path / f"g{number}" / "__staging").glob("*/*"))
    assert found[0] == found[1]
    assert found[0][2:4] == ({"City": 5, "Person": PEOPLE}, {"Knows": PEOPLE, "Lives": PEOPLE})


def _branch(graph: Graph) -> bytes:
    stream = BytesIO()
    graph.snapshot("draft").export(stream)
    return stream.getvalue()


def test_tasks_build_the_indexes_over_what_a_load_adds(
    spark: SparkSession, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "EXTEND_ROWS", PEOPLE)
    monkeypatch.setattr(tidy, "MIN_ROWS_TO_CHECK", PEOPLE)
    monkeypatch.setattr(index_parts, "_ROWS_PER_PART", 1)
    monkeypatch.setenv(index_upkeep.SETTING, "0")
    stages: list[str] = []

    class Watched(SparkRunner):
        def each(self, stage: str, *args: Any) -> Iterator[Any]:
            stages.append(stage)
            return super().each(stage, *args)

    engine = lambda *_, **__: Engine(Watched(spark), "chosen by a test")  # noqa: E731
    with (
        split_small(),
        patch("omnigraph.graph.select_engine", engine),
        omnigraph.init(tmp_path / "g", schema=SCHEMA) as graph,
    ):
        done = graph.load(folder, mode="append")
        assert done.pending_indexes == {}
        assert stages.count("index") == 3, "one set of tasks for each table of many rows"
        assert stages.count("join index") == 3, "the driver joins no parts"
        for key, columns in (("node:Person", {"id"}), ("edge:Knows", {"id", "src", "dst"})):
            stored = read_coverage(table_of(graph._opened, key)).values()
            assert {one.columns[0] for one in stored} == columns
            assert all(one.is_complete and one.segments == 1 for one in stored)
            files = Path(table_of(graph._opened, key).uri, "_indices").glob("*/*")
            assert {at.parent.name for at in files} == {part.uuid for one in stored for part in one.parts}
        graph.load(folder / "people.jsonl", mode="overwrite")
        assert read_coverage(table_of(graph._opened, "node:Person"))["id_idx"].is_complete


@pytest.mark.parametrize("skip_bad", [False, True])
def test_what_is_wrong_is_reported_in_the_same_words(
    spark: SparkSession, tmp_path: Path, folder: Path, skip_bad: bool
) -> None:
    bad = _ndjson(
        tmp_path / "bad.jsonl",
        [
            {"type": "Person", "data": {"slug": "new", "born": "2000-01-01"}},
            *([{"type": "Person", "data": {"slug": "q", "born": "some day"}}] if skip_bad else []),
            {"type": "Person", "data": {"slug": "p1"}},
            {"type": "Person", "data": {"slug": "again", "email": "2@x"}},
            {"type": "Person", "data": {"slug": "new"}},
            {"edge": "Knows", "from": "missing", "to": "p2"},
            *({"edge": "Knows", "from": "p3", "to": f"p{at}"} for at in range(4)),
        ],
    )
    found = []
    for number, _ in enumerate(_both(spark)):
        with omnigraph.init(tmp_path / f"g{number}", schema=SCHEMA) as graph:
            graph.load(folder, mode="append")
            try:
                done = graph.load(
                    bad,
                    mode="append",
                    skip_bad=skip_bad,
                    rejects=tmp_path / f"rejects-{number}.ndjson" if skip_bad else None,
                )
                outcome: Any = [str(one) for one in done.skipped], dict(done.skipped_counts)
            except (KeyConflict, LoadRejected) as refused:
                outcome = type(refused), [str(one) for one in refused.violations], refused.total
            found.append((outcome, _export_lines(graph)))
    assert found[0] == found[1]
    if skip_bad:
        assert (tmp_path / "rejects-0.ndjson").read_text() == (tmp_path / "rejects-1.ndjson").read_text()
        assert found[0][0][1] == {
            "value": 1, "key_conflict": 1, "unique": 2, "endpoint": 1, "cardinality": 2,
        }  # fmt: skip


def test_rows_come_from_a_bucket_and_go_to_one(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as endpoint:
        root = use_s3(endpoint, monkeypatch)
        source = Location(f"s3://{root.bucket}/input")
        store = open_store(source)
        for path in folder.iterdir():
            store.write_bytes(source / path.name, path.read_bytes())
        with split_small(), patch("omnigraph.graph.select_engine", _choose_runner(spark)):
            with omnigraph.init(root.uri, schema=SCHEMA) as graph:
                done = graph.load(source.uri, mode="append")
                in_bucket = _export_lines(graph)
            assert done.total == 3 * PEOPLE + 5
            with omnigraph.init(tmp_path / "g", schema=SCHEMA) as graph:
                graph.load(folder, mode="append")
                assert _export_lines(graph) == in_bucket
