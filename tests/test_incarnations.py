"""A branch, or a graph, that is recreated has nothing in common with its earlier incarnation.

Versions have the same places and the same numbers again. Rows stand elsewhere in them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from tests import python_process

SCHEMA = "node P { k: String @key  n: I32 }"
KEYS = [f"k{number}" for number in range(30)]


def put(graph: og.Graph, branch: str, keys: Iterable[str], n: int) -> None:
    with graph.write(branch) as tx:
        for key in keys:
            tx.insert("P", k=key, n=n)


def drop(graph: og.Graph, branch: str, keys: Iterable[str]) -> None:
    with graph.write(branch) as tx:
        for key in keys:
            tx.delete("P", ("k", "=", key))


def stored_keys(graph: og.Graph, branch: str = "main") -> set[str]:
    return set(graph.snapshot(branch).rows("P").column("k").to_pylist())


def new_graph(place: Path) -> og.Graph:
    graph = og.init(place, schema=SCHEMA)
    put(graph, "main", KEYS, 0)
    graph.optimize()  # keys are looked up in an index from now on
    return graph


def live(graph: og.Graph, branch: str) -> None:
    """The first ten rows move, and the version after that is written on."""
    put(graph, branch, KEYS[:10], 1)
    drop(graph, branch, KEYS[15:16])


def live_otherwise(graph: og.Graph, branch: str) -> None:
    """The version of the same number has them where they were."""
    drop(graph, branch, KEYS[16:17])
    drop(graph, branch, KEYS[1:3])
    put(graph, branch, KEYS[3:5], 2)


LEFT = set(KEYS) - {"k1", "k2", "k16"}


RECREATE = """
import sys
import omnigraph as og
with og.open(sys.argv[1]) as graph:
    graph.branches.delete("draft")
    graph.branches.create("draft")
"""


@pytest.mark.parametrize("by", ["the same handle", "another handle", "another process"])
def test_what_is_deleted_on_a_branch_recreated_is_gone(tmp_path: Path, by: str) -> None:
    with new_graph(tmp_path / "g") as graph, og.open(tmp_path / "g") as other:
        graph.branches.create("draft")
        live(graph, "draft")
        if by == "another process":
            done = python_process.run("-c", RECREATE, str(tmp_path / "g"))
            assert done.returncode == 0, done.stderr
        else:
            maker = graph if by == "the same handle" else other
            maker.branches.delete("draft")
            maker.branches.create("draft")
        live_otherwise(graph, "draft")
        assert stored_keys(other, "draft") == LEFT


@pytest.mark.parametrize("by", ["a new handle", "a refreshed one"])
def test_what_is_deleted_in_a_graph_recreated_is_gone(tmp_path: Path, by: str) -> None:
    with new_graph(tmp_path / "g") as old:
        live(old, "main")
        shutil.rmtree(tmp_path / "g")
        with new_graph(tmp_path / "g") as new:
            old.refresh()
            live_otherwise(new if by == "a new handle" else old, "main")
            assert stored_keys(new) == LEFT


def test_a_handle_reads_the_graph_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    text = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n } }"
    with og.init(tmp_path / "g", schema=SCHEMA) as old:
        for n in range(3):
            put(old, "main", ["a"], n)
            assert old.query(text, {"k": "a"}).tuples() == [(n,)]
        shutil.rmtree(tmp_path / "g")
        with og.init(tmp_path / "g", schema=SCHEMA) as new:
            assert old.query(text, {"k": "a"}).tuples() == []
            for n in range(100, 105):
                put(new, "main", ["a"], n)
                assert old.query(text, {"k": "a"}).tuples() == [(n,)]


@pytest.mark.parametrize("asked", ["before", "never"])
def test_a_snapshot_never_shows_the_branch_that_took_the_name(tmp_path: Path, asked: str) -> None:
    """The versions of its tables are there again, with the rows of another life."""
    text = "query q() { match { $p: P } return { $p.n as n } }"
    with new_graph(tmp_path / "g") as graph, og.open(tmp_path / "g") as other:
        graph.branches.create("draft")
        put(graph, "draft", KEYS, 1)
        graph.branches.create("below", from_="draft")
        kept = [graph.snapshot("draft"), graph.snapshot("below")]
        if asked == "before":
            assert [set(old.rows("P").column("n").to_pylist()) for old in kept] == [{1}, {1}]
        for name in ("below", "draft"):
            other.branches.delete(name)
        other.branches.create("draft")
        put(other, "draft", KEYS, 2)
        other.branches.create("below", from_="draft")
        for old in kept:
            with pytest.raises(errors.HistoricalVersionReclaimed):
                old.rows("P")
            with pytest.raises(errors.HistoricalVersionReclaimed):
                old.query(text)
            with pytest.raises(errors.HistoricalVersionReclaimed):
                list(graph.diff(old, "main"))
            now = graph.snapshot(old.branch)
            assert set(now.rows("P").column("n").to_pylist()) == {2}
            assert set(now.query(text).to_arrow().column("n").to_pylist()) == {2}
