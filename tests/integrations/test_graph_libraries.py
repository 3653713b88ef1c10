"""Snapshots and results as graphs of NetworkX and igraph, and as arrays."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest
from omnigraph.integrations.graph_arrays import read_arrays
from omnigraph.integrations.igraph import to_igraph
from omnigraph.integrations.networkx import to_networkx

SCHEMA = """
node Person { name: String @key  age: I32?  face: Vector(2)? }
node Team { slug: String @key }
edge Knows: Person -> Person { since: I32? }
edge MemberOf: Person -> Team
"""
KNOWN = """
query known() {
  match { $a: Person  $a $k:knows $b }
  return { $a.name as a, $b.name as b, $k.since as since }
}
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Snapshot]:
    with og.init(tmp_path_factory.mktemp("arrays") / "people.omni", schema=SCHEMA) as graph:
        people = [{"name": "ada", "age": 36, "face": [1.0, 2.0]}, {"name": "bo"}, {"name": "cy", "age": 3}]
        graph.load(people, type="Person", mode="append")
        graph.load([{"slug": "core"}, {"slug": "ada"}], type="Team", mode="append")
        edges = [
            {"from": "ada", "to": "bo", "since": 1},
            {"from": "bo", "to": "cy"},
            {"from": "cy", "to": "ada"},
        ]
        graph.load(edges, type="Knows", mode="append")
        graph.load([{"from": "cy", "to": "ada"}], type="MemberOf", mode="append")
        yield graph.snapshot()


def test_snapshot_as_networkx(snapshot: og.Snapshot) -> None:
    found = to_networkx(snapshot)
    assert set(found) == {
        ("Person", "ada"),
        ("Person", "bo"),
        ("Person", "cy"),
        ("Team", "core"),
        ("Team", "ada"),
    }
    assert found.nodes["Person", "ada"] == {
        "name": "ada",
        "age": 36,
        "face": [1.0, 2.0],
        "type_name": "Person",
    }
    ends = {(start, end, facts["type_name"]) for start, end, facts in found.edges(data=True)}
    assert (("Person", "cy"), ("Team", "ada"), "MemberOf") in ends
    [(key, facts)] = found["Person", "ada"]["Person", "bo"].items()
    assert key[0] == "Knows"
    assert facts == {"since": 1, "type_name": "Knows"}
    assert nx.shortest_path(found, ("Person", "ada"), ("Team", "ada")) == [
        ("Person", "ada"),
        ("Person", "bo"),
        ("Person", "cy"),
        ("Team", "ada"),
    ]


def test_some_types_only(snapshot: og.Snapshot) -> None:
    assert to_networkx(snapshot, nodes=["Team"]).number_of_edges() == 0
    assert to_networkx(snapshot, edges=["MemberOf"]).number_of_edges() == 1
    with pytest.raises(BadRequest, match="'MemberOf' is not there"):
        to_networkx(snapshot, nodes=["Person"], edges=["MemberOf"])


def test_snapshot_as_igraph(snapshot: og.Snapshot) -> None:
    found = to_igraph(snapshot)
    assert (found.vcount(), found.ecount(), found.is_directed()) == (5, 4, True)
    named = {(one["type_name"], one["id"]): one.index for one in found.vs}
    pairs = {(edge.source, edge.target): edge["since"] for edge in found.es}
    assert pairs[named["Person", "ada"], named["Person", "bo"]] == 1
    assert pairs[named["Person", "cy"], named["Team", "ada"]] is None
    assert found.vs[named["Team", "core"]]["age"] is None


def test_result_as_graphs(snapshot: og.Snapshot) -> None:
    result = snapshot.query(KNOWN)
    found = to_networkx(result, source="a", target="b")
    assert set(found.edges()) == {("ada", "bo"), ("bo", "cy"), ("cy", "ada")}
    assert found["ada"]["bo"][0] == {"since": 1}
    drawn = to_igraph(result, source="a", target="b")
    assert sorted(drawn.vs["id"]) == ["ada", "bo", "cy"]
    assert sorted(drawn.components().sizes()) == [3]
    with pytest.raises(BadRequest, match="no column 'source'"):
        to_networkx(result)


def test_features_and_edge_index(snapshot: og.Snapshot) -> None:
    arrays = read_arrays(snapshot)
    people = arrays.nodes["Person"]["id"].to_pylist()
    edge = arrays.edges["Knows"]
    assert edge.index.dtype == np.int64
    pairs = {(people[start], people[end]) for start, end in edge.index.T}
    assert pairs == {("ada", "bo"), ("bo", "cy"), ("cy", "ada")}
    features = arrays.features("Person")
    assert features.shape == (3, 3)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features[people.index("ada")], [36, 1, 2])
    assert np.isnan(features[people.index("bo")]).all()
    assert arrays.features("Person", ["age"]).shape == (3, 1)
    assert arrays.features("Team").shape == (2, 0)
    with pytest.raises(BadRequest, match="'name' is no number"):
        arrays.features("Person", ["name"])
    with pytest.raises(BadRequest, match="no property 'nope'"):
        arrays.features("Person", ["nope"])
