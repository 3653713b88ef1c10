"""Rows of the target are found by the row ids of the base where these mean the same rows, else by key."""

from __future__ import annotations

import pytest

from omnigraph.engine.changes import row_pairs
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.merge.merge_inputs import MergeOutcome
from omnigraph.graph import Graph
from omnigraph.storage import upsert as upserting
from omnigraph.storage.upsert import find_keys
from tests.engine.merge.family import PERSON, person, put, put_rows, remove, rows, value

NAMES = [f"p{number:02}" for number in range(40)]


def numbers(graph: Graph, branch: str = "main") -> dict[str, int]:
    """The row ids of people."""
    opened = graph._opened
    found = open_table(opened, opened.snapshot(AtBranch(branch)), PERSON).scan(["id", "_rowid"])
    return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys were looked up, each time."""
    seen: list[int] = []

    def watched(table: object, keys: object, *how: object) -> object:
        seen.append(len(keys))  # type: ignore[arg-type]
        return find_keys(table, keys, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(upserting, "find_keys", watched)
    return seen


@pytest.mark.parametrize("diverged", [False, True], ids=["fast-forward", "both changed"])
def test_keys_are_not_looked_up_where_row_ids_are_known(
    graph: Graph, lookups: list[int], diverged: bool
) -> None:
    put(graph, *(person(name, age=1) for name in NAMES))
    graph.branches.create("side")
    put(graph, person("p03", age=2), person("new", age=2), branch="side")
    if diverged:
        put(graph, person("p05", age=3), person("other", age=3))
    before = numbers(graph)
    lookups.clear()
    merged = graph.merge("side")
    assert merged.outcome is (MergeOutcome.MERGED if diverged else MergeOutcome.FAST_FORWARD)
    assert lookups == []
    assert (value(graph, PERSON, "p03", "age"), value(graph, PERSON, "new", "age")) == (2, 2)
    after = numbers(graph)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"new"}


def test_an_entity_that_the_target_recreated_is_found_by_its_key(graph: Graph, lookups: list[int]) -> None:
    put(graph, person("a", age=1), person("b", age=1))
    graph.branches.create("side")
    put(graph, person("a", age=2), person("b", age=2), branch="side")
    remove(graph, "Person", "a")
    put(graph, person("a", age=1))
    before = numbers(graph)
    lookups.clear()
    graph.merge("side")
    assert lookups == [2]
    assert numbers(graph) == before
    assert [value(graph, PERSON, name, "age") for name in "ab"] == [2, 2]


def test_a_row_id_that_means_another_row_on_the_target_is_not_used(graph: Graph, lookups: list[int]) -> None:
    put(graph, person("a", age=1))
    graph.branches.create("side")
    put(graph, person("theirs", age=1), branch="side")
    put(graph, person("ours", age=1))
    assert numbers(graph, "side")["theirs"] == numbers(graph)["ours"]
    graph.merge("side")
    # The base is the branch as it was taken in, and there this is the row id that `ours` has on main.
    put(graph, person("theirs", age=2), branch="side")
    lookups.clear()
    graph.merge("side")
    assert lookups == [1]
    ages = {name: value(graph, PERSON, name, "age") for name in ("a", "ours", "theirs")}
    assert ages == {"a": 1, "ours": 1, "theirs": 2}


def test_a_decided_entity_replaces_the_row_of_the_target(graph: Graph, lookups: list[int]) -> None:
    put(graph, person("a", age=1), person("b", age=1))
    graph.branches.create("side")
    put(graph, person("a", age=2), person("new", age=2), branch="side")
    put(graph, person("other", age=3), person("new", age=3), person("a", age=3))
    before = numbers(graph)
    lookups.clear()
    graph.merge("side", strategy="theirs")
    assert lookups == []
    assert numbers(graph) == before
    assert [value(graph, PERSON, name, "age") for name in ("a", "new", "other")] == [2, 2, 3]


def test_rows_that_differ_are_found_by_few_columns_and_all_others_are_compared(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pairs, "_SOME", 2)
    monkeypatch.setattr(row_pairs, "_APART", 0)
    monkeypatch.setattr(row_pairs, "_SAMPLED", 4)
    put(graph, *(person(name, age=1, city="x") for name in NAMES))
    graph.branches.create("side")
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch("side")), PERSON).scan()
    put_rows(graph, PERSON, table, "side")
    assert graph.merge("side", dry_run=True).changes == {}
    older, moved = {*NAMES[::4], "p01", "p39"}, {"p02", "p38"}
    changed = [
        person(name, age=2 if name in older else 1, city="y" if name in moved else "x") for name in NAMES
    ]
    put(graph, *changed, branch="side")
    merged = graph.merge("side")
    assert merged.changes[PERSON].updated == len(older | moved)
    assert rows(graph, PERSON) == rows(graph, PERSON, "side")


def test_what_a_branch_deleted_stays_deleted_where_its_rows_moved_together(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "_LARGE", 1)
    put(graph, person("ann", age=5), branch="work")
    remove(graph, "Person", "bob", "work")
    put(graph, person("cid", age=6), branch="work")
    put(graph, person("eve"))
    changes = {change.id: change.op.value for change in graph.diff("main", "work", kinds="node")}
    assert changes == {"ann": "update", "bob": "delete", "cid": "update", "eve": "delete"}
    graph.merge("work")
    assert rows(graph, PERSON).keys() == {"ann", "cid", "eve"}
    assert [value(graph, PERSON, name, "age") for name in ("ann", "cid")] == [5, 6]
