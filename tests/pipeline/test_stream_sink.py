"""Streams into a graph: each batch is one commit, exactly once, over restarts and replays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import IntegerType, StringType, StructType

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.graph.root import Root
from omnigraph.errors import (
    BadRequest,
    KeyConflict,
    LoadRejected,
    ReadSetChanged,
    RecoveryRequired,
    StreamSinkTaken,
)
from omnigraph.graph import Graph
from omnigraph.pipeline import register, writer
from omnigraph.pipeline.datasource import OmnigraphSource
from omnigraph.pipeline.sink_records import claim_batch
from omnigraph.pipeline.writer import BatchMessage, StreamWriter
from omnigraph.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "node Person { name: String @key  age: I32? }  node Note { text: String? }"
COLUMNS = StructType().add("name", StringType()).add("age", IntegerType())


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph", schema=SCHEMA) as made:
        yield made


class Query:
    """A stream without Spark: its tasks and commits, as Spark calls them."""

    def __init__(self, graph: Graph, patch: pytest.MonkeyPatch, name: str = "q1", **options: str) -> None:
        self.name = name
        self._patch = patch
        self._options = {"uri": graph.uri, "type": "Person", "sink": "people", **options}

    def writer(self, columns: StructType = COLUMNS) -> StreamWriter:
        made = OmnigraphSource(self._options).streamWriter(columns, overwrite=False)
        assert isinstance(made, StreamWriter)
        return made

    def staged(self, batch: int, *rows: Sequence[tuple[str, int]]) -> list[Any]:
        """What the tasks of a batch answer, each with its own rows."""
        self._patch.setattr(
            writer, "_read_property", {writer._QUERY: self.name, writer._BATCH: str(batch)}.__getitem__
        )
        answers: list[BatchMessage] = []
        shared = self.writer()
        for number, some in enumerate(rows):
            self._patch.setattr("omnigraph.pipeline.staged_rows.frame_partition", lambda at=number: at)
            answers.append(shared.write(iter([_batch(some)])))
        return answers

    def run(self, batch: int, *rows: Sequence[tuple[str, int]]) -> None:
        self.writer().commit(self.staged(batch, *rows), batch)


def _batch(rows: Sequence[tuple[str, int]]) -> pa.RecordBatch:
    names, ages = [name for name, _ in rows], [age for _, age in rows]
    return pa.record_batch({"name": pa.array(names, pa.string()), "age": pa.array(ages, pa.int32())})


def _answers(*messages: BatchMessage) -> list[WriterCommitMessage | None]:
    return [*messages]


def ages(graph: Graph, branch: str = "main") -> dict[str, int]:
    rows = graph.snapshot(branch).rows("Person", columns=["name", "age"]).to_pylist()
    return {row["name"]: row["age"] for row in rows}


def staged_files(graph: Graph) -> list[Path]:
    return [path for path in (Path(graph.uri) / "__staging").rglob("*") if path.is_file()]


def test_a_batch_is_one_commit_and_a_replay_is_none(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(graph, monkeypatch, actor="ann")
    query.run(0, [("ada", 1)], [], [("bo", 2)])
    first = graph.snapshot().commit
    query.run(1, [("cy", 3)])
    second = graph.snapshot().commit
    assert first is not None
    assert second is not None
    assert (second.parent, second.actor) == (first.id, "ann")
    # Spark repeats a batch whose end it did not record; an appended key would be a conflict.
    query.run(1, [("cy", 3)])
    query.run(0, [("ada", 1)], [("bo", 2)])
    assert graph.snapshot().commit == second
    assert ages(graph) == {"ada": 1, "bo": 2, "cy": 3}
    assert staged_files(graph) == []


def test_a_batch_that_was_recorded_but_not_committed_lands_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(graph, monkeypatch)
    planned = claim_batch(Root.at(Location(graph.uri)), "people", "q1", "main", 0)
    query.run(0, [("ada", 1)])
    found = graph.snapshot().commit
    assert found is not None
    assert found.id == planned
    query.run(0, [("ada", 1)])
    assert graph.snapshot().commit == found


def test_an_attempt_taken_for_dead_that_finishes_meanwhile_does_not_land_twice(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"p{at}", at) for at in range(5)]
    query = Query(graph, monkeypatch, type="Note", mode="append")
    columns = StructType().add("text", StringType())
    monkeypatch.setattr(writer, "_read_property", {writer._QUERY: "q1", writer._BATCH: "0"}.__getitem__)
    notes = pa.record_batch({"text": [name for name, _ in rows]})
    early, late = (_answers(query.writer(columns).write(iter([notes]))) for _ in range(2))
    actual = writer._load_staged

    def overtaken(*given: Any) -> Any:
        # The other attempt lands after this one has claimed the batch.
        monkeypatch.setattr(writer, "_load_staged", actual)
        query.writer(columns).commit(early, 0)
        return actual(*given)

    monkeypatch.setattr(writer, "_load_staged", overtaken)
    query.writer(columns).commit(late, 0)
    assert graph.snapshot().rows("Note").num_rows == len(rows)


def test_a_new_checkpoint_or_branch_under_an_old_name_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    Query(graph, monkeypatch).run(0, [("ada", 1)])
    graph.branches.create("draft")
    for other in (
        Query(graph, monkeypatch, "q2", mode="merge"),
        Query(graph, monkeypatch, branch="draft", mode="merge"),
    ):
        with pytest.raises(StreamSinkTaken, match="'people' belongs to another query") as caught:
            other.run(0, [("ada", 2)])
        assert caught.value.code == "stream_sink_taken"
        assert caught.value.remedy is not None
    assert (ages(graph), ages(graph, "draft"), staged_files(graph)) == ({"ada": 1}, {"ada": 1}, [])
    Query(graph, monkeypatch, "q2", mode="merge", sink="people-2").run(0, [("ada", 2)])
    assert ages(graph) == {"ada": 2}


def test_a_rejected_batch_changes_nothing_and_names_its_rows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(graph, monkeypatch)
    with pytest.raises(LoadRejected, match="<rows of Person>: row 3: "):
        query.run(0, [("ada", 1), ("bo", 2)], [("ada", 3)])
    query.run(0, [("ada", 1)])
    with pytest.raises(KeyConflict):
        query.run(1, [("bo", 1), ("ada", 2)])
    query.run(1, [("bo", 1)])
    assert (ages(graph), staged_files(graph)) == ({"ada": 1, "bo": 1}, [])


def test_a_schema_change_between_tasks_and_commit_is_a_conflict(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(graph, monkeypatch)
    answers = query.staged(0, [("ada", 1)])
    graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  role: String?"))
    with pytest.raises(ReadSetChanged) as caught:
        query.writer().commit(answers, 0)
    assert caught.value.retryable
    query.run(0, [("ada", 1)])
    assert ages(graph) == {"ada": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": ""}, "'' cannot be the name of a sink"),
        ({"sink": "../x"}, "cannot be the name of a sink"),
        ({"mode": "overwrite"}, "a stream appends, merges or patches"),
        ({"mode": "upsert"}, "there is no mode 'upsert'"),
        ({"snik": "x"}, "there is no option 'snik' here"),
    ],
)
def test_wrong_options_are_refused_before_a_batch_runs(
    graph: Graph, options: dict[str, str], message: str
) -> None:
    given = {"uri": graph.uri, "type": "Person", "sink": "people", **options}
    with pytest.raises(BadRequest) as caught:
        OmnigraphSource(given).streamWriter(COLUMNS, overwrite=False)
    assert message in str(caught.value)


def test_a_sink_without_a_name_and_a_complete_output_are_refused(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="the option sink is missing"):
        OmnigraphSource({"uri": graph.uri, "type": "Person"}).streamWriter(COLUMNS, overwrite=False)
    with pytest.raises(BadRequest, match="cannot replace a type with every batch"):
        OmnigraphSource({"uri": graph.uri, "type": "Person", "sink": "x"}).streamWriter(
            COLUMNS, overwrite=True
        )


def _people(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("name string, age int").option("maxFilesPerTrigger", 1).json(str(folder))


def test_a_stream_of_spark_survives_restarts_and_replays(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    register(spark)
    inputs, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    inputs.mkdir()

    def run(checkpoint: Path = checkpoint, **options: str) -> None:
        target = {"uri": graph.uri, "type": "Person", "sink": "people", **options}
        frame = _people(spark, inputs).writeStream.format("omnigraph").options(**target)
        query = frame.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    (inputs / "0.json").write_text('{"name": "ada", "age": 1}\n{"name": "bo", "age": 2}\n')
    run()
    (inputs / "1.json").write_text('{"name": "cy", "age": 3}\n')
    run()
    after = graph.snapshot().commit
    # Killed after the commit in the graph and before the one in the checkpoint.
    (checkpoint / "commits/1").unlink()
    (checkpoint / "commits/.1.crc").unlink(missing_ok=True)
    run()
    assert graph.snapshot().commit == after
    assert ages(graph) == {"ada": 1, "bo": 2, "cy": 3}
    with pytest.raises(StreamingQueryException) as caught:
        run(tmp_path / "other", mode="merge")
    assert "code: stream_sink_taken" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert (graph.snapshot().commit, staged_files(graph)) == (after, [])


def test_for_each_batch_loads_with_the_graph(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "0.json").write_text('{"name": "ada", "age": 1}\n')
    (inputs / "1.json").write_text('{"name": "ada", "age": 2}\n{"name": "bo", "age": 3}\n')
    os.utime(inputs / "0.json", (0, 0))  # Spark takes files by age
    done: list[int] = []

    def load(frame: DataFrame, batch: int) -> None:
        graph.load(frame, type="Person", mode="merge", engine="local")
        done.append(batch)

    query = _people(spark, inputs).writeStream.foreachBatch(load)
    query.option("checkpointLocation", str(tmp_path / "cp")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert (done, ages(graph)) == ([0, 1], {"ada": 2, "bo": 3})


@pytest.mark.parametrize(
    "place", [failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER]
)
def test_a_batch_interrupted_within_its_commit_lands_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    query = Query(graph, monkeypatch)
    query.run(0, [("ada", 1)])
    with failpoints.arm(place, failpoints.error(place)), pytest.raises(RecoveryRequired):
        query.run(1, [("bo", 2)])
    # Recovery takes it back or finishes it under the same id; the replay does what is left.
    query.run(1, [("bo", 2)])
    commits = graph.commits.list()
    query.run(1, [("bo", 2)])
    assert graph.commits.list() == commits
    assert len({one.id for one in commits}) == len(commits)
    assert ages(graph) == {"ada": 1, "bo": 2}
