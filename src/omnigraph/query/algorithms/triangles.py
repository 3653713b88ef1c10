"""Triangles of nodes, each found once.

Nodes are put in order of their degree and edges lead upwards: a node has few edges upwards, however many it
has in all. Two edges up from one node are a triangle when their upper ends are joined.

Where a graph is too large for one process, nodes have colours (their number modulo the number of colours),
and each three colours make a corner: all edges between nodes of these colours. A triangle is counted in the
one corner that has exactly its colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from omnigraph.query.algorithms.edge_block import Block, Part
from omnigraph.query.algorithms.node_numbering import Numbers
from omnigraph.query.topology.adjacency import Counts, Mask, offsets
from omnigraph.query.topology.runs import expand_runs, split_runs

_AT_ONCE = 1 << 21


def corners(colours: int) -> list[tuple[int, int, int]]:
    """All corners of so many colours; a corner is known by its place."""
    return list(combinations_with_replacement(range(colours), 3))


def corners_of(ones: Numbers, others: Numbers, colours: int) -> Iterator[Numbers]:
    """The corners that edges between these nodes belong to: each edge is in one for each third colour."""
    number = np.full((colours,) * 3, -1, dtype=np.int64)
    for place, corner in enumerate(corners(colours)):
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
        keys, height = _upwards(block)
        low, high = np.divmod(keys, max(1, count))
        runs = offsets(np.bincount(low, minlength=count))
        found = np.zeros(count, dtype=np.int64)
        nodes = np.empty(count, dtype=np.int64)
        nodes[height] = block.targets
        for corner in self._whole(keys, low, high, runs, count):
            kept = self._belongs(block, [nodes[each] for each in corner])
            for each in corner:
                found += np.bincount(each[kept], minlength=count)
        return block.targets, found[height]

    def _whole(
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

    def _belongs(self, block: Block, nodes: list[Numbers]) -> Mask:
        if self.colours == 1:
            return np.ones(len(nodes[0]), dtype=np.bool_)
        found = np.sort(np.stack([each % self.colours for each in nodes]), axis=0)
        wanted = np.array(corners(self.colours)[block.corner])
        return np.asarray((found == wanted[:, None]).all(axis=0))


def _upwards(block: Block) -> tuple[Numbers, Numbers]:
    """Edges as sorted keys of two heights, the lower end first, and the height of each target."""
    count = len(block.targets)
    degrees = np.diff(block.first)
    height = np.empty(count, dtype=np.int64)
    height[np.lexsort((block.targets, degrees))] = np.arange(count)
    ones, others = height[block.owners], height[np.searchsorted(block.targets, block.sources)]
    up = np.flatnonzero(ones < others)
    return np.sort(ones[up] * np.int64(count) + others[up]), height
