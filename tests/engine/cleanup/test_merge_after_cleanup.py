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
