"""The graph that the processes share, and how it looks to somebody who just arrives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.audit import read_audit
from omnigraph.engine.graph.lineage import RECOVERY_ACTOR
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph, ReadTarget
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.write.mutate import MutationResult, mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.storage.location import Location
from tests.engine.graphs import require_consistent, require_linear

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key  size: I32? }
edge Knows: Person -> Person { since: I32? }
"""
TORTURE = bool(os.environ.get("OMNIGRAPH_TORTURE"))

T = TypeVar("T")

PERSON, TEAM, KNOWS = "node:Person", "node:Team", "edge:Knows"

BOTH = 'insert Person { name: "ada", age: 1 } insert Team { name: "core", size: 1 }'
"""A write over two tables; they move in the order person, team."""


def cells(places: Sequence[T], in_bucket: Sequence[T]) -> list[ParameterSet]:
    """Each place in a folder, and some in a bucket, where all takes longer; torture has all."""
    some = places if TORTURE else in_bucket
    return [
        *(pytest.param("folder", place) for place in places),
        *(pytest.param("s3", place, marks=pytest.mark.s3) for place in some),
    ]


def both(name: str) -> str:
    """A write of two rows of one name, one in each of two tables."""
    return f'insert Person {{ name: "{name}", age: 1 }} insert Team {{ name: "{name}", size: 1 }}'


def new_people(at: Location) -> None:
    """A graph with one person and one team, so that no table is empty."""
    create_graph(Root.at(at), SCHEMA)
    graph = OpenGraph.open(Root.at(at))
    run(graph, 'insert Person { name: "eve", age: 0 } insert Team { name: "base", size: 0 }')


def run(graph: OpenGraph, text: str, branch: str = MAIN) -> MutationResult:
    """A mutation in this process."""
    compiled = compile_query(f"query q() {{ {text} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    return mutate(graph, compiled, decode_parameters(compiled.parameters, {}), Author(branch))


def rows(at: Location, key: str, target: ReadTarget | None = None) -> dict[str, int | None]:
    """The rows of a node type, as a process sees them that opens the graph now."""
    graph = OpenGraph.open(Root.at(at), read_only=True)
    found = open_table(graph, graph.snapshot(target or AtBranch()), key).scan().to_pylist()
    names = [row["id"] for row in found]
    assert len(names) == len(set(names)), f"a key is stored twice: {Counter(names).most_common(1)}"
    return {row["id"]: row["age" if key == PERSON else "size"] for row in found}


def people(at: Location, branch: str = MAIN) -> dict[str, int | None]:
    return rows(at, PERSON, AtBranch(branch))


def teams(at: Location, branch: str = MAIN) -> dict[str, int | None]:
    return rows(at, TEAM, AtBranch(branch))


def people_at(at: Location, commit: str) -> dict[str, int | None]:
    return rows(at, PERSON, AtCommit(commit))


def edges(at: Location) -> list[tuple[str, str]]:
    """The ends of every edge."""
    graph = OpenGraph.open(Root.at(at), read_only=True)
    found = open_table(graph, graph.snapshot(AtBranch()), KNOWS).scan()
    return sorted(zip(found.column("src").to_pylist(), found.column("dst").to_pylist(), strict=True))


def commits(at: Location, branch: str = MAIN) -> list[str]:
    """The commits of a branch by writers, oldest first; those of recovery are left out."""
    state = OpenGraph.open(Root.at(at), read_only=True).load(branch).state
    found = sorted(state.commits.values(), key=lambda commit: commit.order)
    return [commit.id for commit in found[1:] if commit.actor != RECOVERY_ACTOR]


def records(at: Location) -> list[str]:
    """The writes on record."""
    return sidecar.operations(Root.at(at))


def recoveries(at: Location) -> list[str]:
    """What recovery did so far."""
    return [row.kind for row in read_audit(Root.at(at))]


def require_sound(at: Location, acknowledged: Iterable[str] = (), branch: str = MAIN) -> None:
    """Nothing is left over: no record, every table where the manifest says, one chain, nothing lost."""
    graph = OpenGraph.open(Root.at(at), read_only=True)
    assert records(at) == []
    operations = [row.operation_id for row in read_audit(graph.root)]
    assert len(operations) == len(set(operations)), "an operation was recovered twice"
    state = graph.load(branch).state
    require_linear(state.commits.values(), [id for id in state.commits if state.commits[id].parent])
    require_consistent(state, branch)
    missing = set(acknowledged) - state.commits.keys()
    assert not missing, f"acknowledged commits are missing: {missing}"
    for entry in state.entries().values():
        tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=entry.owner)
        assert tip.version == entry.version, f"{entry.key} stands apart from what is published"
        assert tip.count() == entry.row_count
