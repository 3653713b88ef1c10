"""Edges that arrive at some nodes, and what can be made of the values they bring along.

What a node gets depends only on the edges that arrive at it, taken in one order. So it is the same to the
last bit, however nodes are shared out among blocks and wherever these are worked on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.exact_sums import LARGEST_PART, cut_into_parts
from omnigraph.query.topology.adjacency import Counts, Mask, expand_runs, run_offsets, split_runs

WalkDirection = Literal["out", "in", "both"]
Numbers = NDArray[np.int64]
Part = tuple[Numbers, NDArray[Any]]
"""Some nodes, each once, and a value for each."""

_LARGEST = sys.float_info.max
_FEW = 32
"""When one node in so many changed, only the edges that leave these are looked at."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How edges are to be put into blocks."""

    way: WalkDirection
    """Along the edges, against them, or both; a loop is there once."""
    distinct: bool = False
    """Whether parallel edges are one."""
    weight: str | None = None
    corners: bool = False
    """Whether blocks are parts of the graph in which triangles are whole."""


@dataclass(frozen=True)
class Block:
    """The edges that arrive at `targets[i]` come from `sources[first[i]:first[i + 1]]`; both ascend."""

    targets: Numbers
    first: Counts
    sources: Numbers
    weights: NDArray[np.float64] | None = None
    corner: int = 0
    stays: bool = False
    """Whether it is used again and again, so that it pays to sort it another way as well."""

    @cached_property
    def leaving(self) -> tuple[Counts, Numbers]:
        """The edges by their source: where those of each node begin, and their places."""
        last = int(self.sources.max(initial=-1)) + 1
        return run_offsets(np.bincount(self.sources, minlength=last)), np.argsort(self.sources, kind="stable")

    @cached_property
    def owners(self) -> Numbers:
        """For each edge the place of its target."""
        return np.repeat(np.arange(len(self.targets)), np.diff(self.first))


class Edges(Protocol):
    """The edges of a graph in one arrangement."""

    @property
    def count(self) -> int:
        """How many nodes there are."""
        ...

    @property
    def corners(self) -> int:
        """How many kinds of nodes there are, where blocks are corners."""
        ...

    def parts(self, stage: str, task: Callable[[Block], Part]) -> Iterator[Part]:
        """What a task makes of each block, in any order."""
        ...


def build_block(
    targets: Numbers,
    sources: Numbers,
    count: int,
    weights: NDArray[np.float64] | None = None,
    *,
    distinct: bool = False,
    corner: int = 0,
    stays: bool = False,
) -> Block:
    """Edges in any order as a block."""
    keys = targets * np.int64(count) + sources
    if weights is not None:
        order = np.lexsort((weights, keys))
        keys, weights = keys[order], weights[order]
    else:
        keys = np.unique(keys) if distinct else np.sort(keys)
    arrived, froms = np.divmod(keys, np.int64(max(1, count)))
    fresh = np.flatnonzero(np.diff(arrived, prepend=-1))
    return Block(arrived[fresh], np.append(fresh, len(keys)), froms, weights, corner, stays)


def orient_edges(
    sources: Numbers, targets: Numbers, weights: NDArray[np.float64] | None, way: WalkDirection
) -> tuple[Numbers, Numbers, NDArray[np.float64] | None]:
    """The ends at which edges arrive, where they come from, and their weights, for a way to walk them."""
    if way == "out":
        return targets, sources, weights
    if way == "in":
        return sources, targets, weights
    proper = np.flatnonzero(sources != targets)
    arrive = np.concatenate([targets, sources[proper]])
    leave = np.concatenate([sources, targets[proper]])
    return arrive, leave, None if weights is None else np.concatenate([weights, weights[proper]])


# --- what arrives ----------------------------------------------------------------------------------


def count_arrivals(block: Block) -> Part:
    """How many edges arrive at each node."""
    return block.targets, np.diff(block.first)


def count_departures(block: Block) -> Part:
    """How many edges of the block leave each node."""
    nodes, counts = np.unique(block.sources, return_counts=True)
    return nodes, counts


def list_outflow(block: Block) -> Part:
    """Parts of the sum of the weights of the edges that leave each node; infinite if one is huge."""
    assert block.weights is not None
    if len(block.weights) and block.weights.max() >= LARGEST_PART:
        return block.sources[:1], np.array([np.inf])
    nodes, groups = np.unique(block.sources, return_inverse=True)
    parts = cut_into_parts(groups, len(nodes), block.weights)
    return np.tile(nodes, len(parts)), np.concatenate([np.empty(0), *parts])


