"""A snapshot or a query result as arrays: properties in Arrow, edges as pairs of positions, features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest
from omnigraph.query.result import Result
from omnigraph.snapshot import Snapshot

VALUES = ""
"""The type of nodes that come from the values of a result."""


@dataclass(frozen=True, slots=True)
class EdgeArrays:
    """The edges of one type: `index` has the positions of starts and of ends in their nodes."""

    source: str
    target: str
    index: np.ndarray
    properties: pa.Table


@dataclass(frozen=True, slots=True)
class GraphArrays:
    """Nodes by type, with their `id` and properties, and edges by type."""

    nodes: Mapping[str, pa.Table]
    edges: Mapping[str, EdgeArrays]

    def features(self, type_name: str, columns: Sequence[str] | None = None) -> np.ndarray:
        """Return numbers, booleans and vectors of nodes as one matrix of float32; null is NaN."""
        table = self.nodes[type_name]
        chosen = [name for name in table.column_names if _is_number(table.schema.field(name).type)]
        parts = [_matrix(table, name) for name in (chosen if columns is None else columns)]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(table), 0), np.float32)


def read_arrays(
    snapshot: Snapshot, nodes: Sequence[str] | None = None, edges: Sequence[str] | None = None
) -> GraphArrays:
    """Return the nodes and edges of some types, or all; an edge type needs the types of both its ends."""
    schema = snapshot.schema
    names = list(schema.nodes) if nodes is None else list(nodes)
    tables = {name: snapshot.rows(name) for name in names}
    fitting = [one.name for one in schema.edges.values() if one.source in tables and one.target in tables]
    found = {}
    for name in fitting if edges is None else edges:
        if name not in fitting:
            raise BadRequest(
                f"edge type '{name}' is not there, or the types of its ends are not among the nodes",
                remedy=f"choose among: {', '.join(fitting) or 'none'}",
            )
        edge = schema.edges[name]
        rows = snapshot.rows(name)
        ends = (rows["src"], tables[edge.source]["id"]), (rows["dst"], tables[edge.target]["id"])
        index = np.stack([_positions(values, ids) for values, ids in ends])
        found[name] = EdgeArrays(edge.source, edge.target, index, rows.drop_columns(["src", "dst"]))
    return GraphArrays(tables, found)


def arrays_of_result(result: Result, source: str, target: str) -> GraphArrays:
    """Return a graph with an edge for each row of a result, between the values of two of its columns."""
    table = result.to_arrow()
    for name in (source, target):
        if name not in table.column_names:
            raise BadRequest(
                f"the result has no column '{name}'", remedy=f"choose among: {', '.join(table.column_names)}"
            )
    rows = table.filter(pc.and_(pc.is_valid(table[source]), pc.is_valid(table[target])))
    ids = pc.unique(pa.chunked_array([*rows[source].chunks, *rows[target].chunks], rows[source].type))
    index = np.stack([_positions(rows[source], ids), _positions(rows[target], ids)])
    edges = EdgeArrays(VALUES, VALUES, index, rows.drop_columns([source, target]))
    return GraphArrays({VALUES: pa.table({"id": ids})}, {f"{source} {target}": edges})


def _positions(values: pa.ChunkedArray, ids: pa.ChunkedArray | pa.Array) -> np.ndarray:
    known = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    found: np.ndarray = pc.index_in(values, value_set=known).to_numpy().astype(np.int64)
    return found


def _is_number(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(is_plain or pa.types.is_fixed_size_list(kind))


def _matrix(table: pa.Table, name: str) -> np.ndarray:
    """Return a column as a matrix with a row for each node."""
    if name not in table.column_names:
        raise BadRequest(f"there is no property '{name}'", remedy=f"choose among: {table.column_names}")
    column = table[name].combine_chunks()
    if not _is_number(column.type):
        raise BadRequest(f"'{name}' is no number and no vector", remedy="choose another property")
    if not pa.types.is_fixed_size_list(column.type):
        numbers: np.ndarray = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        return numbers.reshape(-1, 1)
    size = column.type.list_size
    made = np.full((len(column), size), np.nan, np.float32)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    made[valid] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
    return made
