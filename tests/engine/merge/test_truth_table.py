"""What a merge comes to, for every pair of operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from omnigraph.errors import MergeConflicts
from omnigraph.graph import Graph
from tests.engine.merge.family import everything, heads, knows, person, put, remove

OUTCOMES = {"U": "already_up_to_date", "F": "fast_forward", "M": "merged"}


class Happened(StrEnum):
    """What a branch did since it diverged."""

    NOOP = "noop"
    ADD_NODE = "addNode"
    REMOVE_NODE = "removeNode"
    ADD_EDGE = "addEdge"
    REMOVE_EDGE = "removeEdge"
    SET_PROP = "setProp"
    NET_ZERO = "netZero"


def happen(graph: Graph, what: Happened, branch: str) -> None:
    age = 10 if branch == "main" else 20
    match what:
        case Happened.NOOP:
            pass
        case Happened.ADD_NODE:
            put(graph, person("new", age=age), branch=branch)
        case Happened.REMOVE_NODE:
            remove(graph, "Person", "cid", branch)
        case Happened.ADD_EDGE:
            put(graph, knows(f"k-{branch}", "ann", "cid"), branch=branch)
        case Happened.REMOVE_EDGE:
            remove(graph, "Knows", "k1", branch)
        case Happened.SET_PROP:
            put(graph, person("cid", age=age, city="here"), branch=branch)
        case Happened.NET_ZERO:
            put(graph, person("cid", age=99), branch=branch)
            put(graph, person("cid", age=1, city="here"), branch=branch)


def table() -> dict[tuple[str, str], str]:
    text = (Path(__file__).parent / "truth_table.txt").read_text(encoding="utf-8")
    columns, *lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {(line[0], column): cell for line in lines for column, cell in zip(columns, line[1:], strict=True)}


def cases() -> Iterator[tuple[Happened, Happened]]:
    return itertools.product(Happened, Happened)


def test_every_pair_has_its_place_in_the_table() -> None:
    assert table().keys() == {(source.value, target.value) for source, target in cases()}


@pytest.mark.parametrize(("source", "target"), list(cases()))
def test_a_merge_comes_to_what_the_table_says(graph: Graph, source: Happened, target: Happened) -> None:
    happen(graph, source, "work")
    happen(graph, target, "main")
    expected, before = table()[source, target], (heads(graph), everything(graph))
    preview = graph.merge("work", dry_run=True)
    assert (heads(graph), everything(graph)) == before

    if expected not in OUTCOMES:
        assert [one.kind.value for one in preview.conflicts] == [expected]
        with pytest.raises(MergeConflicts) as refused:
            graph.merge("work")
        assert refused.value.conflicts == preview.conflicts
        assert (heads(graph), everything(graph)) == before
        return

    assert preview.conflicts == ()
    done = graph.merge("work")
    assert (done.outcome.value, preview.outcome) == (OUTCOMES[expected], done.outcome)
    assert done.changes == preview.changes
    if expected == "U":
        assert heads(graph) == before[0]
    else:
        assert done.commit is not None
        assert (done.commit.parent, done.commit.merged_parent) == (before[0]["main"][0], before[0]["work"][0])
        assert graph.snapshot().commit == done.commit
    assert graph.merge("work").outcome.value == "already_up_to_date"
    if expected == "F":
        assert everything(graph) == everything(graph, "work")


def test_an_edge_added_on_both_sides_is_kept_twice(graph: Graph) -> None:
    for branch in ("main", "work"):
        happen(graph, Happened.ADD_EDGE, branch)
    graph.merge("work")
    assert everything(graph)["edge:Knows"].keys() == {"k1", "k-main", "k-work"}
