"""Branches can be merged after a cleanup: where a merge starts is never removed."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = "node Person { name: String @key  age: I32? }\n"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    """Two branches that both changed a type, and everything in between cleaned up at once."""
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    made = og.init(tmp_path / "g", schema=SCHEMA)
    add(made, "ada", "main")
    made.branches.create("work")
    return made


def add(graph: og.Graph, name: str, branch: str) -> None:
    graph.mutate("query q($n: String) { insert Person { name: $n } }", {"n": name}, branch=branch)


def people(graph: og.Graph, branch: str) -> set[str]:
    return set(graph.snapshot(branch).rows("Person").column("name").to_pylist())


def clean(graph: og.Graph) -> None:
    graph.optimize()
    done = graph.cleanup(keep=1)
    assert done.ok
    assert done.versions_removed > 0
    graph.refresh()


def test_a_branch_is_merged_again_and_again_with_cleanups_in_between(graph: og.Graph) -> None:
    for number in range(3):
        add(graph, f"m{number}", "main")
        add(graph, f"w{number}", "work")
        add(graph, f"v{number}", "work")
        clean(graph)
        assert graph.merge("work", "main").outcome.value == "merged"
        add(graph, f"x{number}", "main")
        clean(graph)
    expected = {"ada", *(f"{kind}{number}" for kind in "mwvx" for number in range(3))}
    assert people(graph, "main") == expected


def test_branches_take_from_each_other_with_cleanups_in_between(graph: og.Graph) -> None:
    graph.branches.create("inner", from_="work")
    for number in range(2):
        for branch in ("main", "work", "inner"):
            add(graph, f"{branch}{number}", branch)
        clean(graph)
        graph.merge("inner", "work")
        clean(graph)
        graph.merge("work", "main")
        clean(graph)
        graph.merge("main", "work")
    both = {"ada", *(f"{branch}{number}" for branch in ("main", "work", "inner") for number in range(2))}
    assert people(graph, "main") == people(graph, "work") == both


def test_a_delete_on_one_side_is_still_a_delete_after_a_cleanup(graph: og.Graph) -> None:
    add(graph, "bo", "work")
    graph.mutate('query q() { delete Person where name = "ada" }', branch="work")
    add(graph, "cy", "main")
    clean(graph)
    graph.merge("work", "main")
    assert people(graph, "main") == {"bo", "cy"}


def test_two_branches_that_took_from_each_other_are_merged_again_after_a_cleanup(graph: og.Graph) -> None:
    """Where they would start is on one of them: main knows nothing of it."""
    graph.branches.create("other")
    add(graph, "w0", "work")
    add(graph, "o0", "other")
    graph.merge("work", into="other")
    for name in ("w1", "w2"):
        add(graph, name, "work")
    add(graph, "o1", "other")
    clean(graph)
    assert graph.merge("work", into="other").outcome.value == "merged"
    assert people(graph, "other") == {"ada", "w0", "w1", "w2", "o0", "o1"}


def test_branches_that_took_in_a_third_one_are_merged_after_a_cleanup(graph: og.Graph) -> None:
    """Only the third one tells what they have in common."""
    for name in ("left", "right"):
        graph.branches.create(name)
        add(graph, name, name)
    graph.mutate('query q() { update Person set { age: 1 } where name = "ada" }', branch="work")
    graph.merge("work", into="left")
    graph.merge("work", into="right")
    graph.mutate('query q() { update Person set { age: 2 } where name = "ada" }', branch="left")
    for name in ("w1", "w2"):
        add(graph, name, "work")
        clean(graph)
    assert graph.merge("left", into="right").outcome.value == "merged"
    assert people(graph, "right") == {"ada", "left", "right"}
    ages = graph.snapshot("right").rows("Person", columns=["name", "age"]).to_pylist()
    assert {"name": "ada", "age": 2} in ages