@dataclass(frozen=True, slots=True)
class Flows:
    """What arrives at each node when every node shares its value among its edges, by their weights."""

    values: NDArray[np.float64]
    outflow: NDArray[np.float64]

    def __call__(self, block: Block) -> Part:
        if not len(block.targets):
            return block.targets, np.empty(0)
        assert block.weights is not None
        leaving = self.outflow[block.sources]
        shares = np.divide(block.weights, leaving, out=np.zeros(len(leaving)), where=leaving > 0)
        return block.targets, np.add.reduceat(self.values[block.sources] * shares, block.first[:-1])


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of the values that arrive at each node."""

    values: NDArray[np.float64]

    def __call__(self, block: Block) -> Part:
        if not len(block.targets):
            return block.targets, np.empty(0)
        return block.targets, np.add.reduceat(self.values[block.sources], block.first[:-1])


@dataclass(frozen=True, slots=True)
class Least:
    """The least value that arrives at each node, counting the weight of the edge, or `step`, on the way."""

    values: NDArray[Any]
    step: float = 0
    changed: Numbers | None = None
    """The nodes whose values are news; all of them when it is None."""

    def __call__(self, block: Block) -> Part:
        if not len(block.targets):
            return block.targets, self.values[:0]
        if self.changed is not None and block.stays and len(self.changed) * _FEW < len(self.values):
            return self._from_few(block, self.changed)
        arriving = self._arriving_values(block, slice(None))
        return block.targets, np.minimum.reduceat(arriving, block.first[:-1])

    def _from_few(self, block: Block, changed: Numbers) -> Part:
        first, places = block.leaving
        nodes = changed[changed < len(first) - 1]
        _, at = expand_runs(first[nodes], first[nodes + 1] - first[nodes])
        edges = places[at]
        owners = block.owners[edges]
        order = np.argsort(owners, kind="stable")
        met, begin = np.unique(owners[order], return_index=True)
        if not len(met):
            return block.targets[:0], self.values[:0]
        arriving = self._arriving_values(block, edges[order])
        return block.targets[met], np.minimum.reduceat(arriving, begin)

    def _arriving_values(self, block: Block, edges: Any) -> NDArray[Any]:
        taken = self.values[block.sources[edges]]
        if block.weights is not None:
            with np.errstate(over="ignore"):
                arriving = taken + block.weights[edges]
            # What is reached stays reached: a sum out of range is the largest number there is.
            return np.asarray(np.where(np.isinf(taken), taken, np.minimum(arriving, _LARGEST)))
        return np.asarray(taken + self.step) if self.step else taken


@dataclass(frozen=True, slots=True)
class Commonest:
    """The label that arrives most often at each node, the smallest of several."""

    labels: Numbers

    def __call__(self, block: Block) -> Part:
        if not len(block.targets):
            return block.targets, self.labels[:0]
        most = np.int64(len(self.labels))
        keys = np.sort(block.owners * most + self.labels[block.sources])
        begin = np.flatnonzero(np.diff(keys, prepend=-1))
        times = np.diff(np.append(begin, len(keys)))
        owners, labels = np.divmod(keys[begin], most)
        of_owner = np.flatnonzero(np.diff(owners, prepend=-1))
        best = np.repeat(np.maximum.reduceat(times, of_owner), np.diff(np.append(of_owner, len(owners))))
        winners = np.flatnonzero(times == best)
        # Labels ascend among those of a node, so the first winner is the smallest.
        firsts = winners[np.flatnonzero(np.diff(owners[winners], prepend=-1))]
        return block.targets, labels[firsts]


_AT_ONCE = 1 << 21


def list_corners(colours: int) -> list[tuple[int, int, int]]:
    """All corners of so many colours; a corner is known by its place."""
    return list(combinations_with_replacement(range(colours), 3))


def find_corners(ones: Numbers, others: Numbers, colours: int) -> Iterator[Numbers]:
    """The corners that edges between these nodes belong to: each edge is in one for each third colour."""
    number = np.full((colours,) * 3, -1, dtype=np.int64)
    for place, corner in enumerate(list_corners(colours)):
        number[corner] = place
    for third in range(colours):
        triples = np.stack([ones % colours, others % colours, np.full(len(ones), third)])
        triples.sort(axis=0)
        yield number[tuple(triples)]


@dataclass(frozen=True, slots=True)
class Triangles:
    """In how many triangles of a corner each node is; edges are there once in both directions."""

    colours: int = 1

    def __call__(self, block: Block) -> Part:
        count = len(block.targets)
        keys, height = _edge_keys_upwards(block)
        low, high = np.divmod(keys, max(1, count))
        runs = run_offsets(np.bincount(low, minlength=count))
        found = np.zeros(count, dtype=np.int64)
        nodes = np.empty(count, dtype=np.int64)
        nodes[height] = block.targets
        for corner in self._find_triangles(keys, low, high, runs, count):
            kept = self._belongs_to_corner(block, [nodes[each] for each in corner])
            for each in corner:
                found += np.bincount(each[kept], minlength=count)
        return block.targets, found[height]

    def _find_triangles(
        self, keys: Numbers, low: Numbers, high: Numbers, runs: Counts, count: int
    ) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """The three nodes of each triangle, by their height."""
        behind = np.arange(1, len(keys) + 1)
        left = runs[low + 1] - behind
        for begin, end in split_runs(left, _AT_ONCE):
            edge, other = expand_runs(behind[begin:end], left[begin:end])
            edge += begin
            middle, top = high[edge], high[other]
            wanted = middle * np.int64(count) + top
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            met = np.flatnonzero(keys[place] == wanted)
            yield low[edge[met]], middle[met], top[met]

    def _belongs_to_corner(self, block: Block, nodes: list[Numbers]) -> Mask:
        if self.colours == 1:
            return np.ones(len(nodes[0]), dtype=np.bool_)
        found = np.sort(np.stack([each % self.colours for each in nodes]), axis=0)
        wanted = np.array(list_corners(self.colours)[block.corner])
        return np.asarray((found == wanted[:, None]).all(axis=0))


def _edge_keys_upwards(block: Block) -> tuple[Numbers, Numbers]:
    """Edges as sorted keys of two heights, the lower end first, and the height of each target."""
    count = len(block.targets)
    degrees = np.diff(block.first)
    height = np.empty(count, dtype=np.int64)
    height[np.lexsort((block.targets, degrees))] = np.arange(count)
    ones, others = height[block.owners], height[np.searchsorted(block.targets, block.sources)]
    up = np.flatnonzero(ones < others)
    return np.sort(ones[up] * np.int64(count) + others[up]), height
