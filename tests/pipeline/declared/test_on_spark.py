"""Declared pipelines from files, databases and graphs to a graph, on Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import omnigraph as og
from omnigraph.errors import (
    PipelineColumnUnresolved,
    PipelineDuplicateKey,
    PipelineExpressionRefused,
    PipelineInvalid,
    PipelinePropertyType,
    PipelineSqlInvalid,
    PipelineViewUnknown,
)
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.extraction import SparkExtract
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.plan import dry_run, plan
from omnigraph.pipeline.declared.run import RunOptions, run
from omnigraph.pipeline.declared.secrets import Secrets
from omnigraph.progress import progress_to
from tests.pipeline.declared.world import graph_at, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = """
providers:
  source:
    lake: {kind: files, root: lake}
    crm: {kind: jdbc, url: "jdbc:derby:memory:%(db)s", user: "${CRM_USER}", password: "${CRM_PASSWORD}"}
pipelines:
  crm_sync:
    params: {least: 1, domain: "%%x"}
    sources:
      people: {provider: crm, table: PEOPLE, watermark: {column: UPDATED, type: timestamp}}
      firms: {provider: lake, path: firms.csv, format: csv, options: {header: "true"}}
      before: {graph: old, types: [Person]}
    transforms:
      - {view: clean, sql: clean.sql}
      - view: employment
        query: select c.email, f.slug, c.started from clean c join firms f on c.firm = f.id
    into:
      - graph: team
        map: team.map.yaml
        mode: %(mode)s
    checkpoint: watermark
"""
CLEAN = """
-- people with an address
with known as (select lower(EMAIL) as email, FIRM as firm, AGE as age, STARTED as started, UPDATED
               from people where AGE >= :least and EMAIL like :domain)
select * from known;
"""
MAP = """
version: 1
nodes:
  - {type: Person, view: clean, where: email is not null, properties: {email: email, age: cast(age as int)}}
  - {type: Person, view: before, properties: {email: email, full_name: upper(full_name)}}
  - {type: Firm, view: firms, properties: {slug: slug}}
edges:
  - {type: WorksAt, view: employment, src: email, dst: slug, id: "concat(email, '|', slug)",
     properties: {since: started}}
"""


class Database:
    """A database in the memory of the JVM."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        url = f"jdbc:derby:memory:{name};create=true;user=ann;password=s3cr3t-word"
        self._connection = jvm.java.sql.DriverManager.getConnection(url)
        self("create table PEOPLE (EMAIL varchar(20), FIRM int, AGE int, STARTED date, UPDATED timestamp)")

    def __call__(self, sql: str) -> None:
        self._connection.createStatement().execute(sql)

    def add(self, email: str, day: int, age: int = 7) -> None:
        self(f"insert into PEOPLE values ('{email}', 1, {age}, '2020-01-0{day}', '2024-01-0{day} 00:00:00')")


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Database:
    return Database(spark, tmp_path.name)


def prepare_folder(folder: Path, mode: str) -> Path:
    (folder / "lake").mkdir()
    (folder / "lake/firms.csv").write_text("id,slug\n1,acme\n2,zeta\n")
    (folder / "clean.sql").write_text(CLEAN)
    (folder / "team.map.yaml").write_text(MAP)
    (folder / "crm.yaml").write_text(WHOLE % {"db": folder.name, "mode": mode})
    graph_at(folder / "team")
    graph_at(folder / "old")
    with og.open(folder / "old") as old, old.write() as tx:
        tx.insert("Person", email="old@x", full_name="ol")
    return folder / "crm.yaml"


