"""A hop from few nodes over a large edge table that is not in memory: through the indexes of its ends.

Reading or sorting all edges pays when many walks follow. The first few ask the B-trees on `src` and `dst`
instead; as soon as they cost together what the adjacency costs, that is read or sorted after all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.write.sql import one_of
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import apart
from omnigraph.query.reading import Reading
from omnigraph.query.rows import Rows
from omnigraph.query.topology.linked import FEW
from omnigraph.query.topology.spread import spread
from omnigraph.storage.indexes import coverage

LARGE = 500_000
"""Edges from which on a hop may go through an index."""
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
class Hop:
    """Rows that a hop gives: the incoming row, the node reached and the row id of the edge walked."""

    rows: Positions
    targets: Positions
    edges: NDArray[np.uint64]

    def distinct(self) -> Hop:
        """Each node once for each incoming row."""
        pairs = np.stack([self.rows, self.targets])
        _, first = np.unique(pairs, axis=1, return_index=True)
        return Hop(self.rows[first], self.targets[first], self.edges[first])


def goes_cold(
    reading: Reading, edge_type: str, sources: Positions, direction: EdgeDirection, *, named: bool
) -> bool:
    """Whether a hop from these nodes should ask the indexes on disk; `named` ones need edge positions."""
    edges = reading.sources.edges(edge_type)
    if edges.live_count < LARGE or len(sources) > _FEW_NODES:
        return False
    key = (*edges.identity, "cold hops", direction)
    spent = (reading.sources.memory.get(key) or 0.0) + _index_cost(reading, edge_type, sources, direction)
    if spent > _adjacency_cost(reading, edge_type, len(sources), direction, named):
        return False
    if not _has_indexes(reading, edges):
        return False
    reading.sources.memory.keep(key, spent, _SMALL_ENTRY)
    return True


def _index_cost(reading: Reading, edge_type: str, sources: Positions, direction: EdgeDirection) -> float:
    declared = reading.sources.catalog.edges[edge_type]
    edges = reading.sources.edges(edge_type).live_count
    near = reading.sources.nodes(declared.target if direction == "in" else declared.source)
    met = len(sources) * edges / max(1, near.live_count)
    return (_LOOKUP + len(sources) * _LOOKUP_NODE + met * _LOOKUP_EDGE) * (2 if direction == "both" else 1)


def _adjacency_cost(
    reading: Reading, edge_type: str, sources: int, direction: EdgeDirection, named: bool
) -> float:
    """What is left to do before a hop in this direction is a matter of memory."""
    topology = reading.sources.topology(edge_type)
    if topology is None:
        return reading.sources.edges(edge_type).live_count * _SORT
    state = topology.state(direction, distinct=not named)
    if state == "in memory":
        return 0.0
    if state == "to be sorted":
        return topology.edge_count * _SORT
    stored = topology.shape.stored[direction, not named]
    numbered = reading.sources.is_numbered_by_nodes(edge_type)
    if numbered and sources <= FEW:
        return sources * _READ_NODE
    linking = _LINK if numbered else _FIND
    read = stored.neighbours + (stored.edges if named else 0)
    return read * _READ + topology.shape.sources * linking


def _has_indexes(reading: Reading, edges: Rows) -> bool:
    def found() -> frozenset[str]:
        stored = coverage(edges.table).values()
        return frozenset(name for index in stored if "BTREE" in index.type.upper() for name in index.columns)

    key = (*edges.identity, "end indexes")
    return reading.sources.memory.get_or_make(key, found, lambda _: _SMALL_ENTRY) >= {SOURCE, TARGET}


def cold_hop(
    reading: Reading, edge_type: str, near: str, far: str, sources: Positions, direction: EdgeDirection
) -> Hop:
    """One row for each stored edge; in both directions a self-loop once."""
    if direction != "both":
        return _one_way(reading, edge_type, near, far, sources, direction)
    out = _one_way(reading, edge_type, near, far, sources, "out")
    back = _one_way(reading, edge_type, near, far, sources, "in")
    loops = back.targets == sources[back.rows]
    return Hop(
        np.concatenate([out.rows, back.rows[~loops]]),
        np.concatenate([out.targets, back.targets[~loops]]),
        np.concatenate([out.edges, back.edges[~loops]]),
    )


def _one_way(
    reading: Reading, edge_type: str, near: str, far: str, sources: Positions, direction: EdgeDirection
) -> Hop:
    edges = reading.sources.edges(edge_type)
    known = np.unique(sources[sources >= 0])
    if len(known) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Hop(nothing, nothing, nothing.astype(np.uint64))
    ids = reading.rows(near).take(ID, known)
    where = one_of(_NEAR[direction], ids.to_pylist())
    found = apart(
        edges.count, lambda: edges.table.scan([SOURCE, TARGET], where=where, row_ids=True).combine_chunks()
    )
    starts = pc.index_in(found.column(_NEAR[direction]), value_set=ids).to_numpy(zero_copy_only=False)
    ends = reading.rows(far).find(_array(found.column(_FAR[direction])))
    return _spread(sources, known[starts], ends, found.column("_rowid").to_numpy())


def _spread(sources: Positions, starts: Positions, ends: Positions, edges: NDArray[np.uint64]) -> Hop:
    """Each edge for every incoming row that stands at its start."""
    order = np.argsort(sources, kind="stable")
    ordered = sources[order]
    first = np.searchsorted(ordered, starts, "left")
    counts = np.searchsorted(ordered, starts, "right") - first
    which, places = spread(first, counts)
    rows = order[places]
    reached = ends[which] != NO_ROW
    back = np.argsort(rows[reached], kind="stable")
    return Hop(rows[reached][back], ends[which][reached][back], edges[which][reached][back])


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
