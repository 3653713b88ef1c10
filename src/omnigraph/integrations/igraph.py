"""A snapshot or a query result as a graph of igraph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import MissingExtra
from omnigraph.integrations.graph_arrays import arrays_of_result, read_arrays
from omnigraph.query.result import Result
from omnigraph.snapshot import Snapshot

if TYPE_CHECKING:
    import igraph


def to_igraph(
    data: Snapshot | Result,
    *,
    nodes: Sequence[str] | None = None,
    edges: Sequence[str] | None = None,
    source: str = "source",
    target: str = "target",
) -> igraph.Graph:
    """Return a directed graph with all properties as attributes, and `id` and `type_name` beside.

    Of a snapshot the types `nodes` and `edges`, or all. Of a result an edge for each row, between the values
    of the columns `source` and `target`.
    """
    try:
        import igraph as library
    except ModuleNotFoundError as missing:
        if missing.name != "igraph":
            raise
        raise MissingExtra("to_igraph", package="igraph", extra="notebook") from missing

    if isinstance(data, Result):
        arrays = arrays_of_result(data, source, target)
    else:
        arrays = read_arrays(data, nodes, edges)
    starts = np.cumsum([0, *(len(table) for table in arrays.nodes.values())])
    first = dict(zip(arrays.nodes, starts.tolist(), strict=False))
    pairs = [
        edge.index.T + np.array([first[edge.source], first[edge.target]]) for edge in arrays.edges.values()
    ]
    ends = np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)
    made = library.Graph(n=int(starts[-1]), edges=ends, directed=True)
    for name, values in _attributes(arrays.nodes.items()).items():
        made.vs[name] = values
    kinds = ((kind, edge.properties) for kind, edge in arrays.edges.items())
    for name, values in _attributes(kinds).items():
        made.es[name] = values
    return made


def _attributes(tables: Iterable[tuple[str, pa.Table]]) -> dict[str, list[Any]]:
    """Return the columns of all tables one below the other; None where a type has no such property."""
    listed = list(tables)
    names = dict.fromkeys(name for _, table in listed for name in table.column_names)
    found = {
        name: [
            value
            for _, table in listed
            for value in (table[name].to_pylist() if name in table.column_names else [None] * len(table))
        ]
        for name in names
    }
    found["type_name"] = [kind for kind, table in listed for _ in range(len(table))]
    return found
