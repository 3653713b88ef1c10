"""Edges start and end at nodes that exist, before and after a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.layout import table_key
from omnigraph.engine.write.change import Change, Changes, within, without
from omnigraph.engine.write.faults import NO_ROW, Faults, joined
from omnigraph.engine.write.stored import End, Stored
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.violations import Flags
from omnigraph.lang.schema.catalog import EdgeType

_ENDS: tuple[End, ...] = (cast(End, SOURCE), cast(End, TARGET))


def missing_ends(change: Change, changes: Changes, stored: Stored) -> Iterator[Faults]:
    """Edges of a change with an end that is not there afterwards."""
    for end in _ENDS:
        node = _node_type(change.target, end)
        ends = change.rows.column(end)
        found = np.flatnonzero(~_there(ends, node, changes, stored))
        if not len(found):
            continue
        at = pa.array(found)
        reasons = _reasons(end, ends.take(at), node)
        yield Faults("endpoint", change.target, found, change.ids.take(at).combine_chunks(), reasons)


def stranded_edges(target: Target, changes: Changes, stored: Stored) -> Iterator[Faults]:
    """Stored edges that stay although a node at one of their ends goes."""
    own = changes.get(target.key)
    if own is not None and own.replaces:
        return
    for end in _ENDS:
        node = _node_type(target, end)
        nodes = changes.get(table_key("node", node))
        if nodes is None or not len(nodes.deleted):
            continue
        kept = stored.edges_at(target.key, end, pc.unique(nodes.deleted))
        if own is not None:
            kept = kept.filter(pa.array(~within(kept.column(ID), own.gone)))
        if kept.num_rows:
            rows = np.full(kept.num_rows, NO_ROW, np.int64)
            reasons = _reasons(end, kept.column(end), node)
            ids = kept.column(ID).combine_chunks()
            yield Faults("endpoint", target, rows, ids, reasons, final=True)


def _node_type(target: Target, end: End) -> str:
    edge = cast(EdgeType, target.owner)
    return edge.source if end == SOURCE else edge.target


def _there(ids: pa.ChunkedArray, node: str, changes: Changes, stored: Stored) -> Flags:
    """For each id whether the node exists after the change."""
    key = table_key("node", node)
    change = changes.get(key)
    if change is None:
        return within(ids, stored.existing(key, pc.unique(ids)))
    there = within(ids, change.ids)
    if change.replaces or there.all():
        return there
    open_ = ids.filter(pa.array(~there))
    return there | within(ids, without(stored.existing(key, pc.unique(open_)), change.deleted))


def _reasons(end: End, ids: pa.ChunkedArray, node: str) -> pa.Array:
    return joined(f"{end} '", ids.combine_chunks(), f"' not found in {node}")
