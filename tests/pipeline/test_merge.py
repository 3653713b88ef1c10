"""Merges come to the same on Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph
from omnigraph.engine.load import replaced_rows as matching
from omnigraph.graph import Graph
from omnigraph.pipeline.session import session
from tests.engine.merge.family import SCHEMA, everything, person, put, remove

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECIDED = {"conflicts": [{"type": "node:Person", "id": "cid", "properties": {"age": {"value": 7}}}]}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Main and `work` disagree on cid, both have new people, and bob is gone."""
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as made:
        put(made, *(person(name, age=1) for name in ("ann", "bob", "cid")))
        made.branches.create("work")
        for branch, age in (("work", 2), ("main", 3)):
            put(made, person("cid", age=age), person(f"new-{branch}"), branch=branch)
        put(made, person("ann", age=9), branch="work")
        remove(made, "Person", "bob", "work")
        yield made


def test_a_merge_on_spark_does_the_same(
    graph: Graph, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session() is spark
    monkeypatch.setattr(matching, "WORTH", 1)
    shutil.copytree(graph.uri, tmp_path / "other")
    done = graph.merge("work", engine="spark", resolutions=DECIDED)
    with omnigraph.open(tmp_path / "other") as other:
        small = other.merge("work", engine="local", resolutions=DECIDED)
        assert everything(graph) == everything(other)
    assert (done.outcome, done.changes, done.resolved) == (small.outcome, small.changes, small.resolved)
    assert [file for file in (Path(graph.uri) / "__staging").rglob("*") if file.is_file()] == []
