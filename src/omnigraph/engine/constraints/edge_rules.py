"""Rules about edges: both ends exist, and each source has as many edges as `@card` allows.

Only sources that gain or lose an edge are counted, and only those that still exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.faults import NO_ROW, Faults, join_texts
from omnigraph.engine.constraints.stored_rows import End, StoredRows
from omnigraph.engine.constraints.table_change import Changes, TableChange, exclude, is_among, unique_texts
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.rows.lookup import is_subset
from omnigraph.engine.rows.violations import Numbers
from omnigraph.engine.tasks.buckets import hash_keys
from omnigraph.lang.schema.catalog import Cardinality, Catalog, EdgeType
from omnigraph.storage.tables import Table

ENDS: tuple[End, ...] = (cast(End, SOURCE), cast(End, TARGET))
ADD_NODES = "add the missing nodes before the edges or together with them"
KEEP_NODES = "keep these nodes, remove their edges first, or replace the edges together with the nodes"


def find_missing_ends(change: TableChange, changes: Changes, stored: StoredRows) -> Iterator[Faults]:
    """Edges of a change with an end that is not there afterwards."""
    if not change.rows.num_rows:
        return  # a delete needs no nodes, so it must not depend on their tables
    ends = {end: change.rows.column(end) for end in ENDS}
    types = {end: node_type(change.target, end) for end in ENDS}
    if all(_are_all_new(ends[end], types[end], changes) for end in ENDS):
        return
    there = {
        node: find_existing(
            unique_texts(ends[end] for end in ENDS if types[end] == node), node, changes, stored
        )
        for node in sorted(set(types.values()))
    }
    for end in ENDS:
        found = np.flatnonzero(~is_among(ends[end], there[types[end]]))
        if not len(found):
            continue
        at = pa.array(found)
        reasons = missing_end_reasons(end, ends[end].take(at), types[end])
        ids = change.ids.take(at).combine_chunks()
        yield Faults("endpoint", change.target, found, ids, reasons, remedy=ADD_NODES)


def _are_all_new(ids: pa.ChunkedArray, node: str, changes: Changes) -> bool:
    """Whether all ids are those of nodes that the change itself writes."""
    nodes = changes.get(table_key("node", node))
    return nodes is not None and is_subset(ids, nodes.ids)


def find_dangling_edges(target: TableType, changes: Changes, stored: StoredRows) -> Iterator[Faults]:
    """Stored edges that stay although a node at one of their ends goes."""
    own = changes.get(target.key)
    if own is not None and own.replaces:
        return
    for end in ENDS:
        node = node_type(target, end)
        nodes = changes.get(table_key("node", node))
        if nodes is None or not len(nodes.deleted):
            continue
        kept = stored.edges_at(target.key, end, pc.unique(nodes.deleted))
        if own is not None:
            kept = kept.filter(pa.array(~is_among(kept.column(ID), own.gone)))
        if kept.num_rows:
            rows = np.full(kept.num_rows, NO_ROW, np.int64)
            reasons = missing_end_reasons(end, kept.column(end), node)
            ids = kept.column(ID).combine_chunks()
            yield Faults("endpoint", target, rows, ids, reasons, final=True, remedy=KEEP_NODES)


def node_type(target: TableType, end: End) -> str:
    """The type of the nodes at one end of an edge."""
    edge = cast(EdgeType, target.owner)
    return edge.source if end == SOURCE else edge.target


def find_existing(ids: pa.Array, node: str, changes: Changes, stored: StoredRows) -> pa.ChunkedArray:
    """Those of the ids whose node exists after the change."""
    key = table_key("node", node)
    change = changes.get(key)
    if change is None:
        return stored.existing(key, ids)
    new = is_among(ids, change.ids)
    written = pa.chunked_array([ids.filter(pa.array(new))])
    if change.replaces or new.all():
        return written
    kept = exclude(stored.existing(key, ids.filter(pa.array(~new))), change.deleted)
    return pa.chunked_array([*written.chunks, *kept.chunks], pa.string())


def missing_end_reasons(end: End, ids: pa.ChunkedArray, node: str) -> pa.Array:
    """What is wrong with edges whose ends are these ids."""
    return join_texts(f"{end} '", ids.combine_chunks(), f"' not found in {node}")


_REMEDY = (
    "give each source, stored edges included, as many edges as @card says, or change @card in the schema"
)


def find_cardinality_faults(change: TableChange, changes: Changes, stored: StoredRows) -> Iterator[Faults]:
    """Sources of a changed edge type with too many edges, reported at the latest ones, or with too few."""
    edge = cast(EdgeType, change.target.owner)
    if edge.cardinality == Cardinality():
        return
    sources, counts = _count_edges(change, changes.get(table_key("node", edge.source)), stored)
    low, high = edge.cardinality.minimum, edge.cardinality.maximum
    if high is not None and (counts > high).any():
        yield _find_excess_edges(change, sources, counts, high)
    if (counts < low).any():
        few = counts < low
        yield _without_row(change.target, sources.filter(pa.array(few)), counts[few], f"min {low}")


def find_count_faults(target: TableType, sources: pa.Array, counts: Numbers) -> Iterator[Faults]:
    """Of sources with so many edges each, those that have too many or too few."""
    bounds = cast(EdgeType, target.owner).cardinality
    if bounds.maximum is not None and (counts > bounds.maximum).any():
        over = counts > bounds.maximum
        yield _without_row(target, sources.filter(pa.array(over)), counts[over], f"max {bounds.maximum}")
    if (counts < bounds.minimum).any():
        under = counts < bounds.minimum
        yield _without_row(target, sources.filter(pa.array(under)), counts[under], f"min {bounds.minimum}")


def _count_edges(
    change: TableChange, nodes: TableChange | None, stored: StoredRows
) -> tuple[pa.Array, Numbers]:
    """The sources to look at and how many edges each has afterwards."""
    key, own = change.target.key, change.rows.column(SOURCE)
    if change.replaces:
        before = stored.edge_counts(key, None)
        sources = unique_texts([own, before.column(SOURCE)])
        counts = _per_source(own, sources)
    else:
        replaced = stored.edges(key, pc.unique(change.gone)).column(SOURCE)
        sources = unique_texts([own, replaced])
        before = stored.edge_counts(key, sources)
        counts = _per_source(own, sources) - _per_source(replaced, sources)
        place = pc.index_in(before.column(SOURCE), value_set=sources)
        counts[np.asarray(place)] += np.asarray(before.column("count"))
    if nodes is not None and len(nodes.deleted):
        alive = ~is_among(sources, nodes.deleted)
        return sources.filter(pa.array(alive)), counts[alive]
    return sources, counts


def _per_source(column: pa.ChunkedArray, sources: pa.Array) -> Numbers:
    places = np.asarray(pc.index_in(column, value_set=sources)) if len(column) else np.zeros(0, np.int64)
    return np.bincount(places.astype(np.int64), minlength=len(sources)).astype(np.int64)


def _find_excess_edges(change: TableChange, sources: pa.Array, counts: Numbers, high: int) -> Faults:
    """Each edge of the change beyond the maximum; of one source the latest."""
    column = change.rows.column(SOURCE).combine_chunks()
    place = pc.fill_null(pc.index_in(column, value_set=sources), -1).to_numpy(zero_copy_only=False)
    excess = np.where(place >= 0, counts[place] - high, 0) if len(counts) else np.zeros(len(place), np.int64)
    found = np.flatnonzero(excess > _later_edges(place))
    if not len(found):  # stored edges alone are too many
        over = counts > high
        return _without_row(change.target, sources.filter(pa.array(over)), counts[over], f"max {high}")
    at = pa.array(found)
    totals = pa.array(counts[place[found]]).cast(pa.string())
    reasons = _describe_counts(change.target, column.take(at), totals, f"max {high}")
    ids = change.ids.take(at).combine_chunks()
    return Faults("cardinality", change.target, found, ids, reasons, remedy=_REMEDY)


def _later_edges(place: Numbers) -> Numbers:
    """For each row how many later rows have the same source."""
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    ends = np.searchsorted(ordered, ordered, side="right")
    later = np.empty(len(place), np.int64)
    later[order] = ends - np.arange(len(place)) - 1
    return later


def _without_row(target: TableType, sources: pa.Array, counts: Numbers, bound: str) -> Faults:
    rows = np.full(len(sources), NO_ROW, np.int64)
    reasons = _describe_counts(target, sources, pa.array(counts).cast(pa.string()), bound)
    nodes = table_key("node", cast(EdgeType, target.owner).source)
    return Faults("cardinality", target, rows, sources, reasons, final=True, remedy=_REMEDY, about=nodes)


def _describe_counts(target: TableType, sources: pa.Array, totals: pa.Array, bound: str) -> pa.Array:
    where = f"@card violation on edge {target.name}: source '"
    return join_texts(where, sources, "' has ", totals, f" edges ({bound})")


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
            _read_bucket(nodes, ID, bucket, buckets), _read_bucket(edges, SOURCE, bucket, buckets), minimum
        )
        count += few.num_rows
        examples = pa.concat_tables([examples, few]).sort_by(ID).slice(0, EXAMPLES)
    reported = tuple(FewEdges(row[ID], row[_COUNT]) for row in examples.to_pylist())
    return BelowMinimum(snapshot.branch, edge.name, edge.source, minimum, count, total, reported)


_NO_EXAMPLES = pa.table({ID: pa.array([], pa.string()), _COUNT: pa.array([], pa.int64())})


def _find_few_edges(ids: pa.ChunkedArray, sources: pa.ChunkedArray, minimum: int) -> pa.Table:
    counted = pa.table({ID: sources}).group_by(ID).aggregate([([], "count_all")])
    place = pc.index_in(ids, value_set=counted.column(ID).combine_chunks())
    numbers = pc.fill_null(counted.column(_COUNT).combine_chunks().take(place.combine_chunks()), 0)
    found = pa.table({ID: ids.combine_chunks(), _COUNT: numbers})
    return found.filter(pc.less(numbers, minimum)).cast(_NO_EXAMPLES.schema)


def _read_bucket(table: Table, name: str, bucket: int, buckets: int) -> pa.ChunkedArray:
    """The values of a column that belong to one bucket."""
    chunks = (batch.column(name) for batch in table.batches([name]))
    if buckets > 1:
        chunks = (chunk.filter(_is_in(chunk, bucket, buckets)) for chunk in chunks)
    return pa.chunked_array(list(chunks), pa.string())


def _is_in(values: pa.Array, bucket: int, buckets: int) -> pa.Array:
    return pa.array(hash_keys(values) % np.uint64(buckets) == np.uint64(bucket))
