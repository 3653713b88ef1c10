"""Commits before a schema change are read with the schema that they had."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph

FIRST = "node P { k: String @key  a: I32?  gone: String? }\nnode Q { k: String @key }\nedge E: P -> P"
ADDED = FIRST.replace("gone:", "more: I32 @default(9)  gone:")
RENAMED = (
    'node Person @rename_from("P") {\n'
    "  k: String @key  amount: I32? @rename_from(a)  more: I32  gone: String?\n}\n"
    "node Q { k: String @key }\nedge E: Person -> Person"
)
DROPPED = "node Person { k: String @key  amount: I32?  more: I32 }\nedge E: Person -> Person"

PEOPLE = "query q() { match { $p: P } return { $p.k, $p.a } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", schema=FIRST)
    made.mutate('query q() { insert P { k: "x", a: 1, gone: "g" } insert Q { k: "q" } }')
    return made


def newest(graph: Graph) -> og.Commit:
    found = graph.snapshot().commit
    assert found is not None
    return found


def test_each_commit_has_its_own_schema_by_id_version_and_time(graph: Graph) -> None:
    moments = [newest(graph)]
    for wanted in (ADDED, RENAMED, DROPPED):
        graph.apply_schema(wanted)
        moments.append(newest(graph))
    rows = [
        ("P", {"id": "x", "k": "x", "a": 1, "gone": "g"}),
        ("P", {"id": "x", "k": "x", "a": 1, "more": 9, "gone": "g"}),
        ("Person", {"id": "x", "k": "x", "amount": 1, "more": 9, "gone": "g"}),
        ("Person", {"id": "x", "k": "x", "amount": 1, "more": 9}),
    ]
    for commit, (name, row) in zip(moments, rows, strict=True):
        at = [
            graph.at(commit=commit.id),
            graph.at(version=commit.version),
            graph.at(time=commit.time),
            graph.at(time=commit.time + timedelta(microseconds=1)) if commit is moments[-1] else None,
        ]
        for snapshot in filter(None, at):
            assert snapshot.rows(name).to_pylist() == [row]
            assert list(snapshot.schema.nodes[name].properties) == [
                column for column in row if column != "id"
            ]
            columns = ", ".join(f"$p.{column}" for column in row if column != "id")
            found = snapshot.query(f"query q() {{ match {{ $p: {name} }} return {{ {columns} }} }}").rows()
            assert found == [{f"p.{column}": value for column, value in row.items() if column != "id"}]


def test_a_query_of_the_past_fits_the_past_only(graph: Graph) -> None:
    before = newest(graph).id
    graph.apply_schema(RENAMED.replace("more: I32 ", "more: I32? "))
    assert graph.query(PEOPLE, commit=before).rows() == [{"p.k": "x", "p.a": 1}]
    with pytest.raises(errors.TypeCheckError, match="P"):
        graph.query(PEOPLE)


def test_what_was_dropped_is_distinguished_from_the_past(graph: Graph) -> None:
    before = newest(graph).id
    graph.apply_schema("node P { k: String @key  a: I32? }\nedge E: P -> P")
    assert "node:Q" not in graph.snapshot().tables
    assert graph.at(commit=before).rows("Q").to_pylist() == [{"id": "q", "k": "q"}]
    assert graph.query("query q() { match { $q: Q } return { $q.k } }", commit=before).rows() == [
        {"q.k": "q"}
    ]


def test_a_diff_across_a_schema_change_tells_what_differs(graph: Graph) -> None:
    before = newest(graph).id
    graph.apply_schema(
        "node P { k: String @key  a: I64?  more: I32 @default(9) }\nnode Q { k: String @key }\nedge E: P -> P"
    )
    (change,) = graph.diff(before, "main")
    assert (change.type_name, change.id, change.op) == ("P", "x", "update")
    assert sorted(change.changed) == ["gone", "more"]
    assert change.before is not None
    assert change.after is not None
    assert (change.before.properties["gone"], change.after.properties["more"]) == ("g", 9)
    assert next(iter(graph.diff("main", before))).after == change.before


def test_a_rewrite_that_changes_no_value_is_no_difference(graph: Graph) -> None:
    before = newest(graph).id
    graph.apply_schema(FIRST.replace("a: I32?", "a: I64?"))
    assert list(graph.diff(before, "main")) == []


def test_the_feed_stops_at_a_schema_change_and_goes_on_behind_it(graph: Graph) -> None:
    feed = graph.changes(since="now")
    graph.apply_schema(ADDED)
    boundary = newest(graph).id
    graph.mutate('query q() { insert P { k: "y", more: 1 } }')
    with pytest.raises(errors.ChangeDiffRefused) as refused:
        list(graph.changes(since=feed.cursor))
    assert (refused.value.reason, refused.value.commit_id) == ("schema_boundary", boundary)
    (behind,) = graph.changes(since=f"after:{boundary}")
    assert [change.id for change in behind.changes] == ["y"]


def test_an_export_of_the_past_has_the_columns_of_the_past(graph: Graph, tmp_path: Path) -> None:
    before = newest(graph).id
    graph.apply_schema(
        DROPPED.replace("node Person", 'node Person @rename_from("P")').replace(
            "amount: I32?  more: I32", "amount: I32? @rename_from(a)"
        )
    )
    graph.export(tmp_path / "old.jsonl", commit=before)
    records = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    assert [record["type"] for record in records] == ["P", "Q"]
    assert records[0]["data"] == {"id": "x", "k": "x", "a": 1, "gone": "g"}


def test_a_branch_made_after_a_change_has_its_schema(graph: Graph) -> None:
    graph.apply_schema(ADDED)
    graph.branches.create("work")
    graph.mutate('query q() { insert P { k: "y", more: 2 } }', branch="work")
    assert graph.query(
        "query q() { match { $p: P } return { $p.more as m } order { m } }", branch="work"
    ).rows() == [
        {"m": 2},
        {"m": 9},
    ]


# --- graphs of releases that did not record their schemas ----------------------------------------------


def forget_schemas(graph: Graph) -> Graph:
    """The graph as a release left it that kept no schema but the accepted one."""
    shutil.rmtree(Path(graph.uri) / "__schemas")
    graph.close()
    return og.open(graph.uri)


def test_the_schema_of_a_graph_without_records_is_recorded_before_it_changes(
    graph: Graph, tmp_path: Path
) -> None:
    before = newest(graph).id
    older = forget_schemas(graph)
    older.mutate('query q() { insert Q { k: "r" } }')
    older.apply_schema(
        DROPPED.replace("node Person", 'node Person @rename_from("P")').replace("I32 }", "I32? }")
    )
    assert older.query(PEOPLE, commit=before).rows() == [{"p.k": "x", "p.a": 1}]
    assert older.export(tmp_path / "old.jsonl", commit=before).rows == 2
    assert [len(list(block.changes)) for block in older.changes(since="beginning", limit=2)] == [2, 1]


def test_a_commit_whose_schema_was_not_recorded_is_reported(graph: Graph, tmp_path: Path) -> None:
    before = newest(graph).id
    graph.apply_schema(ADDED)
    changed = forget_schemas(graph)
    for read in (
        lambda: changed.query(PEOPLE, commit=before),
        lambda: changed.export(tmp_path / "old.jsonl", commit=before),
        lambda: changed.at(commit=before).schema,
    ):
        with pytest.raises(errors.SchemaContractBroken, match=f"schema of snapshot '{before}' is not on rec"):
            read()
    assert changed.at(commit=before).rows("P").num_rows == 1
    assert changed.query(PEOPLE).rows() == [{"p.k": "x", "p.a": 1}]
