"""Walks by dictionaries and loops, written for obviousness, and random edges to walk on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.topology import Topology, build_topology

Edge = tuple[int, int]
"""The numbers of the two nodes; -1 stands for an edge that is dead."""


@dataclass(frozen=True)
class Drawn:
    """Edges between numbered nodes; a node that does not exist has no position."""

    edges: tuple[Edge, ...]
    shared: bool
    sources: tuple[int, ...]
    """The position of each node at the source side, NO_ROW for one that does not exist."""
    targets: tuple[int, ...]
    source_count: int
    target_count: int
    texts: bool
    """Whether ids are texts or decimal numbers."""

    def ids(self, end: int) -> pa.Array:
        return pa.array([self.id(edge[end]) for edge in self.edges], type=pa.string())

    def id(self, node: int) -> str | None:
        if node < 0:
            return None
        return f"node {node}" if self.texts else str(node)

    def topology(self) -> Topology:
        return build_topology(self.ids(0), self.ids(1), self.shared)

    def linked(self, topology: Topology | None = None) -> LinkedTopology:
        made = self.topology() if topology is None else topology
        sources = self._found(made.sources, self.sources)
        if self.shared:
            return LinkedTopology(made, sources, self.source_count)
        targets = self._found(made.targets, self.targets)
        return LinkedTopology(made, sources, self.source_count, targets, self.target_count)

    def _found(self, ids: pa.Array, places: tuple[int, ...]) -> Positions:
        by_id = {self.id(node): place for node, place in enumerate(places)}
        return np.array([by_id[each] for each in ids.to_pylist()], dtype=np.int64)

    @cached_property
    def _steps(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """The (neighbour, edge) pairs by direction and position."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for number, (left, right) in enumerate(self.edges):
            if left < 0 or right < 0:
                continue
            source, target = self.sources[left], self.targets[right]
            if NO_ROW in (source, target):
                continue
            found["out", source].append((target, number))
            found["in", target].append((source, number))
            found["both", source].append((target, number))
            if source != target:
                found["both", target].append((source, number))
        return found

    def hop_edges(self, source: int, direction: EdgeDirection) -> list[tuple[int, int]]:
        return sorted(self._steps.get((direction, source), []))

    def hop(self, source: int, direction: EdgeDirection) -> list[int]:
        return sorted({target for target, _ in self.hop_edges(source, direction)})

    def reach(self, source: int, direction: EdgeDirection, minimum: int, maximum: int) -> list[int]:
        if source == NO_ROW:
            return []
        if not self.shared:
            return self.hop(source, direction) if minimum == 1 else []
        visited, frontier, reached = {source}, [source], set()
        for distance in range(1, maximum + 1):
            met = set()
            for node in frontier:
                for target in self.hop(node, direction):
                    if target == node and distance >= minimum:
                        reached.add(target)
                    if target not in visited:
                        visited.add(target)
                        met.add(target)
            if distance >= minimum:
                reached |= met
            frontier = sorted(met)
        return sorted(reached)


@st.composite
def draw_walks(draw: st.DrawFn, shared: bool | None = None) -> Drawn:
    """Few nodes and many edges, so that parallel edges, self-loops and cycles are common."""
    one_type = draw(st.booleans()) if shared is None else shared
    nodes = draw(st.integers(1, 9))
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges = draw(st.lists(st.one_of(ends, ends, ends, st.just((-1, -1))), max_size=30))
    sources, source_count = draw(_draw_positions(nodes))
    targets, target_count = (sources, source_count) if one_type else draw(_draw_positions(nodes))
    return Drawn(tuple(edges), one_type, sources, targets, source_count, target_count, draw(st.booleans()))


@st.composite
def _draw_positions(draw: st.DrawFn, nodes: int) -> tuple[tuple[int, ...], int]:
    """A position for most nodes, among positions of which some have no edges."""
    count = nodes + draw(st.integers(0, 3))
    places = draw(st.permutations(range(count)))[:nodes]
    exists = draw(st.lists(st.integers(0, 5), min_size=nodes, max_size=nodes))
    return tuple(place if there else NO_ROW for place, there in zip(places, exists, strict=True)), count


DIRECTIONS: tuple[EdgeDirection, ...] = ("out", "in", "both")


def directions(graph: Drawn) -> tuple[EdgeDirection, ...]:
    """Those in which edges of this graph can be walked."""
    return DIRECTIONS if graph.shared else DIRECTIONS[:2]


def near_count(graph: Drawn, direction: EdgeDirection) -> int:
    """How many positions a walk can leave from."""
    return graph.target_count if direction == "in" else graph.source_count


def far_count(graph: Drawn, direction: EdgeDirection) -> int:
    """How many positions a walk can arrive at."""
    return graph.source_count if direction == "in" else graph.target_count
