"""Nodes with fewer edges than `@card` asks for.

A write checks the minimum only for nodes whose edges it touches, so a node may begin with fewer. Here all
nodes are counted. Ids and ends are read in buckets of their hash: memory holds one bucket of each, whatever
the size of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.graph.columns import ID, SOURCE
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.tasks.buckets import hash_keys
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.storage.tables import Table

EXAMPLES = 10
ROWS_PER_BUCKET = 8_000_000
_COUNT = "count_all"


@dataclass(frozen=True, slots=True)
class FewEdges:
    """A node and how many edges of the type it has."""

    id: str
    edges: int


@dataclass(frozen=True, slots=True)
class BelowMinimum:
    """The nodes of a type that have fewer edges of another than its `@card` asks for."""

    branch: str
    edge: str
    node: str
    minimum: int
    count: int
    """How many such nodes there are."""
    nodes: int
    """How many nodes the type has."""
    examples: tuple[FewEdges, ...]
    """The first of them by id."""


def list_edges_with_minimum(catalog: Catalog) -> list[EdgeType]:
    """The edge types of a schema whose `@card` has a minimum."""
    return [edge for edge in catalog.edges.values() if edge.cardinality.minimum > 0]


def find_nodes_below_minimum(graph: OpenGraph, snapshot: Snapshot, edge: EdgeType) -> BelowMinimum:
    """The nodes of a snapshot that have fewer edges of a type than its minimum."""
    nodes = open_table(graph, snapshot, table_key("node", edge.source))
    edges = open_table(graph, snapshot, table_key("edge", edge.name))
    minimum, total = edge.cardinality.minimum, nodes.count()
    buckets = 1 + max(total, edges.count()) // ROWS_PER_BUCKET
    count, examples = 0, _NO_EXAMPLES
    for bucket in range(buckets):
        few = _find_few_edges(
            _column(nodes, ID, bucket, buckets), _column(edges, SOURCE, bucket, buckets), minimum
        )
        count += few.num_rows
        examples = pa.concat_tables([examples, few]).sort_by(ID).slice(0, EXAMPLES)
    told = tuple(FewEdges(row[ID], row[_COUNT]) for row in examples.to_pylist())
    return BelowMinimum(snapshot.branch, edge.name, edge.source, minimum, count, total, told)


_NO_EXAMPLES = pa.table({ID: pa.array([], pa.string()), _COUNT: pa.array([], pa.int64())})


def _find_few_edges(ids: pa.ChunkedArray, sources: pa.ChunkedArray, minimum: int) -> pa.Table:
    counted = pa.table({ID: sources}).group_by(ID).aggregate([([], "count_all")])
    place = pc.index_in(ids, value_set=counted.column(ID).combine_chunks())
    numbers = pc.fill_null(counted.column(_COUNT).combine_chunks().take(place.combine_chunks()), 0)
    found = pa.table({ID: ids.combine_chunks(), _COUNT: numbers})
    return found.filter(pc.less(numbers, minimum)).cast(_NO_EXAMPLES.schema)


def _column(table: Table, name: str, bucket: int, buckets: int) -> pa.ChunkedArray:
    """The values of a column that belong to one bucket."""
    chunks = (batch.column(name) for batch in table.batches([name]))
    if buckets > 1:
        chunks = (chunk.filter(_is_in(chunk, bucket, buckets)) for chunk in chunks)
    return pa.chunked_array(list(chunks), pa.string())


def _is_in(values: pa.Array, bucket: int, buckets: int) -> pa.Array:
    return pa.array(hash_keys(values) % np.uint64(buckets) == np.uint64(bucket))
