"""Split walks of several hops into batches, so that a query can stop between them and fits in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import Positions
from omnigraph.query.topology import walk
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.runs import split_runs

STEPS_AT_ONCE = 4_000_000
"""About how many edges one batch walks."""
FEW = 64
"""So few walks are one batch, whatever they cost."""
_DEEP = 4  # hops after which a walk is assumed to meet every edge


def batch_walks(
    linked: LinkedTopology, near: Positions, direction: EdgeDirection, maximum: int
) -> Iterator[Positions]:
    """Yield rows to walk from together, at least one batch; the rows of a node are adjacent."""
    if len(near) > FEW:
        order = np.argsort(near, kind="stable")
        parts = list(split_runs(_costs(linked, direction, maximum)[near[order]], STEPS_AT_ONCE))
        if len(parts) > 1:
            yield from (order[begin:end] for begin, end in parts)
            return
    yield np.arange(len(near))


def _costs(linked: LinkedTopology, direction: EdgeDirection, maximum: int) -> NDArray[np.int64]:
    """Bound how many edges the walk from each position meets; the last entry is that of NO_ROW."""
    edges = float(2 * linked.topology.edge_count)
    walks = total = walk.weights(linked, None, direction).astype(np.float64)
    for _ in range(1, min(maximum, _DEEP) if linked.shared else 1):
        walks = np.minimum(walk.weights(linked, walks, direction), edges)
        total = total + walks
    if maximum > _DEEP and linked.shared:
        total = np.where(walks > 0, edges, total)
    return np.append(np.minimum(total, edges), 0).astype(np.int64)
