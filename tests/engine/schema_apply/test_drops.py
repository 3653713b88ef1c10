"""What a drop leaves readable, and what it takes away when data loss is allowed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.upkeep import after_write as tidy
from omnigraph.engine.upkeep import index_catch_up as reach
from omnigraph.graph import Graph
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.staging import read_transaction
from tests.engine.graphs import run

SCHEMA = "node P { k: String @key  secret: String? }\nnode Q { k: String @key }\nnode R { k: String @key }"
WITHOUT = "node P { k: String @key }\nnode R { k: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    made.mutate('query q() { insert P { k: "x", secret: "s3cr3t" } insert Q { k: "q" } insert R { k: "r" } }')
    return made


def files_with(graph: Graph, text: bytes) -> list[str]:
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
    assert files_with(graph, b"s3cr3t") != []
    done = graph.apply_schema(WITHOUT, allow_data_loss=True)
    assert [step.to_json().get("mode") for step in done.steps] == ["hard", "hard"]
    assert files_with(graph, b"s3cr3t") == []
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
    assert files_with(graph, b"s3cr3t") == []
    assert graph.snapshot().rows("Person").to_pylist() == [{"id": "x", "k": "x"}]


def test_a_rename_alone_loses_nothing_even_where_loss_is_allowed(graph: Graph) -> None:
    before = graph.snapshot().id
    graph.apply_schema(SCHEMA.replace("node Q {", 'node Quiz @rename_from("Q") {'), allow_data_loss=True)
    assert graph.at(commit=before).rows("Q").to_pylist() == [{"id": "q", "k": "q"}]


def test_what_cannot_be_removed_does_not_fail_the_change(
    graph: Graph, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def refuse(op: str, uri: str, /) -> None:
        if op == "collect":
            raise errors.StorageFailure("the store refuses", kind="Transient", uri=uri)

    refused = OpenGraph.open(Root.at(Location.parse(graph.uri), refuse))
    assert apply_schema(refused, SchemaRequest(Source(WITHOUT), allow_data_loss=True)).applied
    assert "is still pending: the store refuses" in caplog.text
    assert graph.schema_source == WITHOUT
    (owed,) = examine(graph._opened).removals
    assert owed.keys == ("node:P", "node:Q")
    assert files_with(graph, b"s3cr3t") != []
    graph.copy_to(tmp_path / "copy.omni")
    with og.open(tmp_path / "copy.omni") as copy:
        for one in (graph, copy):
            one.mutate('query q() { insert R { k: "s" } }')
            assert files_with(one, b"s3cr3t") == []
            assert examine(one._opened).ok


DYING = """
import sys
import omnigraph as og
og.open(sys.argv[1]).apply_schema(sys.argv[2], allow_data_loss=True)
"""
AFTER_CONFIRMING = [
    failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_SIDECAR_DELETE,
    failpoints.SCHEMA_APPLY_BEFORE_REMOVAL,
]
BEFORE_CONFIRMING = [
    failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE,
    failpoints.RECOVERY_SIDECAR_CONFIRM,
]


def kill_hard_drop(graph: Graph, point: str) -> None:
    died = run(DYING, graph.uri, WITHOUT, OMNIGRAPH_FAILPOINTS=f"{point}=exit")
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr


def write_next(graph: Graph) -> None:
    graph.mutate('query q() { insert R { k: "s" } }')


def open_again(graph: Graph) -> None:
    og.open(graph.uri).close()


def apply_again(graph: Graph) -> None:
    assert not graph.apply_schema(WITHOUT, allow_data_loss=True).applied


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "go_on"),
    [
        *((point, write_next) for point in AFTER_CONFIRMING),
        *((point, open_again) for point in AFTER_CONFIRMING[-2:]),
        *((point, apply_again) for point in AFTER_CONFIRMING[-2:]),
    ],
)
def test_a_killed_hard_drop_still_removes_the_data(
    graph: Graph, point: str, go_on: Callable[[Graph], None]
) -> None:
    before = graph.snapshot()
    kill_hard_drop(graph, point)
    found = examine(graph._opened)
    assert not found.ok
    assert [one.keys for one in found.removals] == [("node:P", "node:Q")]
    assert files_with(graph, b"s3cr3t") != []
    go_on(graph)
    assert files_with(graph, b"s3cr3t") == []
    assert not (Path(graph.uri) / before.tables["node:Q"].path).exists()
    assert examine(graph._opened).removals == ()
    with og.open(graph.uri) as later:
        assert later.schema_source == WITHOUT
        assert later.at(commit=before.id).rows("R").to_pylist() == [{"id": "r", "k": "r"}]
        assert examine(later._opened).ok


@pytest.mark.crash
@pytest.mark.parametrize("point", BEFORE_CONFIRMING)
def test_a_killed_hard_drop_that_is_undone_removes_nothing(graph: Graph, point: str) -> None:
    before = graph.snapshot().rows("P").to_pylist()
    kill_hard_drop(graph, point)
    write_next(graph)
    assert graph.schema_source == SCHEMA
    assert graph.snapshot().rows("P").to_pylist() == before
    with og.open(graph.uri) as later:
        assert examine(later._opened).ok


def test_a_hard_drop_takes_what_a_deleted_branch_left_for_merges(graph: Graph) -> None:
    left = Path(graph.uri) / "__bases" / graph.snapshot().id / "rows"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"s3cr3t")
    graph.apply_schema(WITHOUT, allow_data_loss=True)
    assert files_with(graph, b"s3cr3t") == []


def test_a_late_removal_takes_nothing_that_was_written_since(graph: Graph) -> None:
    """The intent outlives other writes as long as the store refuses to delete."""
    refusing = [True]

    def observe(op: str, uri: str, /) -> None:
        if op == "collect" and refusing:
            raise errors.StorageFailure("the store refuses", kind="Transient", uri=uri)

    old = graph.snapshot().id
    opened = OpenGraph.open(Root.at(Location.parse(graph.uri), observe))
    apply_schema(opened, SchemaRequest(Source(WITHOUT), allow_data_loss=True))
    changed = Graph(opened)
    commits = []
    for key in "yz":
        changed.mutate(f'query q() {{ insert P {{ k: "{key}" }} }}')
        commits.append(changed.snapshot().id)
    changed.branches.create("b")
    changed.mutate('query q() { delete P where k = "y" }', branch="b")
    assert [one.keys for one in examine(opened).removals] == [("node:P", "node:Q")]
    assert files_with(graph, b"s3cr3t") != []
    refusing.clear()
    changed.mutate('query q() { insert R { k: "s" } }')
    assert files_with(graph, b"s3cr3t") == []
    assert examine(opened).removals == ()
    for commit, count in zip(commits, (2, 3), strict=True):
        assert changed.at(commit=commit).rows("P").num_rows == count
    assert changed.snapshot("b").rows("P").num_rows == 2
    with pytest.raises(errors.HistoricalVersionReclaimed):
        changed.at(commit=old).rows("P")


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
    """Upkeep adds versions to the rewritten table, and does not block writers of the old one."""
    graph = og.init(s3_root.uri, schema=SCHEMA)
    graph.mutate('query q() { insert P { k: "x", secret: "s3cr3t" } }')
    monkeypatch.setattr(tidy, "MIN_ROWS_TO_CHECK", 1)
    monkeypatch.setattr(reach, "EXTEND_ROWS", 1)
    graph.apply_schema(WITHOUT, allow_data_loss=True)
    opened = graph._opened
    entry = opened.snapshot(AtBranch()).entries["node:P"]
    place = opened.root.layout.table(entry.path)
    table = opened.root.tables.open(place, entry.version)
    assert read_transaction(table, entry.version).is_maintenance
    assert table.versions() == (entry.version - 1, entry.version)
    assert not read_transaction(table, entry.version - 1).is_maintenance
    assert opened.root.tables.open(place, entry.version - 1).schema.names == ["id", "k"]
