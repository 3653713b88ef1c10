"""What a merge opens and reads: it follows the change, not the graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.merge.family import SCHEMA, knows, person, pet, put

WORK = {
    "open",
    "scan",
    "delta",
    "take",
    "stage_append",
    "stage_upsert",
    "stage_delete",
    "commit",
    "merge_rows",
}


class Watched:
    """A graph whose calls are counted, with a branch `work`."""

    def __init__(self, at: Path, people: int) -> None:
        self._root = Location.parse(at / "graph")
        self._recorder = Recorder()
        create_graph(Root.at(self._root), SCHEMA)
        self.reopen()
        everyone = [person(f"p{number}", age=1) for number in range(people)]
        put(self.graph, *everyone, pet("cat"), knows("k1", "p0", "p1"))
        self.graph.branches.create("work")

    def reopen(self) -> None:
        """Somebody who was not there when it happened."""
        self.graph = Graph(OpenGraph.open(Root.at(self._root, self._recorder)))

    def merge(self, **how: str) -> tuple[Counter[str], set[str]]:
        """The work a merge does, and the tables it touches."""
        self._recorder.clear()
        self.graph.merge("work", **how)  # type: ignore[call-overload]
        done = [call for call in self._recorder.calls if call.op in WORK]
        tables = {call.uri.split("/graph/")[1].split("/tree/")[0] for call in done}
        return Counter(call.op for call in done), tables


@pytest.fixture(autouse=True)
def no_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep comes when it comes; here only merges are counted."""
    monkeypatch.setenv("OMNIGRAPH_AUTO_UPKEEP", "off")


def make_diverged(at: Path, *, people: int, depth: int) -> tuple[Counter[str], set[str]]:
    watched = Watched(at, people)
    for number in range(depth):
        put(watched.graph, person("p0", age=number + 2), branch="work")
        put(watched.graph, person("p1", age=number + 2))
    watched.reopen()
    return watched.merge()


def test_a_fast_forward_of_one_row_opens_only_its_own_table(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 5)
    put(watched.graph, person("p0", age=2), branch="work")
    work, tables = watched.merge()
    person_table = watched.graph.snapshot().tables["node:Person"].path
    assert tables == {person_table, "__manifest"}
    assert work["open"] <= 3
    assert work["commit"] == work["merge_rows"] == 1


def test_a_merge_costs_the_same_in_a_large_table(tmp_path: Path) -> None:
    small, large = (make_diverged(tmp_path / str(people), people=people, depth=1) for people in (5, 5000))
    assert small[0] == large[0]


def test_a_merge_costs_the_same_after_many_commits(tmp_path: Path) -> None:
    young, old = (make_diverged(tmp_path / str(depth), people=5, depth=depth) for depth in (3, 15))
    assert young[0] == old[0]


def test_a_merge_of_what_is_there_reads_no_table(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 5)
    put(watched.graph, person("p0", age=2), branch="work")
    watched.merge()
    assert watched.merge() == (Counter(), set())
