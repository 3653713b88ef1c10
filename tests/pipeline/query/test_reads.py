"""Reads on Spark as users ask for them: of any moment, within limits, as a result or a DataFrame."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import BadRequest, QueryCancelled, ResourceLimitExceeded
from omnigraph.graph import Graph
from omnigraph.pipeline.query import join_strategy, walk
from omnigraph.progress import progress_to
from omnigraph.query import engine_choice
from omnigraph.query.read_cache import shared_cache
from tests.pipeline.graphs import people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = "query names() { match { $p: Person } return { $p.name as name } }"
EVERYTHING = """query all() {
  match { $p: Person { name: "ada" } }
  return { $p.counts, $p.place, $p.seen, $p.score }
}"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "graph") as made:
        yield made


@pytest.mark.usefixtures("frugal")
def test_a_past_moment_is_read_as_it_was(graph: Graph) -> None:
    before = graph.snapshot()
    with graph.write() as tx:
        tx.delete("Person", ("name", "=", "ada"))
    found = graph.query(EVERYTHING, version=before.version, engine="spark")
    local = graph.query(EVERYTHING, version=before.version)
    assert len(found) == 1
    assert found.table.equals(local.table)
    assert found.envelope() == local.envelope()
    assert before.query(EVERYTHING, engine="spark").table.equals(before.query(EVERYTHING).table)


@pytest.mark.usefixtures("frugal")
def test_a_long_walk_ends_where_there_is_nothing_left_to_meet(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "HOPS_AT_ONCE", 1)
    # To carry out all of these hops would take hours.
    text = """query far() {
      match { $a: Person  $a knows{1,100000} $b }
      return { $a.name as a, $b.name as b }
      order { a, b }
    }"""
    found = graph.query(text, engine="spark").tuples()
    assert found == [("ada", "ada"), ("ada", "bo")] == graph.query(text).tuples()


def test_few_rows_meet_where_they_are(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """query steps() {
      match { $a: Person  $a knows $b  not { $b knows{1,2} $c } }
      return { $a.name as a, count($b) as n }
      order { a }
    }"""
    plans = []
    for most in (join_strategy.FEW_ROWS, -1):
        monkeypatch.setattr(join_strategy, "FEW_ROWS", most)
        frame = graph.spark(spark).query(text)
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
    assert ["Exchange" in plan for plan in plans] == [False, True]


@pytest.mark.usefixtures("frugal")
def test_more_rows_than_allowed_are_refused(graph: Graph) -> None:
    with pytest.raises(ResourceLimitExceeded, match="rows of query 'names'"):
        graph.query(NAMES, max_rows=1, engine="spark")


@pytest.mark.usefixtures("frugal")
def test_a_query_that_must_stop_does_not_begin(graph: Graph) -> None:
    cancelled = threading.Event()
    cancelled.set()
    limits: list[tuple[dict[str, Any], str]] = [
        ({"cancel": cancelled}, "query was cancelled"),
        ({"timeout": 0}, "longer than 0 s"),
    ]
    for limit, said in limits:
        with pytest.raises(QueryCancelled, match=said):
            graph.query(NAMES, **limit, engine="spark")


def test_a_frame_takes_no_limits(spark: SparkSession, graph: Graph) -> None:
    with pytest.raises(BadRequest, match="mean nothing for a DataFrame"):
        graph.spark(spark).query(NAMES, max_rows=1)


def test_an_engine_that_does_not_exist_is_reported_with_those_that_do(graph: Graph) -> None:
    other: Any = "flink"
    with pytest.raises(BadRequest, match="there is no engine 'flink'") as caught:
        graph.query(NAMES, engine=other)
    with pytest.raises(BadRequest, match="there is no engine 'flink'"):
        graph.snapshot().query(NAMES, engine=other)
    assert caught.value.remedy == "choose one of: auto, local, spark"


@pytest.mark.usefixtures("frugal")
def test_the_command_prints_what_spark_finds(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    text = "query n() { match { $p: Person } return { count($p) as n } }"
    assert main(["query", "-e", text, "--engine", "spark", "--json", "--store", graph.uri]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": 2}]


def test_auto_counts_the_tables_that_a_query_reads_and_a_key_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = """
    node Person { name: String @key }
    node Other { name: String @key }
    edge Knows: Person -> Person
    """
    walk = "query q() { match { $p: Person  $p knows $q } return { $q.name } }"
    key = 'query q() { match { $p: Person { name: "ada" } } return { $p.name } }'
    others = "query q() { match { $o: Other } return { $o.name } }"
    need = 2 * engine_choice.BYTES_OF_NODE + engine_choice.BYTES_OF_EDGE
    with og.init(tmp_path / "graph", schema=schema) as made:
        with made.write() as tx:
            for name in ("ada", "bo"):
                tx.insert("Person", name=name)
            for number in range(9):
                tx.insert("Other", name=f"o{number}")
            tx.insert_edge("Knows", "ada", "bo")

        def ask(text: str) -> tuple[int, bool]:
            stages: list[str] = []
            with progress_to(lambda now: stages.append(now.stage)):
                found = made.query(text, engine="auto")
            return len(found), "query" in stages

        monkeypatch.setattr(engine_choice, "machine_memory", lambda: need)
        monkeypatch.setattr(shared_cache(), "limit", need)
        assert ask(walk) == (1, False)
        assert ask(others) == (9, True)
        assert ask(key) == (1, False)
        monkeypatch.setattr(shared_cache(), "limit", need - 1)
        assert ask(key) == (1, False)
        assert made.algorithms.degree(edges="Knows").engine == "spark"
