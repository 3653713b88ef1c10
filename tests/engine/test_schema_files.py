from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import (
    IdentifiedSchema,
    find_past_source,
    initial_schema,
    live_places,
    read_identified_schema,
    read_schema,
    render_files,
)
from omnigraph.errors import SchemaContractBroken, StorageFailure
from omnigraph.lang.schema.ir import compile_with_ir, ir_hash
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import SCHEMA, bare_publish, schema_of, tree

IR, STATE, SOURCE = "_schema.ir.json", "__schema_state.json", "_schema.pg"


def rehash(folder: Path) -> None:
    """Make the state agree with a compiled schema that was changed."""
    value = json.loads((folder / IR).read_text())
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"schema_ir_hash": ir_hash(value)}))


def test_the_files_are_bound_as_recorded(graph: OpenGraph, folder: Location) -> None:
    value = json.loads((folder.path / IR).read_text())
    state = json.loads((folder.path / STATE).read_text())
    assert state == {
        "format_version": 1,
        "schema_ir_hash": ir_hash(value),
        "schema_identity_version": 1,
    }
    assert state["schema_ir_hash"].startswith("sha256:")
    assert value["ir_version"] == 1
    assert value == compile_with_ir(SCHEMA)[1]
    assert graph.schema().source == SCHEMA


def test_what_is_written_is_what_is_read(folder: Location) -> None:
    schema = initial_schema(schema_of(7))
    files = render_files(schema)
    root = Root.at(folder)
    for at, text in (
        (root.layout.schema_source, files.source),
        (root.layout.schema_ir, files.ir),
        (root.layout.schema_state, files.state),
        (root.layout.schema_ids, files.ids or ""),
    ):
        root.objects.write_text(at, text)
    assert read_identified_schema(root) == IdentifiedSchema(schema, is_current=True)
    assert read_schema(root).catalog == schema.catalog


def test_reading_the_schema_costs_three_reads(graph: OpenGraph) -> None:
    recorder = Recorder()
    root = Root.at(graph.root.layout.root, recorder)
    for _ in range(2):
        recorder.clear()
        read_schema(root)
        assert recorder.counts() == {"read_text_if_exists": 3}


@pytest.mark.parametrize("name", [SOURCE, IR, STATE])
def test_a_missing_file_is_named(graph: OpenGraph, folder: Location, name: str) -> None:
    (folder.path / name).unlink()
    for act in (graph.schema, lambda: OpenGraph.open(Root.at(folder), read_only=True)):
        with pytest.raises(SchemaContractBroken, match=f"{name}' is missing") as caught:
            act()
        assert caught.value.remedy


BROKEN = {
    "empty": "",
    "no JSON": "{",
    "no object": "[]",
    "a number with too many digits": "1" * 5000,
    "too deep": "[" * 100_000,
    "null": "null",
    "nothing in it": "{}",
    "half a character": '{"x": "\\ud800"}',
}


@pytest.mark.parametrize("name", [IR, STATE])
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_and_nothing_is_written(
    graph: OpenGraph, folder: Location, name: str, text: str
) -> None:
    (folder.path / name).write_text(text)
    before = tree(folder.path)
    for read_only in (True, False):
        with pytest.raises(SchemaContractBroken) as caught:
            OpenGraph.open(Root.at(folder), read_only=read_only)
        assert caught.value.remedy
    assert tree(folder.path) == before


@pytest.mark.parametrize("name", [SOURCE, IR, STATE])
def test_a_file_that_is_no_text_is_refused(graph: OpenGraph, folder: Location, name: str) -> None:
    (folder.path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(StorageFailure, match="UTF-8"):
        graph.schema()


@pytest.mark.parametrize(
    "source",
    [
        SCHEMA + "node More { x: String @key }\n",
        SCHEMA.replace("name: String", "name: String?"),
        "node {",
        "",
    ],
)
def test_a_changed_source_is_refused(graph: OpenGraph, folder: Location, source: str) -> None:
    (folder.path / SOURCE).write_text(source)
    with pytest.raises(SchemaContractBroken, match=r"_schema\.pg"):
        OpenGraph.open(Root.at(folder))


def test_comments_and_spaces_are_free(graph: OpenGraph, folder: Location) -> None:
    (folder.path / SOURCE).write_text("// tidied\n" + SCHEMA.replace(" { ", "  {\n  "))
    assert graph.schema().catalog.fingerprint == initial_schema(SCHEMA).catalog.fingerprint


def test_a_compiled_schema_that_was_changed_is_refused(graph: OpenGraph, folder: Location) -> None:
    value = json.loads((folder.path / IR).read_text())
    value["nodes"][0]["name"] = "Human"
    (folder.path / IR).write_text(json.dumps(value))
    with pytest.raises(SchemaContractBroken, match="compiled schema was changed"):
        graph.schema()
    rehash(folder.path)
    with pytest.raises(SchemaContractBroken, match=r"_schema\.pg was changed"):
        graph.schema()


def test_a_compiled_schema_may_be_reformatted(graph: OpenGraph, folder: Location) -> None:
    value = json.loads((folder.path / IR).read_text())
    (folder.path / IR).write_text(json.dumps(value))
    assert graph.schema().catalog == initial_schema(SCHEMA).catalog


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_of_the_state_is_refused(graph: OpenGraph, folder: Location, version: object) -> None:
    state = json.loads((folder.path / STATE).read_text()) | {"format_version": version}
    (folder.path / STATE).write_text(json.dumps(state))
    with pytest.raises(SchemaContractBroken, match="format"):
        graph.schema()


# --- schemas of the past ---------------------------------------------------------------------------


def test_the_schema_of_a_commit_is_the_nearest_recorded_one(graph: OpenGraph, folder: Location) -> None:
    main = graph.coordinator("main")
    first = bare_publish(main).commit
    second = bare_publish(main).commit
    third = bare_publish(main).commit
    changed = SCHEMA + "node Added { x: String @key }\n"
    graph.root.objects.write_text(graph.root.layout.past_schema(second.id), changed)
    files = render_files(initial_schema(changed))
    for at, text in zip(live_places(graph.root), (files.source, files.ir, files.state), strict=True):
        graph.root.objects.write_text(at, text)
    graph.root.objects.write_text(graph.root.layout.past_schema("01NEVERLANDED"), "node {")
    commits = graph.load("main").state.commits
    assert find_past_source(graph.root, commits, first.id) == SCHEMA
    assert find_past_source(graph.root, commits, second.id) == changed
    assert find_past_source(graph.root, commits, third.id) == changed
    assert "Added" not in graph.catalog_at(graph.snapshot(AtCommit(first.id))).nodes
    assert "Added" in graph.catalog_at(graph.snapshot(AtCommit(third.id))).nodes


def test_without_any_record_the_live_schema_serves(graph: OpenGraph, folder: Location) -> None:
    done = bare_publish(graph.coordinator("main"))
    graph.root.objects.delete_prefix(graph.root.layout.past_schemas)
    assert find_past_source(graph.root, graph.load("main").state.commits, done.commit.id) is None
    snapshot = graph.snapshot(AtCommit(done.commit.id))
    assert graph.catalog_at(snapshot) == graph.schema().catalog


def test_the_past_costs_one_list_and_one_read(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    last = [bare_publish(main).commit for _ in range(10)][-1]
    commits = main.load().state.commits
    recorder = Recorder()
    find_past_source(Root.at(graph.root.layout.root, recorder), commits, last.id)
    assert recorder.counts() == {"list_dir": 1, "read_text": 1}
