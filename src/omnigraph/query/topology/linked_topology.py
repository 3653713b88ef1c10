"""A topology between the rows of two tables of nodes: positions instead of codes."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Final

import numpy as np

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.topology.adjacency import Adjacency, Counts, Ints, Mask, position_type
from omnigraph.query.topology.endpoint_codes import Codes
from omnigraph.query.topology.file_blocks import AdjacencyReader
from omnigraph.query.topology.topology import Topology

FEW = 64
"""From so many nodes a walk reads only their neighbours, where these are in a file."""


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

    def runs(self, nodes: Positions) -> tuple[Counts, Counts]:
        """Where the neighbours of nodes begin among `targets`, and how many there are."""
        return self.first[nodes], self.degree[nodes]

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


class FewSteps:
    """The same for a walk from few nodes, of which nothing is read but the neighbours of the nodes it meets.

    All that a hop needs is read when the runs of its nodes are asked for.
    """

    def __init__(self, stored: AdjacencyReader, *, with_edges: bool) -> None:
        self._stored = stored
        self._with_edges = with_edges
        self.targets: Final = stored.neighbours
        """Only those that were read mean anything."""
        self.edges: Final = stored.edges

    def runs(self, nodes: Positions) -> tuple[Counts, Counts]:
        """Where the neighbours of nodes begin among `targets`, and how many there are."""
        return self._stored.read(nodes, with_edges=self._with_edges)


class LinkedTopology:
    """A topology and the positions of its nodes in two tables of nodes; threads may share it.

    `sources` and `targets` are the position of each code, NO_ROW where no such node exists: an edge to
    or from it leads nowhere. They are None where codes are positions. With one type of node on both ends only
    that of `sources` counts.
    """

    def __init__(
        self,
        topology: Topology,
        sources: Positions | None,
        source_count: int,
        targets: Positions | None = None,
        target_count: int | None = None,
    ) -> None:
        self.topology: Final = topology
        self.source_count: Final = source_count
        self.target_count: Final = source_count if target_count is None else target_count
        self._sources = sources
        self._targets = sources if topology.shared else targets
        self._steps: dict[tuple[EdgeDirection, bool], Steps] = {}
        self._loops: Mask | None = None
        self._lock = threading.RLock()

    @cached_property
    def source_positions(self) -> Positions:
        """The position of each code at the source ends."""
        return np.arange(self.topology.shape.sources) if self._sources is None else self._sources

    @cached_property
    def target_positions(self) -> Positions:
        """The position of each code at the target ends."""
        if self.shared:
            return self.source_positions
        return np.arange(self.topology.shape.targets) if self._targets is None else self._targets

    @cached_property
    def source_codes(self) -> Codes:
        """The code of each position at the source ends; the last entry is that of NO_ROW."""
        return _codes_of(self.source_positions, self.source_count)

    @cached_property
    def target_codes(self) -> Codes:
        """The code of each position at the target ends; the last entry is that of NO_ROW."""
        return self.source_codes if self.shared else _codes_of(self.target_positions, self.target_count)

    @property
    def shared(self) -> bool:
        """Whether both ends have the same type of node."""
        return self.topology.shared

    @property
    def nbytes(self) -> int:
        """Memory taken by what is built so far, without the topology."""
        # Without the lock, which is held as long as another step is made; copying a dictionary is one step.
        steps = {id(each): each.nbytes for each in list(self._steps.values())}
        there = (self._sources, self._targets, *(vars(self).get(name) for name in _MADE))
        taken: int = sum({id(each): each.nbytes for each in there if each is not None}.values())
        return sum(steps.values()) + taken

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
        # Without the lock, which is held while a step is made; two threads that compute them get the same.
        found = self._loops
        if found is None:
            found = np.zeros(self.source_count, dtype=np.bool_)
            places = self.source_positions[self.topology.loops()]
            found[places[places >= 0]] = True
            self._loops = found
        return found

    def steps_from(self, nodes: Positions, direction: EdgeDirection, *, distinct: bool) -> Steps | FewSteps:
        """What a walk that begins at these nodes reads."""
        found = self._steps.get((direction, distinct))
        if found is not None:
            return found
        if len(nodes) <= FEW and self._sources is None and self._targets is None:
            stored = self.topology.runs(direction, distinct=distinct)
            if stored is not None and not stored.should_read_all:
                return FewSteps(stored, with_edges=not distinct)
        return self.steps(direction, distinct=distinct)

    def steps(self, direction: EdgeDirection, *, distinct: bool) -> Steps:
        """The neighbours of each position, as positions."""
        found = self._steps.get((direction, distinct))
        if found is not None:
            return found
        return run_in_worker(self.topology.edge_count, lambda: self._kept_steps(direction, distinct))

    def _kept_steps(self, direction: EdgeDirection, distinct: bool) -> Steps:
        with self._lock:
            if (direction, distinct) not in self._steps:
                self._steps[direction, distinct] = self._make_or_share(direction, distinct)
            return self._steps[direction, distinct]

    def _make_or_share(self, direction: EdgeDirection, distinct: bool) -> Steps:
        adjacency = self.topology.adjacency(direction, distinct=distinct)
        other = self._steps.get((direction, not distinct))
        if other is not None and adjacency is self.topology.adjacency(direction, distinct=not distinct):
            return other
        return self._make_steps(direction, adjacency)

    def _make_steps(self, direction: EdgeDirection, adjacency: Adjacency) -> Steps:
        far = self.source_positions if direction == "in" else self.target_positions
        targets, indptr, exists = _find_reached(adjacency, far, self.far_count(direction))
        codes = self.near_codes(direction)
        first, degree = np.append(indptr[:-1], 0), np.append(np.diff(indptr), 0)
        return Steps(first[codes], degree[codes], targets, indptr, adjacency, exists)


_MADE = ("source_positions", "target_positions", "source_codes", "target_codes")


def _find_reached(adjacency: Adjacency, far: Positions, count: int) -> tuple[Ints, Counts, Mask | None]:
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
