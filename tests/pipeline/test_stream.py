"""The changes of a type as rows: what happened, before and after, each commit reported once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from omnigraph.errors import BadRequest, ChangeCursorRejected, ChangeDiffRefused
from omnigraph.graph import Graph
from omnigraph.pipeline import change_stream, register
from omnigraph.pipeline.change_stream import Admission, ChangeScan, change_scan
from omnigraph.pipeline.datasource import OmnigraphSource
from tests.pipeline.graphs import SCHEMA, people

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "graph") as made:
        yield made


def read_changes(scan: ChangeScan) -> list[dict[str, Any]]:
    """All changes up to now, as the tasks tell them."""
    steps = scan.plan_steps(scan.find_start(), scan.until)
    batches = [batch for step in steps for batch in scan.read(step.commits)]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, scan.schema).to_pylist()
    return found


def short(row: dict[str, Any]) -> tuple[Any, ...]:
    """A change without its commit and all values."""
    ages = tuple(image and image["age"] for image in (row["before"], row["after"]))
    return (row["op"], row["id"], row["changed"], *ages)


def test_a_commit_with_inserts_updates_and_deletes_tells_all_of_them(graph: Graph) -> None:
    since = f"after:{graph.snapshot().id}"
    graph.load(
        pa.table({"name": ["bo", "cy"], "age": pa.array([7, 8], pa.int32())}),
        type="Person",
        mode="merge",
        actor="ann",
    )
    with graph.write() as tx:
        tx.delete("Person", ("name", "=", "ada"))
    rows = read_changes(change_scan(graph, "main", "node:Person", since))
    assert [short(row) for row in rows] == [
        ("update", "bo", ["age"], None, 7),
        ("insert", "cy", [], None, 8),
        ("delete", "ada", [], 36, None),
    ]
    first, _, last = rows
    commits = graph.commits.list()[:2]
    assert [(row["commit"], row["version"], row["time"], row["actor"]) for row in (last, first)] == [
        (one.id, one.version, one.time, one.actor) for one in commits
    ]
    assert (last["before"]["tags"], last["after"]) == (["x", "y"], None)


def test_what_a_merge_and_a_blob_alone_change_is_reported(graph: Graph) -> None:
    graph.branches.create("draft")
    with graph.write("draft") as tx:
        tx.update("Person", ("name", "=", "bo"), photo=b"new")
        tx.insert("Person", name="dee")
    since = f"after:{graph.snapshot().id}"
    graph.merge("draft")
    rows = read_changes(change_scan(graph, "main", "node:Person", since))
    assert [short(row) for row in rows] == [
        ("update", "bo", ["photo"], None, None),
        ("insert", "dee", [], None, None),
    ]


def test_many_commits_are_shared_out_and_stay_in_order(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = change_scan(graph, "main", "edge:Knows", "beginning")
    monkeypatch.setattr(change_stream, "COMMITS_PER_TASK", 1)
    steps = scan.plan_steps(scan.find_start(), scan.until)
    assert [len(step.commits) for step in steps] == [1] * len(steps)
    assert len(steps) > 1
    assert [(row["after"]["src"], row["after"]["dst"]) for row in read_changes(scan)] == [
        ("ada", "ada"),
        ("ada", "bo"),
    ]


def test_now_begins_behind_everything(graph: Graph) -> None:
    assert read_changes(change_scan(graph, "main", "node:Person", "now")) == []


def test_a_commit_of_another_branch_is_no_place_to_begin(graph: Graph) -> None:
    graph.branches.create("draft")
    with graph.write("draft") as tx:
        tx.insert("Person", name="dee")
    scan = change_scan(graph, "main", "node:Person", f"after:{graph.snapshot('draft').id}")
    with pytest.raises(ChangeCursorRejected):
        read_changes(scan)


def test_a_schema_change_ends_the_feed_with_the_place_to_go_on(graph: Graph) -> None:
    graph.apply_schema(SCHEMA.replace("title: String @key", "title: String @key  note: String?"))
    with pytest.raises(ChangeDiffRefused, match="go on with 'after:"):
        read_changes(change_scan(graph, "main", "node:Person", "beginning"))


def test_a_stream_tells_each_change_once_over_restarts(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    register(spark)
    options = {"uri": graph.uri, "type": "Person", "since": "beginning"}

    def caught_up() -> list[tuple[str, str]]:
        frame = spark.readStream.format("omnigraph").options(**options).load()
        changes = frame.select("version", "op", "id").writeStream.format("json")
        query = (
            changes.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
        found = sorted(map(json.loads, lines), key=lambda row: (row["version"], row["id"]))
        return [(row["op"], row["id"]) for row in found]

    first = caught_up()
    assert first == [("insert", "ada"), ("insert", "bo")]
    with graph.write() as tx:
        tx.update("Person", ("name", "=", "bo"), age=7)
    with graph.write() as tx:
        tx.delete("Person", ("name", "=", "ada"))
    assert caught_up() == [*first, ("update", "bo"), ("delete", "ada")]


def test_a_backlog_is_admitted_commit_by_commit(graph: Graph) -> None:
    after = graph.snapshot().id
    for start in range(0, 12, 4):
        names = pa.table({"name": [f"p{at}" for at in range(start, start + 4)]})
        graph.load(names, type="Person", mode="append")
    with graph.write() as tx:
        tx.insert("Team", title="x")  # no change of the type
    scan = change_scan(graph, "main", "node:Person", f"after:{after}")
    commits = [one.id for one in reversed(graph.commits.list()[:4])]

    def batches(admission: Admission) -> list[int]:
        """How many commits each batch has."""
        at, found = after, []
        while at != commits[-1]:
            end = admission.admit(scan, at, commits[-1])
            assert end is not None
            found.append(len(scan.open_history().between(at, end)))
            at = end
        return found

    assert batches(Admission(commits=1)) == [1, 1, 1, 1]
    assert batches(Admission(commits=3)) == [3, 1]
    assert batches(Admission(changes=8)) == [2, 2]
    assert batches(Admission(changes=8, commits=1)) == [1, 1, 1, 1]
    assert batches(Admission(changes=1)) == [1, 1, 1, 1], "a commit is never divided"
    assert Admission(commits=5).admit(scan, commits[-1], commits[-1]) == commits[-1]


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_limit_of_a_batch_is_a_positive_number(graph: Graph, value: str) -> None:
    options = {"uri": graph.uri, "type": "Person", "since": "beginning", "maxChangesPerTrigger": value}
    with pytest.raises(BadRequest, match="maxChangesPerTrigger is a number from 1"):
        OmnigraphSource(options).streamReader(StructType())


def test_a_limited_stream_reads_a_backlog_in_many_batches(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    register(spark)
    for name in ("cy", "dee", "eve"):
        with graph.write() as tx:
            tx.insert("Person", name=name)
    options = {"uri": graph.uri, "type": "Person", "since": "beginning", "maxCommitsPerTrigger": "2"}
    batches: list[list[str]] = []

    def take(frame: DataFrame, _: int) -> None:
        batches.append(sorted(row.id for row in frame.collect()))

    frame = spark.readStream.format("omnigraph").options(**options).load()
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [name for batch in batches for name in batch] == ["ada", "bo", "cy", "dee", "eve"]
    assert len(batches) == 3
