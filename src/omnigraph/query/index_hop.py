"""Hop from few nodes over a large edge table that is not in memory, through the indexes on its ends.

Reading or sorting all edges pays when many walks follow. The first few use the B-trees on `src` and `dst`
instead; once they cost as much together as the adjacency would, that is read or sorted after all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.predicate import one_of
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.context import QueryContext
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.rows import Rows
from omnigraph.query.topology.adjacency import expand_runs
from omnigraph.query.topology.linked_topology import FEW
from omnigraph.storage.indexes import read_coverage

LARGE = 500_000
"""Edge tables from this size on may be walked through an index."""
_FEW_NODES = 256

# Milliseconds, about; only how they compare matters.
_LOOKUP = 10.0  # of an index, however little it finds
_LOOKUP_NODE = 0.02
_LOOKUP_EDGE = 0.005
_READ_NODE = 0.05  # of the neighbours of one node in the saved adjacency
_READ = 0.4 / 1_000_000  # of a byte of it, when all are read
_LINK = 0.00002  # of a node, before the first walk
_FIND = 0.0004  # of the position of an id, where nodes were changed since
_SORT = 0.0004  # of an edge, with reading it

_NEAR = {"out": SOURCE, "in": TARGET}
_FAR = {"out": TARGET, "in": SOURCE}
_SMALL_ENTRY = 256  # bytes, about


@dataclass(frozen=True, slots=True)
class HopRows:
    """The rows of a hop: the incoming row, the node reached and the row id of the edge walked."""

    rows: Positions
    targets: Positions
    edges: NDArray[np.uint64]

    def distinct(self) -> HopRows:
        """Each node once for each incoming row."""
        pairs = np.stack([self.rows, self.targets])
        _, first = np.unique(pairs, axis=1, return_index=True)
        return HopRows(self.rows[first], self.targets[first], self.edges[first])


def should_use_index(
    context: QueryContext, edge_type: str, sources: Positions, direction: EdgeDirection, *, named: bool
) -> bool:
    """Whether a hop from these nodes should use the indexes on disk; `named` hops need edge positions."""
    edges = context.sources.edges(edge_type)
    if edges.live_count < LARGE or len(sources) > _FEW_NODES:
        return False
    key = (*edges.identity, "index hops", direction)
    spent = (context.sources.memory.get(key) or 0.0) + _index_cost(context, edge_type, sources, direction)
    if spent > _adjacency_cost(context, edge_type, len(sources), direction, named):
        return False
    if not _has_indexes(context, edges):
        return False
    context.sources.memory.keep(key, spent, _SMALL_ENTRY)
    return True


def _index_cost(context: QueryContext, edge_type: str, sources: Positions, direction: EdgeDirection) -> float:
    declared = context.sources.catalog.edges[edge_type]
    edges = context.sources.edges(edge_type).live_count
    near = context.sources.nodes(declared.target if direction == "in" else declared.source)
    met = len(sources) * edges / max(1, near.live_count)
    return (_LOOKUP + len(sources) * _LOOKUP_NODE + met * _LOOKUP_EDGE) * (2 if direction == "both" else 1)


def _adjacency_cost(
    context: QueryContext, edge_type: str, sources: int, direction: EdgeDirection, named: bool
) -> float:
    """Estimate the cost of having the adjacency for a hop in this direction in memory."""
    topology = context.sources.topology(edge_type)
    if topology is None:
        return context.sources.edges(edge_type).live_count * _SORT
    state = topology.state(direction, distinct=not named)
    if state == "in memory":
        return 0.0
    if state == "to be sorted":
        return topology.edge_count * _SORT
    stored = topology.shape.stored[direction, not named]
    numbered = context.sources.is_numbered_by_nodes(edge_type)
    if numbered and sources <= FEW:
        return sources * _READ_NODE
    linking = _LINK if numbered else _FIND
    read = stored.neighbours + (stored.edges if named else 0)
    return read * _READ + topology.shape.sources * linking


def _has_indexes(context: QueryContext, edges: Rows) -> bool:
    def found() -> frozenset[str]:
        stored = read_coverage(edges.table).values()
        return frozenset(name for index in stored if "BTREE" in index.type.upper() for name in index.columns)

    key = (*edges.identity, "end indexes")
    return context.sources.memory.get_or_make(key, found, lambda _: _SMALL_ENTRY) >= {SOURCE, TARGET}


def hop_by_index(
    context: QueryContext, edge_type: str, near: str, far: str, sources: Positions, direction: EdgeDirection
) -> HopRows:
    """Return a row for each stored edge; in both directions a self-loop once."""
    if direction != "both":
        return _one_way(context, edge_type, near, far, sources, direction)
    out = _one_way(context, edge_type, near, far, sources, "out")
    back = _one_way(context, edge_type, near, far, sources, "in")
    loops = back.targets == sources[back.rows]
    return HopRows(
        np.concatenate([out.rows, back.rows[~loops]]),
        np.concatenate([out.targets, back.targets[~loops]]),
        np.concatenate([out.edges, back.edges[~loops]]),
    )


def _one_way(
    context: QueryContext, edge_type: str, near: str, far: str, sources: Positions, direction: EdgeDirection
) -> HopRows:
    edges = context.sources.edges(edge_type)
    known = np.unique(sources[sources >= 0])
    if len(known) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return HopRows(nothing, nothing, nothing.astype(np.uint64))
    ids = context.rows(near).take(ID, known)
    where = one_of(_NEAR[direction], ids.to_pylist())
    found = run_in_worker(
        edges.count, lambda: edges.table.scan([SOURCE, TARGET], where=where, row_ids=True).combine_chunks()
    )
    starts = pc.index_in(found.column(_NEAR[direction]), value_set=ids).to_numpy(zero_copy_only=False)
    ends = context.rows(far).find(_to_array(found.column(_FAR[direction])))
    return _spread_edges(sources, known[starts], ends, found.column("_rowid").to_numpy())


def _spread_edges(
    sources: Positions, starts: Positions, ends: Positions, edges: NDArray[np.uint64]
) -> HopRows:
    """Each edge for every incoming row that stands at its start."""
    order = np.argsort(sources, kind="stable")
    ordered = sources[order]
    first = np.searchsorted(ordered, starts, "left")
    counts = np.searchsorted(ordered, starts, "right") - first
    which, places = expand_runs(first, counts)
    rows = order[places]
    reached = ends[which] != NO_ROW
    back = np.argsort(rows[reached], kind="stable")
    return HopRows(rows[reached][back], ends[which][reached][back], edges[which][reached][back])


def _to_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
