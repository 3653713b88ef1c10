"""Shortest paths, by trying all of them: hop by hop, the best path to each node that is met."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query.terms import ShortestPath
from tests.query.oracle.graph import Graph

Path = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""The ids of its nodes and of its edges; the better of two equally long ones is the smaller."""


def shortest(graph: Graph, path: ShortestPath, start: str, end: str) -> tuple[list[str], list[str]] | None:
    """The ids of the nodes and edges on the way from one node to another."""
    # Between different types of nodes one hop is all there is: no edge begins where another ends.
    best: dict[str, Path] = {start: ((start.encode(),), ())}
    met: dict[str, Path] = {}
    for _ in range(path.maximum):
        found: dict[str, Path] = {}
        for node, (nodes, edges) in best.items():
            for edge, far in _edges_from(graph, path, node):
                longer = (*nodes, far.encode()), (*edges, edge.encode())
                if far not in met and (far != start or node == start):
                    found[far] = min(found.get(far, longer), longer)
        met |= found
        if end in met:
            nodes, edges = met[end]
            return [id_.decode() for id_ in nodes], [id_.decode() for id_ in edges]
        best = {node: there for node, there in found.items() if node != start}
    return None


def _edges_from(graph: Graph, path: ShortestPath, node: str) -> Iterator[tuple[str, str]]:
    for edge in graph.edges.get(path.edge_type, []):
        if path.direction != "in" and edge.src == node:
            yield edge.id, edge.dst
        elif path.direction != "out" and edge.dst == node:
            yield edge.id, edge.src
