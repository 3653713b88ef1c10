"""Shortest paths between pairs of nodes: layers of a breadth-first walk, and the way back through them.

Of equally short paths the one is found whose ids of nodes come first, compared from the start. The walk
begins at the side with fewer nodes. From the starts, the nodes of a layer are in the order of the best paths
to them, so the first that meets a node is its best predecessor. From the ends, against the edges, the next
node of the best path is the one with the lowest id, so a layer is in the order of ids.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology.adjacency import expand_runs
from omnigraph.query.topology.linked_topology import FewSteps, LinkedTopology, Steps
from omnigraph.query.topology.walk import edges_between

_CELLS = 1 << 24
"""Marks of (number of a pair's node, node) that are held at once."""
_BACKWARD: dict[EdgeDirection, EdgeDirection] = {"out": "in", "in": "out", "both": "both"}

IdsOf = Callable[[Positions], pa.Array]
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """A path for each pair of nodes: its nodes by position, all paths one after the other."""

    lengths: NDArray[np.int64]
    """How many edges each has; NO_ROW where there is no path."""
    nodes: Positions

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Where the nodes of each path begin; one more than there are paths."""
        return np.append(0, np.cumsum(self.lengths + 1))

    def take(self, index: Positions) -> FoundPaths:
        """These paths, in this order."""
        bounds = self.bounds
        _, places = expand_runs(bounds[index], self.lengths[index] + 1)
        return FoundPaths(self.lengths[index], self.nodes[places])

    def steps(self) -> tuple[Positions, Positions]:
        """The two nodes of every edge of every path."""
        inner = np.ones(len(self.nodes), dtype=np.bool_)
        bounds, some = self.bounds, self.lengths >= 0
        inner[bounds[1:][some] - 1] = False
        near = np.flatnonzero(inner)
        return self.nodes[near], self.nodes[near + 1]


def find_paths(
    linked: LinkedTopology,
    starts: Positions,
    ends: Positions,
    direction: EdgeDirection,
    maximum: int,
    ids_of: IdsOf,
    check: Check,
) -> FoundPaths:
    """The shortest path of each pair, of at least one edge and at most `maximum`."""
    possible = np.flatnonzero((starts >= 0) & (ends >= 0))
    width = max(1, (max(linked.source_count, linked.target_count) - 1).bit_length())
    pairs, back = np.unique((starts[possible] << width) | ends[possible], return_inverse=True)
    near, far = pairs >> width, pairs & ((1 << width) - 1)
    if not linked.shared or maximum == 1:
        found = _direct(linked, near, far, direction)
    else:
        apart = np.flatnonzero(near != far)
        walked = _walk_apart(linked, near[apart], far[apart], direction, maximum, ids_of, check)
        loops = np.flatnonzero(near == far)
        looped = _direct(linked, near[loops], far[loops], direction)
        order = np.argsort(np.concatenate([apart, loops]))
        found = _join([walked, looped]).take(order)
    numbers = np.full(len(starts), len(pairs))
    numbers[possible] = back
    return _join([found, FoundPaths(np.array([NO_ROW]), np.empty(0, np.int64))]).take(numbers)


def find_path_edges(
    linked: LinkedTopology, found: FoundPaths, direction: EdgeDirection, ids_of: IdsOf
) -> pa.Array:
    """The ids of the edges of all paths, one after the other: of parallel edges the first by id."""
    rows, edges = edges_between(linked, *found.steps(), direction)
    ids = ids_of(edges)
    order = pc.sort_indices(
        pa.table({"row": rows, "id": ids}), sort_keys=[("row", "ascending"), ("id", "ascending")]
    )
    sorted_rows = rows[order.to_numpy()]
    first = np.flatnonzero(np.append(True, sorted_rows[1:] != sorted_rows[:-1])) if len(rows) else sorted_rows
    return ids.take(order.take(pa.array(first)))


def _direct(linked: LinkedTopology, near: Positions, far: Positions, direction: EdgeDirection) -> FoundPaths:
    """Paths of one edge."""
    rows, _ = edges_between(linked, near, far, direction)
    lengths = np.full(len(near), NO_ROW)
    lengths[rows] = 1
    there = lengths == 1
    return FoundPaths(lengths, np.column_stack([near[there], far[there]]).reshape(-1))


def _join(parts: list[FoundPaths]) -> FoundPaths:
    return FoundPaths(
        np.concatenate([part.lengths for part in parts]), np.concatenate([part.nodes for part in parts])
    )


# --- the walk ------------------------------------------------------------------------------------


def _walk_apart(
    linked: LinkedTopology,
    near: Positions,
    far: Positions,
    direction: EdgeDirection,
    maximum: int,
    ids_of: IdsOf,
    check: Check,
) -> FoundPaths:
    """Paths between different nodes of one type."""
    forward = len(np.unique(near)) <= len(np.unique(far))
    sources, targets = (near, far) if forward else (far, near)
    order = np.argsort(sources, kind="stable")
    sources, targets = sources[order], targets[order]
    begins = np.flatnonzero(np.append(True, sources[1:] != sources[:-1])) if len(sources) else sources
    steps = linked.steps_from(sources[begins], direction if forward else _BACKWARD[direction], distinct=True)
    width = max(1, (linked.source_count - 1).bit_length())
    together = max(1, _CELLS >> width)
    parts = []
    bounds = np.append(begins, len(sources))
    for first in range(0, len(begins), together):
        last = min(first + together, len(begins))
        rows = slice(bounds[first], bounds[last])
        numbers = np.repeat(np.arange(last - first), np.diff(bounds[first : last + 1]))
        layers = _Layers(steps, width, forward, ids_of)
        wanted = (numbers << width) | targets[rows]
        parts.append(layers.run(sources[begins[first:last]], wanted, maximum, check))
    nothing = FoundPaths(np.empty(0, np.int64), np.empty(0, np.int64))
    return _join([nothing, *parts]).take(np.argsort(order))


@dataclass(frozen=True, slots=True)
class _Layer:
    """The nodes that are met at one distance, best first, and the place of each one's predecessor."""

    keys: NDArray[np.int64]
    """The number of the source, and the node in the lower bits."""
    parents: Positions


class _Layers:
    """One walk from a batch of sources."""

    def __init__(self, steps: Steps | FewSteps, width: int, forward: bool, ids_of: IdsOf) -> None:
        self._steps = steps
        self._width = width
        self._forward = forward
        self._ids_of = ids_of
        self._mask = (1 << width) - 1

    def run(self, sources: Positions, wanted: Positions, maximum: int, check: Check) -> FoundPaths:
        """Walk until everything wanted is met, and return the path of each."""
        seen = np.zeros(len(sources) << self._width, dtype=np.bool_)
        layer = _Layer((np.arange(len(sources)) << self._width) | sources, np.arange(len(sources)))
        seen[layer.keys] = True
        layers = [layer]
        lengths, places = np.full(len(wanted), NO_ROW), np.zeros(len(wanted), dtype=np.int64)
        for distance in range(1, maximum + 1):
            check()
            layer = self._next_layer(layers[-1], seen)
            layers.append(layer)
            met, at = _find_places(layer.keys, wanted)
            lengths[met], places[met] = distance, at
            if len(layer.keys) == 0 or bool((lengths >= 0).all()):
                break
        return self._trace(layers, lengths, places)

    def _next_layer(self, layer: _Layer, seen: NDArray[np.bool_]) -> _Layer:
        nodes = layer.keys & self._mask
        first, degree = self._steps.runs(nodes)
        index, at = expand_runs(first, degree)
        keys = (layer.keys - nodes)[index] + self._steps.targets[at]
        fresh = np.flatnonzero(~seen[keys])
        # Of the steps to one node the first comes from its best predecessor.
        keys, chosen = np.unique(keys[fresh], return_index=True)
        seen[keys] = True
        return self._in_order(keys, index[fresh[chosen]])

    def _in_order(self, keys: NDArray[np.int64], parents: Positions) -> _Layer:
        groups = parents if self._forward else keys >> self._width
        unique, back = np.unique(keys & self._mask, return_inverse=True)
        ranks = np.empty(len(unique), dtype=np.int64)
        ranks[pc.sort_indices(self._ids_of(unique)).to_numpy()] = np.arange(len(unique))
        order = np.lexsort((ranks[back], groups))
        return _Layer(keys[order], parents[order])

    def _trace(self, layers: list[_Layer], lengths: NDArray[np.int64], places: Positions) -> FoundPaths:
        """The nodes of each path, from its start to its end."""
        bounds = np.append(0, np.cumsum(lengths + 1))
        nodes = np.empty(bounds[-1], dtype=np.int64)
        for distance in range(len(layers) - 1, -1, -1):
            layer, on = layers[distance], np.flatnonzero(lengths >= distance)
            at = distance if self._forward else lengths[on] - distance
            nodes[bounds[on] + at] = layer.keys[places[on]] & self._mask
            places[on] = layer.parents[places[on]]
        return FoundPaths(lengths, nodes)


def _find_places(keys: NDArray[np.int64], wanted: Positions) -> tuple[Positions, Positions]:
    """Which wanted keys there are, and where."""
    if len(keys) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    met = np.flatnonzero(keys[order[at]] == wanted)
    return met, order[at[met]]
