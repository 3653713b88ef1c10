"""Branches can be merged after a cleanup: where a merge starts is never removed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from ulid import ULID

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.graph.merge_pins import list_pinned_commits

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
    """Only the third one has their common commit."""
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


# --- a cleanup beside merges ---------------------------------------------------------------------


def require_merges(path: Path, *branches: str) -> None:
    """Every branch can be merged into every other one, through handles of its own."""
    graph = og.open(path)
    for source in branches:
        add(graph, f"last of {source}", source)
    for source in branches:
        for target in branches:
            if source != target:
                graph.merge(source, into=target)
    assert len({frozenset(people(graph, branch)) for branch in branches}) == 1


def test_what_a_merge_under_way_takes_in_stays_when_its_source_moves_on(
    graph: og.Graph, tmp_path: Path
) -> None:
    for branch in ("main", "work"):
        add(graph, f"first of {branch}", branch)
    other = og.open(tmp_path / "g")

    def overtake() -> None:
        for number in range(2):
            add(other, f"w{number}", "work")
        assert other.cleanup(keep=1).ok

    with failpoints.arm(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, failpoints.once(overtake)):
        graph.merge("work", into="main")
    assert "w0" not in people(graph, "main")
    assert other.cleanup(keep=1).ok
    require_merges(tmp_path / "g", "main", "work")


def test_the_base_of_a_merge_that_comes_after_the_one_under_way_stays(
    graph: og.Graph, tmp_path: Path
) -> None:
    """What the merge adds to `main` diverged from `other` at a commit that no two heads start at any more."""
    graph.branches.create("other")
    for number in range(2):
        for branch in ("main", "work", "other"):
            add(graph, f"{branch}{number}", branch)
        graph.merge("other", into="work")
        add(graph, f"more{number}", "other")
    second = og.open(tmp_path / "g")

    def overtake() -> None:
        add(second, "w", "work")
        second.merge("other", into="work")
        add(second, "o", "other")
        second.merge("other", into="work")
        add(second, "x", "other")
        assert second.cleanup(keep=1).ok

    with failpoints.arm(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, failpoints.once(overtake)):
        graph.merge("work", into="main")
    require_merges(tmp_path / "g", "main", "work", "other")


@pytest.mark.parametrize("moment", [2, 4, 6])
def test_a_merge_while_cleanup_reads_the_branches_keeps_its_base(
    graph: og.Graph, tmp_path: Path, moment: int
) -> None:
    """The target is read before the merge, and the source after it moved on, in any of three looks."""
    for branch in ("main", "work"):
        add(graph, f"first of {branch}", branch)
    other, reads = og.open(tmp_path / "g"), Counter[str]()

    def meanwhile() -> None:
        reads["all"] += 1
        if reads["all"] == moment:
            other.merge("work", into="main")
            add(other, "w0", "work")
            add(other, "w1", "work")

    with failpoints.arm(failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT, meanwhile):
        assert graph.cleanup(keep=1).ok
    assert reads["all"] >= moment
    require_merges(tmp_path / "g", "main", "work")


def test_a_merge_leaves_no_pin_behind_and_that_of_a_dead_process_expires(graph: og.Graph) -> None:
    opened = graph._opened
    for branch in ("main", "work"):
        add(graph, branch, branch)
    graph.merge("work", into="main")
    assert list_pinned_commits(opened) == frozenset()
    folder = opened.root.layout.staging / "merging"
    week = 8 * 86_400
    for begun in (time.time(), time.time() - week):
        opened.root.objects.write_text(
            folder / f"01HF0000000000000000000000-{ULID.from_timestamp(begun)}", ""
        )
    graph.cleanup(keep=1)
    assert list_pinned_commits(opened) == {"01HF0000000000000000000000"}
    assert len(opened.root.objects.list_dir(folder)) == 1