def test_a_database_files_and_a_graph_become_one_commit_and_later_runs_bring_what_is_new(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    pipeline = read_pipeline(prepare_folder(tmp_path, "merge"))
    secrets = Secrets({"CRM_USER": "ann", "CRM_PASSWORD": "s3cr3t-word"})
    database.add("A@x", 1, age=5)
    database.add("a@x", 2, age=6)  # the same person, added later
    database.add("b@y", 2)
    extract = SparkExtract(pipeline, spark, secrets=secrets)
    first = run(pipeline, extract, RunOptions(actor="ann"))
    target = first.targets["graph.team"]
    assert (first.status, target.status, target.nodes, target.edges) == (
        "succeeded",
        "succeeded",
        {"Person": 2, "Firm": 2},
        {"WorksAt": 2},
    )
    with og.open(tmp_path / "team") as team:
        commit = team.commits.list()[0]
        assert (commit.id, commit.actor) == (target.merged_commit_id, "ann")
        assert team.branches.list() == ["main"]
        ages = {row["email"]: row["age"] for row in team.snapshot().rows("Person").to_pylist()}
        assert ages == {"a@x": 6, "old@x": None}
        assert team.snapshot().rows("WorksAt")["id"].to_pylist() == ["a@x|acme"]
    database.add("c@x", 3)
    second = run(pipeline, SparkExtract(pipeline, spark, secrets=secrets, params={"least": 7}))
    assert second.targets["graph.team"].nodes["Person"] == 2
    assert second.sources["people"].upper == "2024-01-03 00:00:00"
    assert people(tmp_path / "team") == ["a@x", "c@x", "old@x"]
    kept = "".join(path.read_text() for path in (tmp_path / "team/__pipelines").rglob("*.json"))
    assert "s3cr3t-word" not in kept
    assert open_ledger(pipeline).list_runs()[0].run_id == second.run_id


def test_files_of_every_format_are_sources(spark: SparkSession, tmp_path: Path) -> None:
    graph_at(tmp_path / "team")
    rows = {form: pa.table({"slug": [form]}) for form in ("parquet", "orc")}
    pq.write_table(rows["parquet"], tmp_path / "firms.parquet")
    orc.write_table(rows["orc"], tmp_path / "firms.orc")
    (tmp_path / "firms.json").write_text('{"slug": "json"}\n')
    (tmp_path / "firms.csv").write_text("slug\ncsv\n")
    (tmp_path / "firms.text").write_text("text\n")
    formats = ("parquet", "json", "csv", "orc", "text")
    header = {"csv": ', options: {header: "true"}'}
    sources = [f"from_{one}: {{format: {one}, path: firms.{one}{header.get(one, '')}}}" for one in formats]
    maps = [
        f"{{type: Firm, view: from_{one}, properties: {{slug: {'value' if one == 'text' else 'slug'}}}}}"
        for one in formats
    ]
    (tmp_path / "crm.yaml").write_text(
        f"""
        pipelines:
          crm:
            sources: {{{", ".join(sources)}}}
            into: [{{graph: team, map: {{nodes: [{", ".join(maps)}]}}}}]
        """
    )
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    done = run(pipeline, SparkExtract(pipeline, spark))
    assert (done.status, done.targets["graph.team"].nodes) == ("succeeded", {"Firm": len(formats)})
    with og.open(tmp_path / "team") as team:
        assert sorted(team.snapshot().rows("Firm")["slug"].to_pylist()) == sorted(formats)


def test_other_formats_and_catalog_tables_are_sources(spark: SparkSession, tmp_path: Path) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "firms.xml").write_text("<all><firm><slug>xml</slug></firm></all>")
    spark.sql("create table kept_firms using parquet as select 'table' as slug")
    declared = """
        pipelines:
          crm:
            sources:
              firms: {format: xml, path: firms.xml, options: {rowTag: firm}}
              kept: {format: "table:kept_firms"}%s
            into: [{graph: team, map: {nodes: [{type: Firm, view: firms, properties: {slug: slug}},
                                               {type: Firm, view: kept, properties: {slug: slug}}]}}]
        """
    try:
        (tmp_path / "crm.yaml").write_text(declared % "")
        pipeline = read_pipeline(tmp_path / "crm.yaml")
        assert run(pipeline, SparkExtract(pipeline, spark)).status == "succeeded"
        (tmp_path / "crm.yaml").write_text(declared % "\n              none: {format: nosuch}")
        pipeline = read_pipeline(tmp_path / "crm.yaml")
        failed = run(pipeline, SparkExtract(pipeline, spark)).targets["graph.team"].error
    finally:
        spark.sql("drop table kept_firms")
    assert failed is not None
    assert failed["code"] == "pipeline_source_kind_unsupported"
    assert "crm.yaml:7: source 'none'" in failed["message"]
    with og.open(tmp_path / "team") as team:
        assert sorted(team.snapshot().rows("Firm")["slug"].to_pylist()) == ["table", "xml"]


