"""Edges start and end at nodes that exist, before and after a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.faults import NO_ROW, Faults, join_texts
from omnigraph.engine.constraints.stored_rows import End, StoredRows
from omnigraph.engine.constraints.table_change import Changes, TableChange, exclude, is_among, unique_texts
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.rows.lookup import is_subset
from omnigraph.lang.schema.catalog import EdgeType

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
