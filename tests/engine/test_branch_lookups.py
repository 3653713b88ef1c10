"""Where a write on a branch looks for the rows that it replaces."""

from __future__ import annotations

from pathlib import Path

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.merge.family import PERSON, SCHEMA, person, put, rows, value


def test_the_first_write_looks_in_the_table_that_the_branch_inherits(tmp_path: Path) -> None:
    place, calls = Location.parse(tmp_path / "graph"), Recorder()
    create_graph(Root.at(place), SCHEMA)
    with Graph(OpenGraph.open(Root.at(place, calls))) as graph:
        put(graph, *(person(name, age=1) for name in ("ann", "bob", "cid")))
        graph.branches.create("work")
        looked = []
        for age in (2, 3):
            calls.clear()
            put(graph, person("bob", age=age), person(f"new{age}", age=age), branch="work")
            looked.append({"/tree/work" in call.uri for call in calls.calls if call.op == "find_keys"})
        assert looked == [{False}, {True}]
        assert {name: value(graph, PERSON, name, "age", "work") for name in rows(graph, PERSON, "work")} == {
            "ann": 1,
            "bob": 3,
            "cid": 1,
            "new2": 2,
            "new3": 3,
        }
