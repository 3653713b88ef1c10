"""`format("omnigraph")` for a session: reading one moment, the changes since, and writing onto a branch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, StringType, StructType

from omnigraph.engine.load import small_load, staging
from omnigraph.errors import BadRequest, LoadRejected, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.pipeline import register, staged_rows
from omnigraph.pipeline.datasource import OmnigraphSource
from omnigraph.pipeline.writer import BranchWriter
from tests.pipeline.graphs import people

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "graph") as made:
        yield made


@pytest.fixture
def reading(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def read(spark: SparkSession, graph: Graph, **options: str) -> DataFrame:
    return spark.read.format("omnigraph").options(uri=graph.uri, **options).load()


def test_one_frame_answers_different_filters_about_one_moment(reading: SparkSession, graph: Graph) -> None:
    frame = read(reading, graph, type="Person", columns="name, age")
    version = graph.snapshot().version
    with graph.write() as tx:
        tx.delete("Person", ("name", "=", "ada"))
    # Where Spark hands filters to sources, it takes the last ones for those of every use of a frame.
    reading.conf.set(PUSHING, "true")
    both = frame.where("name = 'ada'").union(frame.where("age is null"))
    assert sorted(map(tuple, both.collect())) == [("ada", 36), ("bo", None)]
    assert frame.count() == 2
    reading.conf.unset(PUSHING)
    assert read(reading, graph, type="Person").count() == 1
    past = read(reading, graph, type="Person", version=str(version), where="age > 1", columns="id")
    assert [tuple(row) for row in past.collect()] == [("ada",)]
    assert read(reading, graph, type="Team").collect() == []


def test_spark_still_takes_the_last_filters_for_those_of_every_use(spark: SparkSession) -> None:
    """If this fails, Spark is fixed: let `Reader` take the filters it can prove, and columns."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushed_numbers"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Pushed()

    class Pushed(DataSourceReader):
        def __init__(self) -> None:
            self._wanted = {1, 2, 3}

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
            for one in filters:
                if isinstance(one, EqualTo):
                    self._wanted &= {one.value}
                # What is read is less, and Spark still applies the filter itself.
                yield one

        def read(self, partition: object) -> Iterator[tuple[int]]:
            return ((number,) for number in sorted(self._wanted))

    spark.dataSource.register(Numbers)
    frame = spark.read.format("pushed_numbers").load()
    spark.conf.set(PUSHING, "true")
    try:
        both = frame.where("n = 1").union(frame.where("n = 2"))
        assert [row.n for row in both.collect()] != [1, 2]
        assert frame.count() != 3
    finally:
        spark.conf.unset(PUSHING)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    builder = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
    )
    assert [one.getSimpleName() for one in builder.getInterfaces()] == ["SupportsPushDownFilters"]


def test_changes_up_to_now_are_a_frame_of_their_own(reading: SparkSession, graph: Graph) -> None:
    frame = read(reading, graph, type="Person", since="beginning")
    with graph.write() as tx:
        tx.insert("Person", name="late")
    found = frame.orderBy("version").select("op", "id", "after.score", "before").collect()
    assert [(row.op, row.id) for row in found] == [("insert", "ada"), ("insert", "bo")]
    assert found[0].score == 2**64 - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "Person", "brnch": "draft"}, "there is no option 'brnch' here"),
        ({"type": "Persn"}, "there is no type 'Persn' in snapshot"),
        ({"type": "Person", "branch": "draft"}, "branch 'draft' not found"),
        ({"type": "Person", "version": "two"}, "the option version is a number, not 'two'"),
        ({"type": "Person", "since": "now", "columns": "id"}, "there is no option 'columns' here"),
        ({}, "the option type is missing"),
    ],
)
def test_what_is_wrong_with_options_is_reported(graph: Graph, options: dict[str, str], message: str) -> None:
    with pytest.raises(OmnigraphError) as caught:
        OmnigraphSource({"uri": graph.uri, **options}).schema()
    assert message in str(caught.value)


def test_a_source_without_a_place_asks_for_one() -> None:
    with pytest.raises(BadRequest, match="which graph is meant"):
        OmnigraphSource({"type": "Person"}).schema()


def test_a_stream_that_does_not_say_where_it_begins_is_refused(graph: Graph) -> None:
    source = OmnigraphSource({"uri": graph.uri, "type": "Person"})
    with pytest.raises(BadRequest, match="has to say where it begins"):
        source.streamReader(source.schema())


def test_overwriting_and_merging_exclude_each_other(graph: Graph) -> None:
    source = OmnigraphSource({"uri": graph.uri, "type": "Person", "mode": "merge"})
    with pytest.raises(BadRequest, match="Spark is to overwrite"):
        source.writer(StructType(), overwrite=True)


