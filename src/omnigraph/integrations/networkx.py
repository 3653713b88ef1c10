"""A snapshot or a query result as a graph of NetworkX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import MissingExtra
from omnigraph.integrations.graph_arrays import GraphArrays, arrays_of_result, read_arrays
from omnigraph.query.result import Result
from omnigraph.snapshot import Snapshot

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(
    data: Snapshot | Result,
    *,
    nodes: Sequence[str] | None = None,
    edges: Sequence[str] | None = None,
    source: str = "source",
    target: str = "target",
) -> nx.MultiDiGraph[Any]:
    """Return a directed multigraph with all properties.

    Of a snapshot the types `nodes` and `edges`, or all: a node is `(type, id)`, the key of an edge is
    `(type, id)`. Of a result an edge for each row, between the values of the columns `source` and `target`.
    """
    try:
        import networkx
    except ModuleNotFoundError as missing:
        if missing.name != "networkx":
            raise
        raise MissingExtra("to_networkx", package="networkx") from missing

    made: nx.MultiDiGraph[Any] = networkx.MultiDiGraph()
    if isinstance(data, Result):
        _fill_by_values(made, arrays_of_result(data, source, target))
    else:
        _fill_by_types(made, read_arrays(data, nodes, edges))
    return made


def _fill_by_types(made: nx.MultiDiGraph[Any], arrays: GraphArrays) -> None:
    names = {kind: [(kind, one) for one in table["id"].to_pylist()] for kind, table in arrays.nodes.items()}
    for kind, table in arrays.nodes.items():
        facts = table.drop_columns(["id"]).to_pylist() or [{}] * len(table)
        made.add_nodes_from(zip(names[kind], facts, strict=True), type_name=kind)
    for kind, edge in arrays.edges.items():
        starts, ends = names[edge.source], names[edge.target]
        keys = [(kind, one) for one in edge.properties["id"].to_pylist()]
        facts = edge.properties.drop_columns(["id"]).to_pylist() or [{}] * len(keys)
        pairs = zip(map(starts.__getitem__, edge.index[0]), map(ends.__getitem__, edge.index[1]), strict=True)
        rows = ((*pair, key, fact) for pair, key, fact in zip(pairs, keys, facts, strict=True))
        made.add_edges_from(rows, type_name=kind)


def _fill_by_values(made: nx.MultiDiGraph[Any], arrays: GraphArrays) -> None:
    [table], [edge] = arrays.nodes.values(), arrays.edges.values()
    names = table["id"].to_pylist()
    made.add_nodes_from(names)
    facts = edge.properties.to_pylist() or [{}] * edge.index.shape[1]
    pairs = zip(map(names.__getitem__, edge.index[0]), map(names.__getitem__, edge.index[1]), strict=True)
    made.add_edges_from((*pair, fact) for pair, fact in zip(pairs, facts, strict=True))
