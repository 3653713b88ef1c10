"""The graph an oracle reads: nothing but dicts and lists of stored values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.keys import compose_id, render_scalar
from omnigraph.lang.values import Stored, convert

Props = dict[str, Stored]


class Entity(NamedTuple):
    """A node or an edge that a variable stands for."""

    id: str
    props: Props


class Edge(NamedTuple):
    id: str
    src: str
    dst: str
    props: Props


@dataclass
class Graph:
    """`nodes[type][id]` are the properties of a node, `edges[type]` the edges of a type."""

    nodes: dict[str, dict[str, Props]] = field(default_factory=dict)
    edges: dict[str, list[Edge]] = field(default_factory=dict)

    def add_edge(self, type_name: str, edge: Edge) -> None:
        """A new edge, or another state of the one with its id."""
        others = [known for known in self.edges.get(type_name, []) if known.id != edge.id]
        self.edges[type_name] = [*others, edge]

    def delete_node(self, catalog: Catalog, type_name: str, id_: str) -> None:
        """A node goes with all of its edges."""
        self.nodes.get(type_name, {}).pop(id_, None)
        for name, edges in self.edges.items():
            edge_type = catalog.edges[name]
            self.edges[name] = [
                edge
                for edge in edges
                if (edge_type.source, edge.src) != (type_name, id_)
                and (edge_type.target, edge.dst) != (type_name, id_)
            ]

    def all_of(self, type_name: str) -> list[Entity]:
        return [Entity(id_, props) for id_, props in self.nodes.get(type_name, {}).items()]

    def node(self, type_name: str, id_: str) -> Entity:
        return Entity(id_, self.nodes[type_name][id_])


def graph_of(catalog: Catalog, lines: Iterable[str]) -> Graph:
    """The graph that loads of these NDJSON lines make, a later state of a node or edge instead of an earlier.

    Nodes without a key and edges must bring an id.
    """
    graph = Graph()
    for line in lines:
        record = json.loads(line)
        data = record["data"]
        if "type" in record:
            node = catalog.nodes[record["type"]]
            props = _props(node, data)
            graph.nodes.setdefault(node.name, {})[_node_id(node, props, data)] = props
        else:
            edge = catalog.find_edge(record["edge"])
            assert edge is not None
            found = Edge(data["id"], record["from"], record["to"], _props(edge, data))
            graph.add_edge(edge.name, found)
    return graph


def _props(owner: NodeType | EdgeType, data: dict[str, Any]) -> Props:
    return {name: convert(data.get(name), prop.type) for name, prop in owner.properties.items()}


def _node_id(node: NodeType, props: Props, data: dict[str, Any]) -> str:
    if not node.key:
        return str(data["id"])
    # The order of a composite key's columns in the id needs identities, which only a stored schema has.
    (column,) = node.key
    return compose_id([render_scalar(props[column], node.properties[column].type)])
