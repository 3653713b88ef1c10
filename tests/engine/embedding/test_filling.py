"""Which vectors are made, and which are left alone."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.embed.embedder import MAX_TEXT_BYTES
from omnigraph.engine.embedding import fill as run
from omnigraph.engine.embedding.stale_rows import StaleRows
from omnigraph.errors import (
    BadRequest,
    EmbeddingModelMismatch,
    EmbeddingNotConfigured,
    InvalidValue,
    ReadOnlyGraph,
)
from omnigraph.graph import Graph
from omnigraph.progress import Progress
from tests.engine.embedding.docs import GIVEN, change, due, put, vector_of, vectors
from tests.engine.upkeep_graph import table_of


def row_ids(graph: Graph) -> dict[str, int]:
    found = table_of(graph._opened, "node:Doc").scan(["slug"], row_ids=True).to_pylist()
    return {row["slug"]: row["_rowid"] for row in found}


def test_missing_vectors_are_made_and_nothing_else_changes(graph: Graph) -> None:
    blob = base64.b64encode(b"as it was").decode()
    put(
        graph,
        {"slug": "a", "body": "first", "level": 3, "file": f"base64:{blob}"},
        {"slug": "b", "body": "second é"},
        {"slug": "none"},
        {"slug": "blank", "body": " \n"},
    )
    before = row_ids(graph)
    done = graph.embed(actor="ivy")
    assert vectors(graph) == {
        "a": vector_of("first"),
        "b": vector_of("second é"),
        "none": None,
        "blank": None,
    }
    (doc, note) = done.properties
    assert (doc.type, doc.property, doc.found, doc.embedded) == ("Doc", "about", 2, 2)
    assert (note.type, note.found) == ("Note", 0)
    assert [commit.id for commit in done.commits] == [graph.commits.list(limit=1)[0].id]
    assert (done.commits[0].actor, done.model, done.engine) == ("ivy", "mock", "local")
    assert row_ids(graph) == before
    rows = table_of(graph._opened, "node:Doc").scan(["slug", "level", "file"], blob_bytes=True).to_pylist()
    assert {"slug": "a", "level": 3, "file": b"as it was"} in rows
    changed = [(one.op, one.id, one.changed) for one in graph.commits.changes(done.commits[0].id)]
    assert sorted(changed) == [("update", "a", ("about",)), ("update", "b", ("about",))]


def test_a_second_run_writes_nothing(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"})
    graph.embed()
    known = graph.commits.list()
    again = graph.embed()
    assert (again.embedded, again.commits, graph.commits.list()) == (0, (), known)


def test_only_texts_that_changed_are_embedded_again(graph: Graph) -> None:
    put(
        graph, {"slug": "a", "body": "first"}, {"slug": "b", "body": "second"}, {"slug": "c", "body": "third"}
    )
    graph.embed()
    change(graph, 'update Doc set { body: "changed" } where slug = "a"')
    change(graph, 'update Doc set { level: 9 } where slug = "b"')
    done = graph.embed()
    assert done.embedded == 1
    assert vectors(graph) == {"a": vector_of("changed"), "b": vector_of("second"), "c": vector_of("third")}
    change(graph, 'update Doc set { body: "first" } where slug = "a"')
    assert graph.embed().embedded == 1
    assert vectors(graph)["a"] == vector_of("first")


def test_a_vector_that_was_given_stays_until_its_text_changes(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "own", "body": "mine", "about": GIVEN})
    graph.embed()
    assert vectors(graph)["own"] == GIVEN
    put(graph, {"slug": "a", "body": "other", "about": GIVEN})
    assert graph.embed().embedded == 0
    change(graph, 'update Doc set { body: "not mine" } where slug = "own"')
    assert graph.embed().embedded == 1
    assert vectors(graph) == {"a": GIVEN, "own": vector_of("not mine")}


def test_everything_replaces_what_the_model_did_not_make_and_nothing_twice(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "own", "body": "mine", "about": GIVEN})
    graph.embed()
    assert due(graph, everything=True) == 1
    assert graph.embed(everything=True).embedded == 1
    assert vectors(graph) == {"a": vector_of("first"), "own": vector_of("mine")}
    assert graph.embed(everything=True).commits == ()


def test_without_its_text_a_vector_goes_where_the_schema_allows_it(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "own", "about": GIVEN})
    put(graph, {"slug": "n", "text": "t", "place": [1, 2, 3, 4]}, type_name="Note")
    graph.embed()
    change(graph, 'update Doc set { body: null } where slug = "a"')
    change(graph, 'update Note set { text: null } where slug = "n"')
    done = graph.embed()
    assert [(one.embedded, one.cleared) for one in done.properties] == [(0, 1), (0, 0)]
    assert vectors(graph) == {"a": None, "own": GIVEN}
    assert vectors(graph, type_name="Note", column="place") == {"n": [1.0, 2.0, 3.0, 4.0]}


def test_a_text_that_is_refused_is_left_out_and_reported(graph: Graph) -> None:
    docs = [{"slug": f"d{number}", "body": f"text {number}"} for number in range(5)]
    put(graph, *docs, {"slug": "long", "body": "x" * (MAX_TEXT_BYTES + 1)})
    reports: list[Progress] = []
    (done, _) = graph.embed(progress=reports.append).properties
    filling = [(now.stage, now.rows, now.all_rows) for now in reports if now.stage.startswith("embed")]
    assert list(dict.fromkeys(filling)) == [
        ("embed Doc.about", 0, 6),
        ("embed Doc.about", 6, 6),
        ("embed Note.place", 0, 0),
    ]
    assert (done.found, done.embedded, done.refused) == (6, 5, 1)
    assert [(one.id, "bytes" in one.reason) for one in done.refusals] == [("long", True)]
    assert vectors(graph)["long"] is None
    assert vectors(graph)["d4"] == vector_of("text 4")


def test_a_type_can_be_named_and_a_wrong_one_is_refused(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"})
    assert [one.type for one in graph.embed(types=["Note"]).properties] == ["Note"]
    assert vectors(graph) == {"a": None}
    with pytest.raises(BadRequest, match="'Plain' has no property with `@embed`") as wrong:
        graph.embed(types=["Plain"])
    assert wrong.value.remedy == "choose from: Doc, Note"
    with pytest.raises(BadRequest, match="'Dok' is not a node type"):
        graph.embed(types=["Dok"])
    with pytest.raises(InvalidValue, match="batch must be at least 1, got 0"):
        graph.embed(batch=0)


def test_a_schema_without_anything_to_embed_is_reported(tmp_path: Path) -> None:
    with (
        og.init(tmp_path / "plain.omni", schema="node Plain { slug: String @key }") as plain,
        pytest.raises(BadRequest, match="no property of the schema is to be embedded"),
    ):
        plain.embed()


def test_another_model_than_the_recorded_one_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph, {"slug": "a", "body": "first"})
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "other")
    with pytest.raises(EmbeddingModelMismatch, match=r"'Doc\.about' holds vectors of model 'mock'"):
        graph.embed()
    assert graph.embed(types=["Note"]).model == "other"
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    with pytest.raises(EmbeddingNotConfigured, match="filling vectors needs an embedding provider"):
        graph.embed()


def test_a_dry_run_needs_no_provider_and_writes_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "own", "body": "mine", "about": GIVEN})
    before = {path for path in Path(graph.uri).rglob("*") if path.is_file()}
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    with og.open(graph.uri, read_only=True) as reader:
        done = reader.embed(dry_run=True)
        assert (done.properties[0].found, done.model, done.commits) == (1, None, ())
        with pytest.raises(ReadOnlyGraph):
            reader.embed()
    assert {path for path in Path(graph.uri).rglob("*") if path.is_file()} == before


def test_commits_have_so_many_rows_and_not_more_than_memory_should_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "BYTES_PER_COMMIT", 100)
    sizes = np.array([10, 10, 10, 95, 10, 500, 10], np.int64)
    found = StaleRows(np.arange(7, dtype=np.uint64), sizes)
    assert [part.tolist() for part in run.split_into_commits(found, 2)] == [[0, 1], [2], [3], [4], [5], [6]]
    assert [part.tolist() for part in run.split_into_commits(found, 99)] == [[0, 1, 2], [3], [4], [5], [6]]
