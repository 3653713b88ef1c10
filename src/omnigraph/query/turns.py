"""Walks of several hops in turns, so that a query can be stopped between them and never holds too much."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import Positions
from omnigraph.query.topology import walk
from omnigraph.query.topology.linked import Linked
from omnigraph.query.topology.spread import pieces

STEPS_AT_ONCE = 4_000_000
"""About so many edges are walked in one turn."""
FEW = 64
"""So few walks are one turn, whatever they cost."""
_DEEP = 4  # hops beyond which a walk may as well have met every edge


def turns(linked: Linked, near: Positions, direction: EdgeDirection, maximum: int) -> Iterator[Positions]:
    """Rows whose walks are done together, at least one turn; the rows of a node are next to each other."""
    if len(near) > FEW:
        order = np.argsort(near, kind="stable")
        parts = list(pieces(_costs(linked, direction, maximum)[near[order]], STEPS_AT_ONCE))
        if len(parts) > 1:
            yield from (order[begin:end] for begin, end in parts)
            return
    yield np.arange(len(near))


def _costs(linked: Linked, direction: EdgeDirection, maximum: int) -> NDArray[np.int64]:
    """At most so many edges are met by the walk from each position; the last entry is that of NO_ROW."""
    edges = float(2 * linked.topology.edge_count)
    walks = total = walk.weights(linked, None, direction).astype(np.float64)
    for _ in range(1, min(maximum, _DEEP) if linked.shared else 1):
        walks = np.minimum(walk.weights(linked, walks, direction), edges)
        total = total + walks
    if maximum > _DEEP and linked.shared:
        total = np.where(walks > 0, edges, total)
    return np.append(np.minimum(total, edges), 0).astype(np.int64)
