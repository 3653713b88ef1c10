"""A graph with branches of every kind, and all that can be read of it, as one value."""

from __future__ import annotations

import os
from typing import Any

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage.location import Location

SCHEMA = """
node Person { name: String @key  age: I32?  about: String? @index  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
EVERYONE = "query q() { match { $p: Person } return { $p.name, $p.age, $p.about } order { $p.name } }"
EDGES = (
    "query q() { match { $p: Person  $p knows $o } return { $p.name, $o.name } order { $p.name, $o.name } }"
)

Place = str | os.PathLike[str] | Location


def uri_of(place: Place) -> str:
    return place.uri if isinstance(place, Location) else os.fspath(place)


def open_at(place: Place, *, read_only: bool = False) -> Graph:
    return omnigraph.open(uri_of(place), read_only=read_only)


def add(graph: Graph, *names: str, branch: str = "main") -> None:
    """One commit that adds these persons."""
    with graph.write(branch) as tx:
        for name in names:
            tx.insert(
                "Person", name=name, age=len(name), about=f"the words about {name}", photo=name.encode()
            )


def delete(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ delete Person where name = "{name}" }}', branch=branch)


def age(graph: Graph, name: str, years: int, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ update Person set {{ age: {years} }} where name = "{name}" }}', branch=branch)


def know(graph: Graph, one: str, other: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert Knows {{ from: "{one}", to: "{other}" }} }}', branch=branch)


def branching_graph(place: Place) -> Graph:
    """Branches: never written, written, one of a branch, one that was merged, one with a longer name."""
    graph = omnigraph.init(uri_of(place), schema=SCHEMA)
    add(graph, "ann", "bob", "cid", "dan")
    add(graph, "eve")
    know(graph, "ann", "bob")
    delete(graph, "cid")
    graph.optimize()
    for name in ("untouched", "written", "merged", "team/new"):
        graph.branches.create(name)
    add(graph, "wim", branch="written")
    age(graph, "bob", 77, branch="written")
    delete(graph, "dan", branch="written")
    know(graph, "wim", "ann", branch="written")
    graph.branches.create("inner", from_="written")
    add(graph, "ina", branch="inner")
    delete(graph, "eve", branch="inner")
    graph.branches.create("innermost", from_="inner")
    age(graph, "ann", 5, branch="merged")
    graph.merge("merged")
    age(graph, "ann", 6, branch="merged")
    add(graph, "zoe", branch="team/new")
    add(graph, "fay")
    return graph


def picture(graph: Graph) -> dict[str, Any]:
    """Rows, edges, Blobs, history, past and changes of every branch, and what they differ in."""
    branches = graph.branches.list()
    return {
        "branches": {branch: _branch(graph, branch) for branch in branches},
        "diffs": {
            pair: [change.to_json() for change in graph.diff(*pair)]
            for pair in [("main", branch) for branch in branches] + [("written", "innermost")]
        },
    }


def rows_of(graph: Graph) -> dict[str, Any]:
    """The persons on every branch."""
    return {branch: graph.query(EVERYONE, branch=branch).rows() for branch in graph.branches.list()}


def glance(graph: Graph) -> dict[str, Any]:
    """Less of it, where every read costs requests: rows of all branches, a past and a difference."""
    inner = graph.commits.list("inner")
    return {
        "rows": rows_of(graph),
        "past": graph.query(EVERYONE, commit=inner[len(inner) // 2].id).rows(),
        "diff": [change.to_json() for change in graph.diff("main", "innermost")],
    }


def glance_of(whole: dict[str, Any]) -> dict[str, Any]:
    """What a glance shows, from all that can be read."""
    branches = whole["branches"]
    commits = branches["inner"]["commits"]
    return {
        "rows": {name: one["rows"] for name, one in branches.items()},
        "past": branches["inner"]["past"][commits[len(commits) // 2]],
        "diff": whole["diffs"]["main", "innermost"],
    }


def _branch(graph: Graph, branch: str) -> dict[str, Any]:
    commits = graph.commits.list(branch)
    names = [str(row["p.name"]) for row in graph.query(EVERYONE, branch=branch)]
    return {
        "rows": graph.query(EVERYONE, branch=branch).rows(),
        "edges": graph.query(EDGES, branch=branch).rows(),
        "photos": [graph.snapshot(branch).blob("Person", name, "photo").read() for name in names],
        "commits": [commit.id for commit in commits],
        "past": {commit.id: graph.query(EVERYONE, commit=commit.id).rows() for commit in commits},
        "changes": [
            [change.to_json() for change in graph.commits.changes(commit.id)]
            for commit in commits
            if commit.parent is not None
        ],
    }
