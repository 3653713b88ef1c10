"""What a drop leaves readable, and what it takes away when data loss is allowed."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.engine import reach, tidy
from omnigraph.engine.opened import AtBranch, OpenGraph
from omnigraph.engine.root import Root
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.graph import Graph
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.transactions import authorship

SCHEMA = "node P { k: String @key  secret: String? }\nnode Q { k: String @key }\nnode R { k: String @key }"
WITHOUT = "node P { k: String @key }\nnode R { k: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    made.mutate('query q() { insert P { k: "x", secret: "s3cr3t" } insert Q { k: "q" } insert R { k: "r" } }')
    return made


def stored(graph: Graph, text: bytes) -> list[str]:
    """The files below a graph that hold a text."""
    return [str(at) for at in Path(graph.uri).rglob("*") if at.is_file() and text in at.read_bytes()]


def test_a_soft_drop_keeps_the_past(graph: Graph) -> None:
    before = graph.snapshot().id
    graph.apply_schema(WITHOUT)
    assert graph.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x"}]
    past = graph.at(commit=before)
    assert past.rows("P").to_pylist() == [{"id": "x", "k": "x", "secret": "s3cr3t"}]
    assert past.rows("Q").to_pylist() == [{"id": "q", "k": "q"}]


def test_a_hard_drop_takes_the_past_of_what_is_dropped_and_no_other(graph: Graph) -> None:
    before = graph.snapshot()
    assert stored(graph, b"s3cr3t") != []
    done = graph.apply_schema(WITHOUT, allow_data_loss=True)
    assert [step.to_json().get("mode") for step in done.steps] == ["hard", "hard"]
    assert stored(graph, b"s3cr3t") == []
    assert not (Path(graph.uri) / before.tables["node:Q"].path).exists()
    for name in ("P", "Q"):
        with pytest.raises(errors.HistoricalVersionReclaimed):
            graph.at(commit=before.id).rows(name)
    assert graph.at(commit=before.id).rows("R").to_pylist() == [{"id": "r", "k": "r"}]
    assert graph.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x"}]
    graph.mutate('query q() { insert P { k: "y" } }')
    with og.open(graph.uri) as again:
        assert again.snapshot().rows("P").num_rows == 2


def test_a_hard_drop_in_a_renamed_type_takes_the_old_table(graph: Graph) -> None:
    old = Path(graph.uri) / graph.snapshot().tables["node:P"].path
    wanted = SCHEMA.replace("node P {", 'node Person @rename_from("P") {').replace("  secret: String?", "")
    graph.apply_schema(wanted, allow_data_loss=True)
    assert not old.exists()
    assert stored(graph, b"s3cr3t") == []
    assert graph.snapshot().rows("Person").to_pylist() == [{"id": "x", "k": "x"}]


def test_a_rename_alone_loses_nothing_even_where_loss_is_allowed(graph: Graph) -> None:
    before = graph.snapshot().id
    graph.apply_schema(SCHEMA.replace("node Q {", 'node Quiz @rename_from("Q") {'), allow_data_loss=True)
    assert graph.at(commit=before).rows("Q").to_pylist() == [{"id": "q", "k": "q"}]


def test_what_cannot_be_removed_does_not_fail_the_change(
    graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(op: str, uri: str, /) -> None:
        if op == "collect":
            raise errors.StorageFailure("the store refuses", kind="Transient", uri=uri)

    refused = OpenGraph.open(Root.at(Location.parse(graph.uri), refuse))
    assert apply_schema(refused, SchemaRequest(Source(WITHOUT), allow_data_loss=True)).applied
    assert "older versions of 'node:P' are left to cleanup: the store refuses" in caplog.text
    assert graph.schema_source == WITHOUT


def test_the_name_of_a_dropped_type_is_not_used_again(graph: Graph) -> None:
    graph.apply_schema(WITHOUT)
    wanted = f"{WITHOUT}\nnode Q {{ other: I32? }}"
    step = graph.plan_schema(wanted).steps[-1]
    assert (step.kind, step.to_json()["entity"]) == ("unsupported_change", "node:Q")
    with pytest.raises(errors.UnsupportedSchemaChange) as refused:
        graph.apply_schema(wanted)
    assert refused.value.message == (
        "reusing the name of node type 'Q', which the graph had before, is not supported in schema migration "
        "v1; choose another name"
    )
    graph.apply_schema(f"{WITHOUT}\nedge Q: P -> P")


def test_the_old_name_of_a_renamed_type_is_not_used_again(graph: Graph) -> None:
    graph.apply_schema(SCHEMA.replace("node Q {", 'node Quiz @rename_from("Q") {'))
    with pytest.raises(errors.UnsupportedSchemaChange, match="reusing the name of node type 'Q'"):
        graph.apply_schema(SCHEMA.replace("node Q {", 'node Q @rename_from("Quiz") {'))
    assert graph.snapshot().rows("Quiz").num_rows == 1


def test_files_of_a_change_that_died_are_no_obstacle(graph: Graph, tmp_path: Path) -> None:
    """A table that no manifest knows is residue, whatever is in it."""
    with og.init(tmp_path / "other", schema="node New { a: I32? }") as other:
        path = other.snapshot().tables["node:New"].path
    shutil.copytree(tmp_path / "other" / path, Path(graph.uri) / path)
    graph.apply_schema(f"{SCHEMA}\nnode New {{ b: String? }}")
    assert lance.dataset(str(Path(graph.uri) / path)).schema.names == ["id", "b"]


@pytest.mark.s3
def test_in_a_bucket_a_hard_drop_leaves_what_a_late_writer_has_to_run_into(
    s3_root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep moves the table on after it was written anew, and lets whoever writes on the old one pass."""
    graph = og.init(s3_root.uri, schema=SCHEMA)
    graph.mutate('query q() { insert P { k: "x", secret: "s3cr3t" } }')
    monkeypatch.setattr(tidy, "EXTEND_ROWS", 1)
    monkeypatch.setattr(reach, "ID_INDEX_ROWS", 1)
    graph.apply_schema(WITHOUT, allow_data_loss=True)
    opened = graph._opened
    entry = opened.snapshot(AtBranch()).entries["node:P"]
    place = opened.root.layout.table(entry.path)
    table = opened.root.tables.open(place, entry.version)
    assert authorship(table, entry.version).is_maintenance
    assert table.versions() == (entry.version - 1, entry.version)
    assert not authorship(table, entry.version - 1).is_maintenance
    assert opened.root.tables.open(place, entry.version - 1).schema.names == ["id", "k"]