def test_the_same_rows_are_appended_once_however_they_are_spread(spark: SparkSession, tmp_path: Path) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "crm.yaml").write_text(
        """
        pipelines:
          crm:
            source: {format: csv, path: "in/*.csv", options: {header: "true"}}
            into:
              - graph: team
                mode: append
                map: {nodes: [{type: Firm, view: source, properties: {slug: slug}},
                              {type: Person, view: source, where: "false", properties: {email: slug}}]}
        """
    )
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("slug\na\nb\n")
    assert run(pipeline, SparkExtract(pipeline, spark)).targets["graph.team"].nodes == {
        "Firm": 2,
        "Person": 0,
    }
    (tmp_path / "in/1.csv").write_text("slug\nb\n")
    (tmp_path / "in/2.csv").write_text("slug\na\n")
    again = run(pipeline, SparkExtract(pipeline, spark))
    assert (again.status, again.targets["graph.team"].status) == ("succeeded", "skipped")
    (tmp_path / "in/2.csv").write_text("slug\nc\n")
    clash = run(pipeline, SparkExtract(pipeline, spark))
    error = clash.targets["graph.team"].error
    assert (clash.status, error and error["code"]) == ("failed", "key_conflict")
    with og.open(tmp_path / "team") as team:
        assert sorted(team.snapshot().rows("Firm")["slug"].to_pylist()) == ["a", "b"]
        assert team.branches.list() == ["main"]


def test_of_several_rows_of_an_entity_the_newest_lands_and_equally_new_ones_fail(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "crm.yaml").write_text(
        """
        pipelines:
          crm:
            source: {format: csv, path: people.csv, options: {header: "true"},
                     watermark: {column: seq, type: bigint}}
            into:
              - graph: team
                map: {nodes: [{type: Person, view: source, properties: {email: email, full_name: name}}]}
        """
    )
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    (tmp_path / "people.csv").write_text("email,name,seq\na@x,old,9\na@x,older,9\na@x,new,10\nb@x,one,1\n")
    done = run(pipeline, SparkExtract(pipeline, spark))
    assert (done.status, done.targets["graph.team"].nodes) == ("succeeded", {"Person": 2})
    (tmp_path / "people.csv").write_text("email,name,seq\na@x,one,10\na@x,two,10\nb@x,two,2\n")
    clash = run(pipeline, SparkExtract(pipeline, spark)).targets["graph.team"]
    assert (clash.status, clash.retryable, clash.error) == (
        "failed",
        False,
        {
            "code": "pipeline_duplicate_key",
            "message": "node type 'Person': 1 entity has several rows with the greatest watermark, "
            'such as {"email":"a@x"}',
        },
    )
    with pytest.raises(PipelineDuplicateKey):
        dry_run(pipeline, SparkExtract(pipeline, spark))
    with og.open(tmp_path / "team") as team:
        rows = team.snapshot().rows("Person", columns=["id", "full_name"]).to_pylist()
    assert sorted((row["id"], row["full_name"]) for row in rows) == [("a@x", "new"), ("b@x", "one")]


