"""Whatever Spark reads is the input of a load: `--format spark:NAME`, and `SparkSource` in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import BadRequest, PipelineFailed, PipelineSourceKindUnsupported, SourceSecretMissing
from omnigraph.pipeline.spark_settings import spark_settings
from omnigraph.spark import SparkSource
from tests.pipeline.declared.world import graph_at, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Load = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Load:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    graph_at(tmp_path / "team")

    def run(*arguments: str) -> tuple[int, Any, str]:
        status = main(["load", "team", "--mode", "merge", "--json", "--quiet", *arguments])
        shown = capsys.readouterr()
        return status, json.loads(shown.out) if shown.out else None, shown.err

    return run


def test_files_databases_and_tables_of_spark_are_loaded(
    spark: SparkSession, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orc.write_table(pa.table({"email": ["orc@x"], "age": [3]}), tmp_path / "people.orc")
    (tmp_path / "people.xml").write_text("<all><p><email>xml@x</email><age>4</age></p></all>")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    url = f"jdbc:derby:memory:{tmp_path.name}"
    made = jvm.java.sql.DriverManager.getConnection(f"{url};create=true;user=ann;password=s3cr3t-word")
    for sql in ('create table P ("email" varchar(9), "age" int)', "insert into P values ('sql@x', 5)"):
        made.createStatement().execute(sql)
    monkeypatch.setenv("DB_USER", "ann")
    monkeypatch.setenv("DB_PASSWORD", "s3cr3t-word")
    secrets = ("--option", "user=${DB_USER}", "--option", "password=${DB_PASSWORD}")
    spark.sql("select 'table@x' as email, 6 as age").createOrReplaceTempView("kept")
    cases = [
        ("spark:orc", "--data", "people.orc"),
        ("spark:xml", "--data", "people.xml", "--option", "rowTag=p"),
        ("spark:jdbc", "--option", f"url={url}", "--option", "dbtable=P", *secrets),
        ("spark:table:kept",),
    ]
    for form, *more in cases:
        status, done, shown = load("--format", form, "--type", "Person", *more)
        assert status == 0, shown
        assert done["tables"] == [{"table_key": "node:Person", "rows_loaded": 1}], form
        assert done["engine"]["name"] == "spark"
    assert people(tmp_path / "team") == ["orc@x", "sql@x", "table@x", "xml@x"]

    wrong = [
        (2, "usage", "'people' is not one of ndjson", "--format people --data people.orc"),
        (2, "usage", "'--data': name a file", "--format csv"),
        (2, "usage", "'rowTag' is not NAME=VALUE", "--format spark:xml --option rowTag"),
        (2, "usage", "'a' is given twice", "--format spark:xml --option a=1 --option a=2"),
        (1, "bad_request", "--option is for --format spark:NAME", "--data people.orc --option a=1"),
        (1, "bad_request", "cannot be a format", "--format spark:; --type Person"),
        (1, "bad_request", "has no path", "--format spark:table:x --type P --data x"),
        (1, "bad_request", "do not tell which type", "--format spark:orc --data people.orc"),
        (1, "source_secret_inline", "'password'", "--format spark:jdbc --option password=s3cr3t-word"),
        (1, "pipeline_source_kind_unsupported", "nosuch", "--format spark:nosuch --type Person"),
        (1, "bad_request", "`rowTag` option", "--format spark:xml --type Person --data people.xml"),
        (1, "bad_request", "Path does not exist", "--format spark:orc --type Person --data none.orc"),
        (1, "bad_request", "cannot be found", "--format spark:table:none --type Person"),
    ]
    for status, code, reason, arguments in wrong:
        exited, _, shown = load(*arguments.split())
        error = json.loads(shown)
        assert (exited, error["code"]) == (status, code), (arguments, shown)
        assert reason in error["error"]
        assert "s3cr3t" not in shown


def test_several_sources_are_one_commit_and_failures_hide_secrets(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph_at(tmp_path / "team")
    orc.write_table(pa.table({"email": ["a@x"]}), tmp_path / "people.orc")
    spark.sql("select 'acme' as slug").createOrReplaceTempView("firms")
    spark.sql("select 'a@x' as `from`, 'acme' as `to`").createOrReplaceTempView("jobs")
    with og.open(tmp_path / "team") as team:
        before = len(team.commits.list())
        sources = {
            "Person": SparkSource("orc", tmp_path / "people.orc"),
            "Firm": SparkSource("table:firms"),
            "WorksAt": SparkSource("table:jobs"),
        }
        done = team.load(sources, mode="append")
        assert (done.total, len(team.commits.list()) - before) == (3, 1)
        hidden = SparkSource(
            "jdbc", options={"url": "jdbc:none:x;password=w0rd", "dbtable": "w0rd", "password": "w0rd"}
        )
        with pytest.raises(PipelineFailed) as failed:
            team.load(hidden, type="Person", mode="append")
        assert "w0rd" not in str(failed.value)
        assert failed.value.__cause__ is None
        for source, error in (
            (SparkSource("nosuch"), PipelineSourceKindUnsupported),
            (SparkSource("csv", "x", {"sep": "${NO_SUCH_NAME}"}), SourceSecretMissing),
        ):
            with pytest.raises(error):
                team.load(source, type="Person", mode="append")
    with pytest.raises(BadRequest, match="cannot be a format"):
        SparkSource("; drop")


def test_packages_of_the_environment_are_those_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "spark.jars.packages" not in spark_settings(tmp_path, master="local", memory="1g")
    monkeypatch.setenv("OMNIGRAPH_SPARK_PACKAGES", " io.delta:delta-spark_2.13:4.0.0 ")
    made = spark_settings(tmp_path, master="local", memory="1g")
    assert made["spark.jars.packages"] == "io.delta:delta-spark_2.13:4.0.0"
