"""Diffs and changes on Spark are those of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.engine.changes.change import Change, EntityImage
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from omnigraph.pipeline.session import session
from tests.pipeline.graphs import people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Ada changed, Bo and his edge gone, Cy and a team new on a branch; Dee new on main."""
    with people(tmp_path_factory.mktemp("diffs") / "graph") as made:
        made.branches.create("draft")
        made.mutate('query q() { update Person set { age: 37 } where name = "ada" }', branch="draft")
        made.mutate('query q() { delete Person where name = "bo" }', branch="draft")
        with made.write("draft") as tx:
            tx.insert("Person", name="cy", score=2**64 - 1, tags=["x"], photo="base64:AQ==")
            tx.insert("Team", title="night")
        with made.write() as tx:
            tx.insert("Person", name="dee")
        yield made


def test_a_diff_on_spark_has_the_same_changes(graph: Graph, spark: SparkSession) -> None:
    assert session() is spark
    local = graph.diff("main", "draft", types="Person", engine="local")
    found = graph.diff("main", "draft", types="Person", engine="spark")
    assert list(found) == list(local)
    assert found.stat() == local.stat()
    assert len(list(local)) == 4


def test_a_diff_as_a_frame_has_the_same_changes(graph: Graph, spark: SparkSession) -> None:
    frames, local = graph.spark(spark), graph.diff("main", "draft")
    rows = [row.asDict() for row in frames.diff("main", "draft").sort("kind", "type", "id").collect()]
    wanted = sorted(local, key=lambda one: (one.kind, one.type_name, one.id))
    assert rows == [_to_row(change) for change in wanted]

    typed = {
        row["id"]: row.asDict(recursive=True) for row in frames.diff("main", "draft", "Person").collect()
    }
    assert typed.keys() == {"ada", "bo", "cy", "dee"}
    assert (typed["ada"]["op"], typed["ada"]["changed"]) == ("update", ["age"])
    assert (typed["ada"]["before"]["age"], typed["ada"]["after"]["age"]) == (36, 37)
    assert "photo" not in typed["cy"]["after"]
    assert (typed["cy"]["before"], int(typed["cy"]["after"]["score"])) == (None, 2**64 - 1)
    with pytest.raises(BadRequest, match="there is no type 'Persn'"):
        frames.diff("main", "draft", "Persn")


def test_changes_as_a_frame_have_their_commits(graph: Graph, spark: SparkSession) -> None:
    rows = graph.spark(spark).changes("Person", branch="draft").collect()
    feed = [(block.commit.id, one.op, one.id) for block in graph.changes("draft") for one in block.changes]
    assert sorted((row["commit"], row["op"], row["id"]) for row in rows) == sorted(
        one for one in feed if one[2] in ("ada", "bo", "cy")
    )


def _to_row(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "type": change.type_name,
        "op": change.op.value,
        "id": change.id,
        "changed": list(change.changed),
        "before": _json(change.before),
        "after": _json(change.after),
    }


def _json(image: EntityImage | None) -> str | None:
    return None if image is None else json.dumps(image.to_json(), ensure_ascii=False, separators=(",", ":"))