def test_a_plan_reads_no_rows_of_a_database(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = read_pipeline(prepare_folder(tmp_path, "merge"))
    database.add("a@x", 1)
    monkeypatch.setenv("CRM_USER", "ann")
    monkeypatch.setenv("CRM_PASSWORD", "s3cr3t-word")
    stages: list[str] = []
    with progress_to(lambda report: stages.append(report.stage)):
        planned = plan(pipeline)
    assert planned.targets[0].types["node:Person"].columns is not None
    assert stages == []


WRONG = [
    ("select * from people", "agee", PipelineColumnUnresolved, "agee"),
    ("select * from people", "nosuch(age)", PipelineExpressionRefused, "nosuch"),
    ("select * from peple", "age", PipelineViewUnknown, "peple"),
    ("select * from csv.`people.csv`", "age", PipelineExpressionRefused, "csv"),
    ("select * frm people", "age", PipelineSqlInvalid, "people"),
    ("select * from people", "age +", PipelineSqlInvalid, "end of input"),
    ("select * from people", "age", PipelinePropertyType, "strict property 'age' expects Int32"),
    ("select * from people where age = ${HOME}", "age", PipelineExpressionRefused, "`${...}`"),
]


def test_statements_and_maps_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "people.csv").write_text("email,age\na@x,1\n")
    catalog = og.open(tmp_path / "team").schema
    for query, expression, problem, message in WRONG:
        (tmp_path / "crm.yaml").write_text(
            f"""
            pipelines:
              crm:
                sources: {{people: {{format: csv, path: people.csv, options: {{header: "true"}}}}}}
                transforms: [{{view: clean, query: "{query}"}}]
                into:
                  - graph: team
                    map:
                      nodes:
                        - {{type: Person, view: clean, properties: {{email: email, age: "{expression}"}}}}
            """
        )
        pipeline = read_pipeline(tmp_path / "crm.yaml")
        extract = SparkExtract(pipeline, spark)
        with pytest.raises(PipelineInvalid, match=re.escape(message)) as caught:
            extract.build_frames(pipeline.into[0], catalog, extract.find_bounds({}, ()))
        assert type(caught.value) is problem
        assert (caught.value.file or "").endswith("crm.yaml")


def test_each_source_is_read_once_however_many_types_and_targets_it_feeds(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Counted(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counted"

        def schema(self) -> str:
            return "slug string, day int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(self.options["log"])

    class Reader(DataSourceReader):
        def __init__(self, log: str) -> None:
            self._log = log

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(day) for day in (1, 2)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
            with open(self._log, "a") as log:  # noqa: PTH123 - appended to by several processes
                log.write(f"{partition.value}\n")
            yield (f"s{partition.value}", partition.value)

    log = tmp_path / "reads.txt"
    spark.dataSource.register(Counted)
    spark.read.format("counted").option("log", str(log)).load().createOrReplaceGlobalTempView("counted")
    for name in ("one", "two"):
        graph_at(tmp_path / name)
    (tmp_path / "crm.yaml").write_text(
        """
        pipelines:
          crm:
            sources:
              found: {format: "table:global_temp.counted", watermark: {column: day, type: int}}
            transforms:
              - {view: twice, query: "select a.slug, a.day from found a join found b on a.day = b.day"}
            into:
              - graph: one
                map: {nodes: [{type: Firm, view: found, properties: {slug: slug}},
                              {type: Person, view: twice, properties: {email: slug}}]}
              - {graph: two, map: {nodes: [{type: Firm, view: twice, properties: {slug: slug}}]}}
            checkpoint: watermark
        """
    )
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    first = run(pipeline, SparkExtract(pipeline, spark), RunOptions(targets=("one",)))
    assert (first.status, sorted(log.read_text().split())) == ("succeeded", ["1", "2"])
    assert first.sources["found"].upper == "2"
    assert "rows of node:Firm" in {one["stage"] for one in first.tasks}
    assert open_ledger(pipeline).list_runs()[0].tasks == first.tasks
    # One target has all of it, the other nothing: it is still read once.
    second = run(pipeline, SparkExtract(pipeline, spark))
    statuses = {name: one.status for name, one in second.targets.items()}
    assert statuses == {"graph.one": "skipped", "graph.two": "succeeded"}
    assert sorted(log.read_text().split()) == ["1", "1", "2", "2"]
    # Nothing is new, and the checkpoints stay.
    third = run(pipeline, SparkExtract(pipeline, spark))
    assert {one.status for one in third.targets.values()} == {"skipped"}
    assert third.sources["found"].upper == "2"
    assert not spark.sparkContext._jsc.sc().getPersistentRDDs().size()
