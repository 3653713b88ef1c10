"""What is out of date stays known: on branches, after merges, compactions, cleanups, failures and races."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.embedding import fill as filling
from omnigraph.engine.embedding import provenance
from omnigraph.engine.embedding.fill import EmbedRequest, fill_vectors
from omnigraph.engine.tasks.runner import Answer, Engine, Item, LocalRunner
from omnigraph.engine.upkeep.manifest_upkeep import SETTING
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import EmbeddingFailed
from omnigraph.graph import Graph
from tests.embed.provider_server import ProviderServer, Reply, failing, openai_answer
from tests.engine.embedding.conftest import SCHEMA
from tests.engine.embedding.docs import change, due, put, vector_of, vectors


def test_a_branch_is_filled_by_itself_and_a_merge_carries_its_vectors(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "b", "body": "second"})
    graph.embed()
    graph.branches.create("work")
    change(graph, 'update Doc set { body: "changed" } where slug = "a"', "work")
    assert graph.embed("work").embedded == 1
    assert vectors(graph)["a"] == vector_of("first")
    graph.merge("work")
    assert due(graph) == 0
    assert vectors(graph) == {"a": vector_of("changed"), "b": vector_of("second")}


def test_a_merge_that_brings_a_vector_of_an_older_text_is_noticed(graph: Graph) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "b", "body": "second"})
    graph.embed()
    graph.branches.create("work")
    change(graph, 'update Doc set { body: "changed" } where slug = "a"', "work")
    graph.embed("work")
    change(graph, 'update Doc set { body: "changed again" } where slug = "a"', "work")
    change(graph, 'update Doc set { level: 1 } where slug = "b"')
    graph.merge("work")
    assert vectors(graph)["a"] == vector_of("changed")
    assert graph.embed().embedded == 1
    assert vectors(graph)["a"] == vector_of("changed again")


def test_compaction_and_cleanup_forget_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "0")
    for number in range(4):
        put(graph, {"slug": f"d{number}", "body": f"text {number}"})
    graph.embed(batch=2)
    change(graph, 'update Doc set { body: "changed" } where slug = "d1"')
    graph.optimize()
    graph.cleanup(keep=1)
    assert due(graph) == 1
    assert graph.embed().embedded == 1
    assert vectors(graph)["d1"] == vector_of("changed")


@pytest.mark.parametrize("with_notes", [False, True])
def test_an_export_loaded_elsewhere_is_embedded_as_far_as_notes_tell(
    graph: Graph, tmp_path: Path, *, with_notes: bool
) -> None:
    put(graph, *({"slug": f"d{number}", "body": f"text {number}"} for number in range(3)))
    graph.embed()
    change(graph, 'update Doc set { body: "changed" } where slug = "d1"')
    graph.export(tmp_path / "all.ndjson")
    with og.init(tmp_path / "other.omni", schema=SCHEMA) as other:
        if with_notes:
            shutil.copytree(f"{graph.uri}/__embedded", f"{other.uri}/__embedded")
        other.load(tmp_path / "all.ndjson", mode="append")
        assert vectors(other) == vectors(graph)
        # A vector without a note is taken for the one of its text, and only `everything` asks for all again.
        assert (due(other), due(other, everything=True)) == ((1, 1) if with_notes else (0, 3))
        other.embed()
        change(other, 'update Doc set { body: "later" } where slug = "d2"')
        assert due(other) == 1


@pytest.mark.parametrize(("batch", "commits"), [(2, 2), (5, 1)])
def test_what_was_made_before_a_failure_is_not_asked_for_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, batch: int, commits: int
) -> None:
    monkeypatch.setattr(filling, "_ROWS_PER_TASK", 2)
    put(graph, *({"slug": f"d{number}", "body": f"text {number}"} for number in range(5)))
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "http")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "mock")
    with ProviderServer() as server:
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", server.url)
        server.replies.extend(_one_answer_then_none())
        with pytest.raises(EmbeddingFailed, match="out of credit"):
            graph.embed(batch=batch)
        landed = {slug for slug, vector in vectors(graph).items() if vector is not None}
        assert len(landed) == 2
        asked = len(server.requests)
        done = graph.embed(batch=batch)
        again = [text for request in server.requests[asked:] for text in request.body["input"]]
    assert (done.embedded, len(done.commits)) == (3, commits)
    assert sorted(again) == sorted(f"text {slug[1:]}" for slug in vectors(graph).keys() - landed)
    assert None not in vectors(graph).values()


def _one_answer_then_none() -> Iterator[Reply]:
    yield Reply(body=openai_answer([[1.0] * 8, [2.0] + [1.0] * 7]))
    yield failing(402, "out of credit")


class Meddling(LocalRunner):
    """Tasks in this process, and somebody who writes when the vectors are made and did not land yet."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        self._meddle = meddle

    def each(self, stage: str, items: Sequence[Item], task: Callable[[Item], Answer]) -> Iterator[Answer]:
        yield from super().each(stage, items, task)
        if stage == "embed":
            self._meddle()


