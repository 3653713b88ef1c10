"""Sorted edges kept in files: those in use stay, others go with a cleanup."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.query.topology import saved_topology

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
MAKE = """query q() {
    insert Person { name: "a" }  insert Person { name: "b" }
    insert Knows { from: "a", to: "b" }  insert Knows { from: "b", to: "a" }
}"""


def topology_files(graph: og.Graph) -> list[str]:
    return sorted(at.name for at in Path(graph.uri, "__derived").glob("*.topology"))


def worth(monkeypatch: pytest.MonkeyPatch, edges: int) -> None:
    monkeypatch.setattr(saved_topology, "WORTH_SAVING", edges)
    monkeypatch.setattr(saved_topology, "WORTH_SAVING", edges)


def test_files_of_edges_that_a_branch_shows_stay_and_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worth(monkeypatch, 2)
    with og.init(tmp_path / "g", schema=SCHEMA) as graph:
        graph.mutate(MAKE)
        graph.branches.create("work")
        graph.mutate('query q() { insert Knows { from: "a", to: "a" } }', branch="work")
        graph.optimize()
        graph.optimize("work")
        both = topology_files(graph)
        assert len(both) == 2
        assert graph.cleanup(keep=1).derived_files == 0
        assert topology_files(graph) == both
        graph.branches.delete("work")
        preview = graph.cleanup(keep=1, dry_run=True)
        assert preview.derived_files == 1
        assert preview.derived_bytes > 0
        assert topology_files(graph) == both
        assert graph.cleanup(keep=1).derived_files == 1
        assert len(topology_files(graph)) == 1
        worth(monkeypatch, 3)
        assert graph.cleanup(keep=1).derived_files == 1, "there are too few edges to need it"
        assert topology_files(graph) == []
