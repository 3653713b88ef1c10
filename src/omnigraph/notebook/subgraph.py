"""A part of a graph that is small enough to look at: some nodes, and the edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import Json, column_to_json, shorten_legibly
from omnigraph.notebook.selection import Node, NodeSelection, SnapshotReader

EDGES_OF_NODE = 10
"""There are at most so many edges in a picture as nodes are allowed, times this."""
_LOOKED_AT = 100
"""So many edges for each allowed node are looked at on the way to neighbours."""
_UNSEEN = (Scalar.BLOB, Scalar.VECTOR)


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Nodes with their properties, and edges as places of their ends among the nodes."""

    nodes: tuple[Node, ...]
    properties: tuple[Mapping[str, Json], ...]
    ends: NDArray[np.int64]
    """A row for each edge: the place of its source and of its target."""
    edge_types: tuple[str, ...]
    """The type of each edge."""
    found_nodes: int
    found_edges: int
    complete: bool
    """Whether all nodes were found that there are; otherwise there may be more."""


def build_subgraph(
    moment: SnapshotReader, chosen: NodeSelection, edges: Sequence[EdgeType], hops: int, limit: int
) -> Subgraph:
    """The chosen nodes, those up to so many edges away, and the edges between all of them."""
    widened, complete = _expand_nodes(moment, chosen, edges, hops, limit)
    held = _read_properties(moment, widened.nodes[:limit])
    places = {node: place for place, node in enumerate(held)}
    met = [(edge.name, _number_ends(moment, edge, places)) for edge in edges]
    ends = np.concatenate([np.empty((0, 2), dtype=np.int64), *(each for _, each in met)])
    kinds = [name for name, each in met for _ in range(len(each))]
    most = limit * EDGES_OF_NODE
    return Subgraph(
        tuple(held),
        tuple(held.values()),
        ends[:most],
        tuple(kinds[:most]),
        widened.found,
        len(ends),
        complete,
    )


def resolve_edge_types(moment: SnapshotReader, names: str | Sequence[str] | None) -> list[EdgeType]:
    """The edge types that are named, or all."""
    if names is None:
        return list(moment.catalog.edges.values())
    found = []
    for name in [names] if isinstance(names, str) else names:
        edge = moment.catalog.find_edge(name)
        if edge is None:
            known = ", ".join(sorted(moment.catalog.edges)) or "none"
            raise BadRequest(
                f"'{shorten_legibly(name)}' is not an edge type", remedy=f"the schema has: {known}"
            )
        found.append(edge)
    return list({edge.name: edge for edge in found}.values())


def _expand_nodes(
    moment: SnapshotReader, chosen: NodeSelection, edges: Sequence[EdgeType], hops: int, limit: int
) -> tuple[NodeSelection, bool]:
    met, last = dict.fromkeys(chosen.nodes), chosen.nodes
    complete = True
    for _ in range(hops):
        if len(met) >= limit or chosen.found > limit:
            return NodeSelection(list(met), max(chosen.found, len(met))), False
        near, whole = _find_neighbours(moment, last, edges, limit * _LOOKED_AT)
        complete = complete and whole
        last = [node for node in near if node not in met]
        met.update(dict.fromkeys(last))
    return NodeSelection(list(met), max(chosen.found, len(met))), complete


def _find_neighbours(
    moment: SnapshotReader, nodes: Sequence[Node], edges: Sequence[EdgeType], most: int
) -> tuple[list[Node], bool]:
    """The nodes at the other ends of edges, and whether all edges were looked at."""
    near: dict[Node, None] = {}
    whole = True
    for edge in edges:
        for end, other, type_name, far in (
            (SOURCE, TARGET, edge.source, edge.target),
            (TARGET, SOURCE, edge.target, edge.source),
        ):
            rows = moment.edges_at(edge, end, _ids_of_type(nodes, type_name), most)
            whole = whole and rows.num_rows < most
            near.update(dict.fromkeys((far, id_) for id_ in rows.column(other).unique().to_pylist()))
    return list(near), whole


def _ids_of_type(nodes: Sequence[Node], type_name: str) -> list[str]:
    return [id_ for name, id_ in nodes if name == type_name]


def _read_properties(moment: SnapshotReader, nodes: Sequence[Node]) -> dict[Node, Mapping[str, Json]]:
    """Nodes with their properties as JSON has them, without Blobs and vectors."""
    properties: dict[Node, Mapping[str, Json]] = {}
    for type_name in dict.fromkeys(name for name, _ in nodes):
        declared = {
            each.name: each.type
            for each in moment.catalog.nodes[type_name].properties.values()
            if each.type.scalar not in _UNSEEN
        }
        rows = moment.nodes(type_name, _ids_of_type(nodes, type_name), list(declared))
        columns = [column_to_json(rows.column(name), type_) for name, type_ in declared.items()]
        values = zip(*columns, strict=True) if columns else [()] * rows.num_rows
        for id_, each in zip(rows.column(ID).to_pylist(), values, strict=True):
            properties[type_name, id_] = dict(zip(declared, each, strict=True))
    return {node: properties[node] for node in nodes if node in properties}


def _number_ends(moment: SnapshotReader, edge: EdgeType, places: Mapping[Node, int]) -> NDArray[np.int64]:
    nodes = list(places)
    rows = moment.edges_between(edge, _ids_of_type(nodes, edge.source), _ids_of_type(nodes, edge.target))
    pairs = [
        _number_ids(rows.column(SOURCE), edge.source, places),
        _number_ids(rows.column(TARGET), edge.target, places),
    ]
    return np.stack(pairs, axis=1)


def _number_ids(ids: pa.ChunkedArray, type_name: str, places: Mapping[Node, int]) -> NDArray[np.int64]:
    return np.array([places[type_name, id_] for id_ in ids.to_pylist()], dtype=np.int64)