def test_rows_are_written_onto_a_branch_in_one_commit(reading: SparkSession, graph: Graph) -> None:
    rows = pa.table({"name": ["bo", "cy"], "age": pa.array([7, 8], pa.int32())})
    options = {"uri": graph.uri, "type": "Person", "mode": "merge", "branch": "draft", "from": "main"}
    before = graph.snapshot().id
    frame = reading.createDataFrame(rows).repartition(2)
    frame.write.format("omnigraph").mode("append").options(**options, actor="ann").save()
    found = graph.snapshot("draft").rows("Person", columns=["name", "age"]).to_pylist()
    assert sorted((row["name"], row["age"]) for row in found) == [("ada", 36), ("bo", 7), ("cy", 8)]
    newest = graph.snapshot("draft").commit
    assert newest is not None
    assert (newest.actor, newest.parent, graph.snapshot().id) == ("ann", before, before)

    wrong = frame.withColumnRenamed("age", "agee")
    with pytest.raises(PySparkException, match="unknown input field 'agee'"):
        wrong.write.format("omnigraph").mode("append").options(**options).save()
    assert graph.snapshot("draft").commit == newest
    assert [path for path in (Path(graph.uri) / "__staging").rglob("*") if path.is_file()] == []


def test_columns_that_do_not_fit_are_refused_before_a_task_runs(graph: Graph) -> None:
    options = {"uri": graph.uri, "type": "Person"}
    for columns, message in (
        (StructType().add("name", StringType()).add("agee", IntegerType()), "unknown input field 'agee'"),
        (StructType().add("age", IntegerType()), "name"),
        (StructType().add("name", StringType()).add("age", StringType()), "age"),
    ):
        with pytest.raises(LoadRejected) as caught:
            OmnigraphSource(options).writer(columns, overwrite=False)
        assert message in str(caught.value)
        assert caught.value.violations[0].file == "<rows of Person>"


def test_tasks_check_and_stage_rows_and_the_commit_reads_none(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = StructType().add("name", StringType()).add("age", IntegerType())
    options = {"uri": graph.uri, "type": "Person", "mode": "merge"}

    def write(*tasks: list[str]) -> tuple[BranchWriter, list[Any]]:
        writer = OmnigraphSource(options).writer(columns, overwrite=False)
        assert isinstance(writer, BranchWriter)
        found: list[Any] = []
        for number, names in enumerate(tasks):
            monkeypatch.setattr(staged_rows, "frame_partition", lambda at=number: at)
            batch = pa.record_batch({"name": names, "age": pa.array(list(range(len(names))), pa.int32())})
            found.append(writer.write(iter([batch])))
        return writer, pickle.loads(pickle.dumps(found))

    writer, messages = write(["cy", "bo"], [], ["dee"])
    again = writer.write(iter([]))  # a second attempt of a task, whose answer does not count
    assert [sum(one.rows for one in message.part.item.types) for message in messages] == [2, 0, 1]
    with monkeypatch.context() as patch:
        for place in (staging, small_load):
            patch.setattr(place, "read_files", _reads_nothing)
        writer.commit(messages)
    assert again is not None
    found = graph.snapshot().rows("Person", columns=["name", "age"]).to_pylist()
    assert sorted((row["name"], row["age"]) for row in found) == [
        ("ada", 36),
        ("bo", 1),
        ("cy", 0),
        ("dee", 0),
    ]
    writer, messages = write(["eve"], ["eve"])
    with pytest.raises(LoadRejected, match="<rows of Person>: row 2: "):
        writer.commit(messages)
    writer, messages = write(["eve"])
    writer.abort([*messages, None])
    assert [path for path in (Path(graph.uri) / "__staging").rglob("*") if path.is_file()] == []


def _reads_nothing(*_: object) -> NoReturn:
    raise AssertionError("the committing process read rows")


def test_a_frame_without_partitions_empties_what_it_overwrites(graph: Graph) -> None:
    columns = StructType().add("from", StringType()).add("to", StringType())
    writer = OmnigraphSource({"uri": graph.uri, "type": "Knows"}).writer(columns, overwrite=True)
    writer.commit([])
    assert graph.snapshot().rows("Knows").num_rows == 0
    assert graph.snapshot().rows("Person").num_rows == 2


def test_a_wrong_option_arrives_as_a_message_without_a_traceback(reading: SparkSession, graph: Graph) -> None:
    with pytest.raises(PySparkException) as caught:
        read(reading, graph, type="Person", brnch="draft")
    message = str(caught.value)
    assert "there is no option 'brnch' here" in message
    assert "code: bad_request" in message
    assert "help: choose one of: " in message
    assert "Traceback" not in message
