"""A topology between the rows of two tables of nodes: positions instead of codes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology.adjacency import Adjacency, Counts, Ints, Mask, position_type
from omnigraph.query.topology.endpoint_codes import Codes
from omnigraph.query.topology.topology import Topology


@dataclass(frozen=True)
class Steps:
    """What a hop in one direction reads, by node position.

    The neighbours of the node at `p` are `targets[first[p]:first[p] + degree[p]]`. Both have one more
    entry than there are nodes, without neighbours, so that NO_ROW, the last entry, leads nowhere.
    """

    first: Counts
    degree: Counts
    targets: Ints
    indptr: Counts
    """The same runs by code, in the order in which `targets` holds them."""
    adjacency: Adjacency
    exists: Mask | None
    """Which neighbours of the adjacency exist; None when all do."""

    @cached_property
    def edges(self) -> Ints:
        """The position of the edge to each target."""
        return self.adjacency.edges if self.exists is None else self.adjacency.edges[self.exists]

    @property
    def nbytes(self) -> int:
        """Memory taken, without the adjacency."""
        targets = 0 if self.targets is self.adjacency.neighbours else self.targets.nbytes
        left_out = 0 if self.exists is None else self.exists.nbytes + self.indptr.nbytes
        return self.first.nbytes + self.degree.nbytes + targets + left_out


class Linked:
    """A topology and the positions of its nodes in two tables of nodes; threads may share it.

    `sources` and `targets` are the position of each code, NO_ROW where no such node exists: an edge to
    or from it leads nowhere. With one type of node on both ends only `sources` is given.
    """

    def __init__(
        self,
        topology: Topology,
        sources: Positions,
        source_count: int,
        targets: Positions | None = None,
        target_count: int | None = None,
    ) -> None:
        self.topology: Final = topology
        self.source_positions: Final = sources
        self.target_positions: Final = sources if targets is None else targets
        self.source_count: Final = source_count
        self.target_count: Final = source_count if target_count is None else target_count
        self.source_codes: Final = _codes_of(self.source_positions, self.source_count)
        self.target_codes: Final = (
            self.source_codes
            if self.target_positions is self.source_positions
            else _codes_of(self.target_positions, self.target_count)
        )
        self._steps: dict[tuple[EdgeDirection, bool], Steps] = {}
        self._loops: Mask | None = None
        self._lock = threading.RLock()

    @property
    def shared(self) -> bool:
        """Whether both ends have the same type of node."""
        return self.topology.shared

    @property
    def nbytes(self) -> int:
        """Memory taken by what is built so far, without the topology."""
        with self._lock:
            steps = {id(each): each.nbytes for each in self._steps.values()}
        taken = sum(steps.values()) + self.source_positions.nbytes + self.source_codes.nbytes
        if self.target_positions is not self.source_positions:
            taken += self.target_positions.nbytes + self.target_codes.nbytes
        return taken

    def near_count(self, direction: EdgeDirection) -> int:
        """How many positions there are on the side a walk in this direction leaves."""
        return self.target_count if direction == "in" else self.source_count

    def far_count(self, direction: EdgeDirection) -> int:
        """How many positions there are on the side a walk in this direction reaches."""
        return self.source_count if direction == "in" else self.target_count

    def near_codes(self, direction: EdgeDirection) -> Codes:
        """The code of each position on the side a walk leaves; the last entry is that of NO_ROW."""
        return self.target_codes if direction == "in" else self.source_codes

    def far_codes(self, direction: EdgeDirection) -> Codes:
        """The code of each position on the side a walk reaches; the last entry is that of NO_ROW."""
        return self.source_codes if direction == "in" else self.target_codes

    def loops(self) -> Mask:
        """Which positions have an edge to themselves."""
        with self._lock:
            if self._loops is None:
                found = np.zeros(self.source_count, dtype=np.bool_)
                places = self.source_positions[self.topology.loops()]
                found[places[places >= 0]] = True
                self._loops = found
            return self._loops

    def steps(self, direction: EdgeDirection, *, distinct: bool) -> Steps:
        """The neighbours of each position, as positions."""
        found = self._steps.get((direction, distinct))
        if found is not None:
            return found
        with self._lock:
            if (direction, distinct) not in self._steps:
                self._steps[direction, distinct] = self._made_or_shared(direction, distinct)
            return self._steps[direction, distinct]

    def _made_or_shared(self, direction: EdgeDirection, distinct: bool) -> Steps:
        adjacency = self.topology.adjacency(direction, distinct=distinct)
        other = self._steps.get((direction, not distinct))
        if other is not None and adjacency is self.topology.adjacency(direction, distinct=not distinct):
            return other
        return self._made(direction, adjacency)

    def _made(self, direction: EdgeDirection, adjacency: Adjacency) -> Steps:
        far = self.source_positions if direction == "in" else self.target_positions
        targets, indptr, exists = _reached(adjacency, far, self.far_count(direction))
        codes = self.near_codes(direction)
        first, degree = np.append(indptr[:-1], 0), np.append(np.diff(indptr), 0)
        return Steps(first[codes], degree[codes], targets, indptr, adjacency, exists)


def _reached(adjacency: Adjacency, far: Positions, count: int) -> tuple[Ints, Counts, Mask | None]:
    """Neighbours as positions, where the run of each code is among them, and which of them exist."""
    if np.array_equal(far, np.arange(len(far))):
        return adjacency.neighbours, adjacency.indptr, None  # codes that are positions, as mostly
    targets = far.astype(position_type(count))[adjacency.neighbours]
    if bool((far >= 0).all()):
        return targets, adjacency.indptr, None
    exists = targets >= 0
    kept = np.zeros(len(targets) + 1, dtype=np.int64)
    np.cumsum(exists, out=kept[1:])
    return targets[exists], kept[adjacency.indptr], exists


def _codes_of(positions: Positions, count: int) -> Codes:
    """The code of each position, NO_ROW for a node without edges, and one NO_ROW more for NO_ROW itself."""
    codes = np.full(count + 1, NO_ROW, dtype=np.int32)
    known = np.flatnonzero(positions >= 0)
    codes[positions[known]] = known
    return codes
