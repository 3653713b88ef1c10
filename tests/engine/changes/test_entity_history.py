"""The commits that changed one entity."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.changes.entity_history import HistoryRequest, read_entity_history
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import BadRequest, BranchNotFound, InvalidValue
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
ADD = "query q($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
SET = "query q($n: String, $a: I32?) { update Person set { age: $a } where name = $n }"
DROP = "query q($n: String) { delete Person where name = $n }"
TEAM = "query q($n: String) { insert Team { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", schema=SCHEMA)


def ops(found: og.EntityHistory) -> list[str]:
    return [one.change.op.value for one in found]


def test_commits_that_changed_an_entity_are_listed_newest_first(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "ada", "a": 1}, actor="ann", message="Add Ada")
    graph.mutate(ADD, {"n": "bo"})
    graph.mutate(TEAM, {"n": "core"})
    graph.mutate(SET, {"n": "ada", "a": 2}, message="Correct her age")
    graph.optimize()
    graph.mutate(DROP, {"n": "ada"})
    graph.mutate(ADD, {"n": "ada", "a": None})
    found = graph.history("Person", "ada")
    assert ops(found) == ["insert", "delete", "update", "insert"]
    assert found[2].properties == (og.PropertyChange("age", 1, 2),)
    assert found[3].properties == (og.PropertyChange("name", None, "ada"), og.PropertyChange("age", None, 1))
    assert found[0].properties == (og.PropertyChange("name", None, "ada"),)
    assert (found[3].commit.actor, found[3].commit.message) == ("ann", "Add Ada")
    assert (found[2].commit.operation, found[2].commit.message) == ("mutate", "Correct her age")
    assert [one.commit for one in found] == [
        commit for commit in graph.commits.list() if commit.id in {one.commit.id for one in found}
    ]
    assert not found.reclaimed
    assert graph.history("Person", "ada", limit=2).changes == found.changes[:2]
    assert graph.history("Person", "ada", limit=0).changes == ()
    assert graph.history("Person", "missing").changes == ()


def test_every_entry_says_what_the_diff_of_its_commit_says(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "ada", "a": 1})
    graph.mutate(ADD, {"n": "bo"})
    with graph.write() as tx:
        edge = tx.insert_edge("Knows", "ada", "bo", since=1)
    graph.mutate(SET, {"n": "ada", "a": 2})
    graph.mutate(DROP, {"n": "bo"})
    for type_name, id in (("Person", "ada"), ("Person", "bo"), ("edge:Knows", edge)):
        found = graph.history(type_name, id)
        assert ops(found)[-1] == "insert"
        for one in found:
            assert one.change in list(graph.commits.changes(one.commit.id))
    assert ops(graph.history("Knows", edge)) == ["delete", "insert"]
    assert graph.history("Knows", edge)[1].properties[:2] == (
        og.PropertyChange("src", None, "ada"),
        og.PropertyChange("dst", None, "bo"),
    )


def test_a_branch_shows_what_it_inherited_and_a_merge_is_one_commit(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "ada", "a": 1})
    graph.branches.create("work")
    graph.mutate(SET, {"n": "ada", "a": 2}, branch="work")
    graph.mutate(SET, {"n": "ada", "a": 3}, branch="work")
    assert ops(graph.history("Person", "ada")) == ["insert"]
    assert ops(graph.history("Person", "ada", branch="work")) == ["update", "update", "insert"]
    graph.mutate(ADD, {"n": "bo"})
    graph.merge("work")
    merged = graph.history("Person", "ada")
    assert [one.commit.operation for one in merged] == ["merge", "mutate"]
    assert merged[0].properties == (og.PropertyChange("age", 1, 3),)


def test_a_new_optional_property_changes_no_entity_and_a_renamed_one_does(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "ada", "a": 1})
    graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
    assert ops(graph.history("Person", "ada")) == ["insert"]
    graph.apply_schema(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  nick: String?'))
    newest, _ = graph.history("Person", "ada")
    assert newest.commit.operation == "schema_apply"
    assert set(newest.properties) == {og.PropertyChange("age", 1, None), og.PropertyChange("years", None, 1)}


def test_a_history_ends_where_a_cleanup_removed_versions(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    for age in range(4):
        graph.mutate(SET if age else ADD, {"n": "ada", "a": age})
    graph.cleanup(keep=2, older_than=timedelta(0))
    found = graph.history("Person", "ada")
    assert found.reclaimed
    assert found[0].properties == (og.PropertyChange("age", 2, 3),)
    assert len(found) < 4


def test_what_is_no_type_no_branch_and_no_limit_is_refused(graph: og.Graph) -> None:
    with pytest.raises(BadRequest, match="there is no type 'Persons'"):
        graph.history("Persons", "ada")
    with pytest.raises(BranchNotFound):
        graph.history("Person", "ada", branch="missing")
    with pytest.raises(InvalidValue, match="limit must not be negative"):
        graph.history("Person", "ada", limit=-1)


def count_calls(uri: str) -> int:
    recorder = Recorder()
    opened = OpenGraph.open(Root.at(Location.parse(uri), recorder), read_only=True)
    opened.load("main")
    before = len(recorder.calls)
    read_entity_history(opened, HistoryRequest("main", "Person", "ada"))
    return len(recorder.calls) - before


def test_commits_of_other_types_cost_nothing(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "ada", "a": 1})
    graph.mutate(TEAM, {"n": "core"})
    few = count_calls(graph.uri)
    for number in range(12):
        graph.mutate(TEAM, {"n": f"team {number}"})
    assert count_calls(graph.uri) == few
    for number in range(12):
        graph.mutate(ADD, {"n": f"person {number}"})
    assert count_calls(graph.uri) > few