def fill_beside(graph: Graph, meddle: Callable[[], None]) -> int:
    """A run beside a writer; how many rows it left to the next one."""
    engine = Engine(Meddling(meddle), "a test")
    settings = EmbedSettings.choose("mock")
    done = fill_vectors(graph._opened, Author("main"), EmbedRequest(("Doc",)), settings, lambda _: engine)
    return done.properties[0].changed_meanwhile


def test_who_writes_at_the_same_time_is_never_overwritten(graph: Graph) -> None:
    put(graph, *({"slug": name, "body": f"text {name}"} for name in ("text", "level", "vector", "gone")))

    def meddle() -> None:
        change(graph, 'update Doc set { body: "other" } where slug = "text"')
        change(graph, 'update Doc set { level: 7 } where slug = "level"')
        change(graph, 'update Doc set { about: [1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0] } where slug = "vector"')
        change(graph, 'delete Doc where slug = "gone"')

    assert fill_beside(graph, meddle) == 3
    assert vectors(graph) == {"text": None, "level": vector_of("text level"), "vector": [1.0] * 8}
    levels = graph.snapshot().rows("Doc", columns=["slug", "level"]).to_pylist()
    assert {"slug": "level", "level": 7} in levels
    assert graph.embed().embedded == 1
    assert vectors(graph)["text"] == vector_of("other")


def test_rows_that_were_overwritten_at_the_same_time_are_left_alone(graph: Graph, tmp_path: Path) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "b", "body": "second"})
    file = tmp_path / "changed.jsonl"
    file.write_text('{"type":"Doc","data":{"slug":"c","body":"first"}}\n{"type":"Doc","data":{"slug":"a"}}')
    assert fill_beside(graph, lambda: _overwritten(graph, file)) == 2
    assert vectors(graph) == {"c": None, "a": None}


def _overwritten(graph: Graph, file: Path) -> None:
    graph.load(file, mode="overwrite", engine="local")


def test_many_files_of_notes_become_one_that_says_the_same(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_MANY_FILES", 2)
    put(graph, *({"slug": f"d{number}", "body": f"text {number}"} for number in range(4)))
    graph.embed(batch=1)
    notes = Path(graph.uri) / provenance.notes_path("Doc", "about")
    assert len(list(notes.iterdir())) == 4
    change(graph, 'update Doc set { body: "changed" } where slug = "d1"')
    assert due(graph) == 1
    assert len(list(notes.iterdir())) == 4
    assert graph.embed().embedded == 1
    assert len(list(notes.iterdir())) == 2
    assert due(graph) == 0


@pytest.mark.parametrize(
    ("wanted", "name", "column"),
    [
        (SCHEMA.replace("node Doc {", 'node Paper @rename_from("Doc") {'), "Paper", "about"),
        (SCHEMA.replace("about: Vector(8)?", 'topic: Vector(8)? @rename_from("about")'), "Doc", "topic"),
    ],
)
def test_a_new_name_for_a_type_or_a_property_forgets_nothing(
    graph: Graph, wanted: str, name: str, column: str
) -> None:
    put(graph, {"slug": "a", "body": "first"}, {"slug": "b", "body": "second"})
    graph.embed()
    change(graph, 'update Doc set { body: "changed" } where slug = "a"')
    graph.apply_schema(wanted)
    assert due(graph, everything=True) == due(graph) == 1
    assert graph.embed().embedded == 1
    found = vectors(graph, type_name=name, column=column)
    assert found == {"a": vector_of("changed"), "b": vector_of("second")}
