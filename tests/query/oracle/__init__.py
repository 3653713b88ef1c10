"""A second, obvious reader of graphs: row by row, on dicts and lists, to compare the real one with."""

from __future__ import annotations

from tests.query.oracle.graph import Edge, Entity, Graph, graph_of
from tests.query.oracle.read import Answer, answer

__all__ = ["Answer", "Edge", "Entity", "Graph", "answer", "graph_of"]
