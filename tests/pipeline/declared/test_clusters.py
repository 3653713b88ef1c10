"""Applied pipelines of a cluster on Spark: the example, a database with secrets, and a graph by its id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.cluster.apply import ApplyOptions, apply
from omnigraph.cluster.refresh import import_graphs
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.extraction import SparkExtract
from omnigraph.pipeline.declared.plan import dry_run
from omnigraph.pipeline.declared.run import retry, run
from omnigraph.pipeline.declared.secrets import Secrets
from tests.cluster.pipelines import HEAD, applied_pipeline
from tests.cluster.pipelines import new_deployment as new_cluster
from tests.pipeline.declared.test_on_spark import Database, database
from tests.pipeline.declared.world import people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]


def test_the_example_of_cluster_init_runs_its_pipeline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    at = tmp_path / "brain"
    assert main(["cluster", "init", str(at)]) == 0
    assert import_graphs(at).findings.ok
    assert apply(at, ApplyOptions("act-ann")).converged
    options = ["--config", str(at), "--as", "act-ann", "--json"]
    capsys.readouterr()
    assert main(["pipeline", "run", "staff", *options]) == 0
    first = json.loads(capsys.readouterr().out)
    target = first["targets"]["graph.knowledge"]
    assert (target["nodes"], target["edges"]) == ({"Person": 3, "Topic": 2}, {"KnowsAbout": 2})
    assert (first["actor"], first["spark"]["version"]) == ("act-ann", spark.version)
    with og.open(at / "graphs/knowledge.omni", read_only=True) as graph:
        assert graph.commits.list()[0].actor == "act-ann"
        assert sorted(graph.snapshot().rows("KnowsAbout")["id"].to_pylist()) == ["Ann|Lance", "Ben|Arrow"]
    # The working tree is planned on request, and run only after it was applied.
    (at / "staff.map.yaml").write_text(
        "nodes: [{type: Person, view: staff, where: team = 'storage', properties: {name: name}}]\n"
    )
    counts = []
    for more in ([], ["--desired"]):
        assert main(["pipeline", "run", "staff", "--dry-run", *more, *options]) == 0
        planned = json.loads(capsys.readouterr().out)["targets"]["graph.knowledge"]["types"]
        counts.append({key: one["rows"] for key, one in planned.items()})
    (at / "cluster.yaml").write_text(
        (at / "cluster.yaml").read_text().replace("topic is not", "topicc is not")
    )
    assert main(["pipeline", "plan", "staff", "--desired", "--config", str(at), "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == "pipeline_column_unresolved"
    assert counts == [{"node:Person": 3, "node:Topic": 2, "edge:KnowsAbout": 2}, {"node:Person": 2}]


JDBC = """\
pipelines:
  crm:
    sources:
      people: {provider: crm, table: PEOPLE, watermark: {column: UPDATED, type: timestamp}}
    into:
      - graph: team
        mode: append
        map: {nodes: [{type: Person, view: people, properties: {email: EMAIL, age: AGE}}]}
    checkpoint: watermark
"""


def test_a_database_is_read_from_where_the_last_run_ended(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    made = new_cluster(tmp_path)
    url = f'"jdbc:derby:memory:{tmp_path.name}"'
    crm = f'    crm: {{kind: jdbc, url: {url}, user: "${{CRM_USER}}", password: "${{CRM_PASSWORD}}"}}\n'
    made.configure(HEAD.replace("graphs:", f"{crm}graphs:") + JDBC)
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    pipeline = applied_pipeline(made)
    secrets = Secrets({"CRM_USER": "ann", "CRM_PASSWORD": "s3cr3t-word"})

    def once() -> tuple[str, dict[str, int]]:
        target = run(pipeline, SparkExtract(pipeline, spark, secrets=secrets)).targets["graph.team"]
        return target.status.value, dict(target.nodes)

    database.add("a@x", 1)
    assert once() == ("succeeded", {"Person": 1})
    database.add("b@x", 2)
    assert once() == ("succeeded", {"Person": 1})
    assert once() == ("skipped", {"Person": 0})
    assert people(made.graph("team")) == ["a@x", "b@x"]
    stored = "".join(path.read_text() for path in made.control.rglob("*") if path.is_file())
    assert "s3cr3t-word" not in stored
    assert "${CRM_PASSWORD}" in stored


FROM_GRAPH = """\
pipelines:
  crm:
    sources:
      people: {graph: other, types: [Person]}
    into:
      - {graph: team, mode: append, map: {nodes: [{type: Person, view: people, properties: {email: email}}]}}
"""


def test_a_retry_whose_bounds_can_no_longer_be_read_needs_a_new_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    made = new_cluster(tmp_path, FROM_GRAPH)
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    with og.open(made.graph("other")) as other, other.write() as tx:
        tx.insert("Person", email="a@x")
    pipeline = applied_pipeline(made)
    extract = SparkExtract(pipeline, spark)
    planned = dry_run(pipeline, extract)
    assert planned.targets[0].types["node:Person"].rows == 1
    with og.open(made.graph("team")) as team, team.write() as tx:
        tx.insert("Person", email="a@x")
    failed = run(pipeline, extract)
    assert (failed.status, failed.sources["people"].snapshot is not None) == ("failed", True)
    with og.open(made.graph("team")) as team, team.write() as tx:
        tx.delete("Person", ("email", "=", "a@x"))
    with og.open(made.graph("other")) as other:
        with other.write() as tx:
            tx.update("Person", ("email", "=", "a@x"), age=2)
        other.optimize()
        other.cleanup(keep=1)
    again = retry(pipeline, SparkExtract(pipeline, spark), failed.run_id)
    target = again.targets["graph.team"]
    assert (again.status, target.status, target.retryable) == ("failed", "failed", False), target.error
    assert target.error is not None
    assert target.error["code"] == "version_reclaimed"
    assert people(made.graph("team")) == []
    assert run(pipeline, SparkExtract(pipeline, spark)).status == "succeeded"
    assert people(made.graph("team")) == ["a@x"]
    assert len(open_ledger(pipeline).list_runs()) == 2
