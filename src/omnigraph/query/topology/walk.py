"""Hops over a linked topology, on positions; whole arrays at a time.

A source that is NO_ROW, or whose node has no edges, gives nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import Positions, checked_sums
from omnigraph.query.topology.adjacency import Counts, Ints, Mask, bisect_values, expand_runs
from omnigraph.query.topology.breadth_first import CHUNK, find_reached, reach_distinct, reach_parts
from omnigraph.query.topology.linked_topology import FewSteps, LinkedTopology, Steps

__all__ = [
    "OneHop",
    "are_connected",
    "begin_hop",
    "count_hop_rows",
    "edges_between",
    "find_reached",
    "hop",
    "hop_edges",
    "reach_distinct",
    "reach_parts",
    "sum_neighbours",
]

Number = TypeVar("Number", np.int64, np.float64)


def count_hop_rows(
    linked: LinkedTopology, sources: Positions, direction: EdgeDirection, *, distinct: bool = True
) -> Counts:
    """How many rows each incoming row becomes by a hop."""
    return linked.steps_from(sources, direction, distinct=distinct).runs(sources)[1]


@dataclass(frozen=True, slots=True)
class OneHop:
    """A hop from some nodes: whatever it needs of a file was read, and its rows can be made part by part."""

    steps: Steps | FewSteps
    first: Counts
    fanout: Counts
    """How many rows each incoming row becomes."""
    named: bool

    def part(self, begin: int, end: int) -> tuple[Positions, ...]:
        """For some incoming rows: which one each outgoing row comes from, its target and maybe its edge."""
        row_index, places = expand_runs(self.first[begin:end], self.fanout[begin:end])
        found = (row_index + begin if begin else row_index), _take_positions(self.steps.targets, places)
        return (*found, _take_positions(self.steps.edges, places)) if self.named else found


def begin_hop(linked: LinkedTopology, sources: Positions, direction: EdgeDirection, *, named: bool) -> OneHop:
    """A hop from these nodes: each neighbour once, or each edge if edges are `named`."""
    steps = linked.steps_from(sources, direction, distinct=not named)
    return OneHop(steps, *steps.runs(sources), named)


def hop(
    linked: LinkedTopology, sources: Positions, direction: EdgeDirection, *, distinct: bool = True
) -> tuple[Positions, Positions]:
    """Which incoming row each outgoing one comes from, and its target: each neighbour once if distinct."""
    steps = linked.steps_from(sources, direction, distinct=distinct)
    row_index, targets = OneHop(steps, *steps.runs(sources), named=False).part(0, len(sources))
    return row_index, targets


def hop_edges(
    linked: LinkedTopology, sources: Positions, direction: EdgeDirection
) -> tuple[Positions, Positions, Positions]:
    """Incoming row, target and edge position for each stored edge; in both directions a self-loop once."""
    row_index, targets, edges = begin_hop(linked, sources, direction, named=True).part(0, len(sources))
    return row_index, targets, edges


def are_connected(
    linked: LinkedTopology,
    sources: Positions,
    targets: Positions,
    direction: EdgeDirection,
    minimum: int = 1,
    maximum: int = 1,
    *,
    chunk: int = CHUNK,
) -> Mask:
    """Which rows have a target that their source reaches."""
    if minimum > 1 and not linked.shared:
        return np.zeros(len(sources), dtype=np.bool_)
    if maximum == 1 or not linked.shared:
        low, high = _find_runs_between(linked, sources, targets, direction, distinct=True)
        return low < high
    return _connected_by_paths(linked, sources, targets, direction, minimum, maximum, chunk)


def edges_between(
    linked: LinkedTopology, sources: Positions, targets: Positions, direction: EdgeDirection
) -> tuple[Positions, Positions]:
    """Incoming row and edge position for each stored edge from the row's source to its target."""
    low, high = _find_runs_between(linked, sources, targets, direction, distinct=False)
    row_index, places = expand_runs(low, high - low)
    return row_index, _take_positions(linked.topology.adjacency(direction).edges, places)


def _find_runs_between(
    linked: LinkedTopology,
    sources: Positions,
    targets: Positions,
    direction: EdgeDirection,
    *,
    distinct: bool,
) -> tuple[Counts, Counts]:
    """The run of places in the adjacency that join each source with its target."""
    adjacency = linked.topology.adjacency(direction, distinct=distinct)
    near, far = linked.near_codes(direction)[sources], linked.far_codes(direction)[targets]
    first = adjacency.indptr[near]
    end = np.where(near >= 0, adjacency.indptr[near + 1], first)  # a target without a code is in no run
    low = bisect_values(adjacency.neighbours, first, end, far, after=False)
    if distinct:
        inside = np.flatnonzero(low < end)
        high = low.copy()
        high[inside] += adjacency.neighbours[low[inside]] == far[inside]
        return low, high
    return low, bisect_values(adjacency.neighbours, low, end, far, after=True)


def _connected_by_paths(
    linked: LinkedTopology,
    sources: Positions,
    targets: Positions,
    direction: EdgeDirection,
    minimum: int,
    maximum: int,
    chunk: int,
) -> Mask:
    count = linked.source_count
    wanted = np.zeros(count + 1, dtype=np.bool_)
    wanted[targets] = True
    wanted[-1] = False
    possible = (sources >= 0) & (targets >= 0)
    keys, back = np.unique(np.where(possible, sources * count + targets, -1), return_inverse=True)
    met = np.zeros(len(keys), dtype=np.bool_)
    starts = np.unique(sources[possible])
    for row_index, reached in reach_parts(linked, starts, direction, minimum, maximum, chunk=chunk):
        seen = np.flatnonzero(wanted[reached])
        found = starts[row_index[seen]] * count + reached[seen]
        places = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        met[places[keys[places] == found]] = True
    return met[back]


def sum_neighbours(
    linked: LinkedTopology, values: NDArray[Number] | None, direction: EdgeDirection, *, distinct: bool = True
) -> NDArray[Number] | Counts:
    """For each source position the sum of the values of its neighbours; without values their number.

    Sums of integers are exact: one that leaves 64 bits is refused with a `QueryError`. A neighbour that
    parallel edges lead to counts once if distinct, else once for each edge.
    """
    steps = linked.steps(direction, distinct=distinct)
    if values is None:
        return steps.degree[:-1].copy()
    taken = values.take(steps.targets)
    if values.dtype.kind == "f":
        added: NDArray[Any] = _sum_runs(taken, steps.indptr)
    else:
        largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
        most = float(largest) * int(steps.degree.max(initial=0))
        added = checked_sums(
            taken.astype(np.int64, copy=False), lambda each: _sum_runs(each, steps.indptr), most
        )
    by_code = np.append(added, np.zeros(1, dtype=values.dtype))
    return by_code[linked.near_codes(direction)[:-1]]


def _sum_runs(taken: NDArray[Number], indptr: Counts) -> NDArray[Number]:
    """The sum of each run; runs without values are left out of the reduction, which cannot express them."""
    sums = np.zeros(len(indptr) - 1, dtype=taken.dtype)
    filled = np.flatnonzero(indptr[1:] > indptr[:-1])
    if len(filled):
        sums[filled] = np.add.reduceat(taken, indptr[filled])
    return sums


def _take_positions(held: Ints, places: Positions) -> Positions:
    return held.take(places, mode="clip").astype(np.int64, copy=False)  # clip: no check of what is right
