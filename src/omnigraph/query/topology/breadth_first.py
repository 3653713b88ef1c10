"""Breadth-first walks of several hops, from many sources at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology.adjacency import Counts, Mask, expand_runs, run_offsets, run_places, split_runs
from omnigraph.query.topology.linked_topology import FewSteps, LinkedTopology, Steps

CHUNK = 1 << 20
"""So many steps are held at once while walking; results come on top."""

_CELLS = 1 << 21
"""Marks of (source, node) pairs that stay in the processor's caches."""
_ENOUGH = 8  # sources side by side that make marks worth while
_FEW = 64  # sources whose marks are worth while even one by one
_SCANNED = 16  # marks that are looked through in the time of one random look
_DEEP = 4  # hops beyond which a guess of how many pairs there will be says nothing

Keys = NDArray[np.int64]
Part = tuple[Positions, Positions]


def find_reached(
    linked: LinkedTopology,
    sources: Positions,
    direction: EdgeDirection,
    minimum: int,
    maximum: int,
    *,
    chunk: int = CHUNK,
) -> Part:
    """Which incoming row each outgoing one comes from, and what it reaches in that many hops.

    A source is visited at the start and a node when it is first met; it is reached if that happens
    within the bounds. An edge of a node to itself reaches that node one hop after it was met. Edges
    between different types of node lead no further than one hop.
    """
    parts = list(reach_parts(linked, sources, direction, minimum, maximum, chunk=chunk))
    if len(parts) == 1:
        return parts[0]
    nothing = np.empty(0, dtype=np.int64)
    rows, targets = [part[0] for part in parts], [part[1] for part in parts]
    return np.concatenate([nothing, *rows]), np.concatenate([nothing, *targets])


def reach_parts(
    linked: LinkedTopology,
    sources: Positions,
    direction: EdgeDirection,
    minimum: int,
    maximum: int,
    *,
    chunk: int = CHUNK,
) -> Iterator[Part]:
    """The same part by part, all targets of one row in one part."""
    if minimum > 1 and not linked.shared:
        return
    steps = linked.steps_from(sources, direction, distinct=True)
    if maximum == 1 or not linked.shared:
        yield from _one_hop(steps, sources, chunk)
        return
    starts, groups = _group_sources(sources)
    width = max(1, (linked.source_count - 1).bit_length())
    walk = _Walk(steps, linked.loops(), width, minimum, maximum, chunk)
    for begin, end, seen in _batch_sources(walk, len(starts), linked.source_count):
        index, targets = walk.run(starts[begin:end], seen)
        yield groups.repeated(begin, end, index, targets)


def reach_distinct(
    linked: LinkedTopology,
    sources: Positions,
    direction: EdgeDirection,
    minimum: int,
    maximum: int,
    *,
    chunk: int = CHUNK,
) -> Positions:
    """What is reached from any of the sources, each once, ascending."""
    reached = np.zeros(linked.far_count(direction), dtype=np.bool_)
    if minimum > 1:  # the distance from each source counts, not that from the nearest
        for _, targets in reach_parts(linked, sources, direction, minimum, maximum, chunk=chunk):
            reached[targets] = True
        return np.flatnonzero(reached)
    starts = np.unique(sources[sources >= 0])
    steps = linked.steps(direction, distinct=True)
    frontier = _mark_neighbours(steps, starts, reached, chunk)
    if maximum > 1 and linked.shared:
        pending = starts[~reached[starts]]
        reached[starts] = True  # they were walked from
        _mark_onward(steps, np.setdiff1d(frontier, starts, assume_unique=True), reached, maximum - 1, chunk)
        reached[pending] = _met_by_others(steps, starts, pending, maximum, chunk)
    return np.flatnonzero(reached)


def _mark_neighbours(steps: Steps, nodes: Positions, reached: Mask, chunk: int) -> Positions:
    """Mark the neighbours of some nodes and give those that were not marked before."""
    before = reached.copy()
    degree = steps.degree[nodes]
    for begin, end in split_runs(degree, chunk):
        reached[steps.targets[run_places(steps.first[nodes[begin:end]], degree[begin:end])]] = True
    return np.flatnonzero(reached & ~before)


def _mark_onward(steps: Steps, frontier: Positions, reached: Mask, hops: int, chunk: int) -> None:
    for _ in range(hops):
        if len(frontier) == 0:
            return
        frontier = _mark_neighbours(steps, frontier, reached, chunk)


def _met_by_others(steps: Steps, starts: Positions, pending: Positions, maximum: int, chunk: int) -> Mask:
    """Which of the pending sources are within reach of another source.

    Every node remembers the first two sources that meet it: a source is the first of its own, so the
    second is the nearest other one, and a third could never be it for anyone.
    """
    first = np.full(len(steps.degree), NO_ROW, dtype=np.int64)
    second = first.copy()
    first[starts] = starts
    wanted = np.zeros(len(first), dtype=np.bool_)
    wanted[pending] = True
    nodes, labels = starts, starts
    for distance in range(1, maximum + 1):
        if len(nodes) == 0 or len(starts) == 1 or bool((second[pending] >= 0).all()):
            break
        only = wanted if distance == maximum else None  # the last hop needs no onward walk
        nodes, labels = _meet_neighbours(steps, nodes, labels, first, second, only, chunk)
    return second[pending] >= 0


def _meet_neighbours(
    steps: Steps,
    nodes: Positions,
    labels: Positions,
    first: Positions,
    second: Positions,
    only: Mask | None,
    chunk: int,
) -> tuple[Positions, Positions]:
    """Let sources meet the neighbours of nodes that they met in the hop before; the new meetings."""
    degree = steps.degree[nodes]
    newly_first = np.zeros(len(first), dtype=np.bool_)
    newly_second = newly_first.copy()
    for begin, end in split_runs(degree, chunk):
        targets = steps.targets[run_places(steps.first[nodes[begin:end]], degree[begin:end])]
        sources = np.repeat(labels[begin:end], degree[begin:end])
        if only is not None:
            asked = np.flatnonzero(only[targets])
            targets, sources = targets[asked], sources[asked]
        unmet = first[targets] < 0
        first[targets[unmet]] = sources[unmet]
        newly_first[targets[unmet]] = True
        other = (second[targets] < 0) & (first[targets] != sources)
        second[targets[other]] = sources[other]
        newly_second[targets[other]] = True
    once, twice = np.flatnonzero(newly_first), np.flatnonzero(newly_second)
    return np.concatenate([once, twice]), np.concatenate([first[once], second[twice]])


def _one_hop(steps: Steps | FewSteps, sources: Positions, chunk: int) -> Iterator[Part]:
    first, degree = steps.runs(sources)
    for begin, end in split_runs(degree, chunk):
        index, places = expand_runs(first[begin:end], degree[begin:end])
        index += begin
        yield index, steps.targets[places].astype(np.int64, copy=False)


# --- rows with the same source walk once ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows by source: those of the source with number `n` are `rows[bounds[n]:bounds[n + 1]]`."""

    rows: Positions
    bounds: Counts

    def repeated(self, begin: int, end: int, index: Positions, targets: Positions) -> Part:
        """The targets of sources from `begin` to `end`, for each row of the source."""
        if len(self.rows) == len(self.bounds) - 1:
            return self.rows[begin + index], targets
        counts = np.bincount(index, minlength=end - begin)
        grouped = targets[np.argsort(index, kind="stable")]
        sizes = np.diff(self.bounds[begin : end + 1])
        row_index, places = expand_runs(np.repeat(run_offsets(counts)[:-1], sizes), np.repeat(counts, sizes))
        return self.rows[self.bounds[begin] + row_index], grouped[places]


def _group_sources(sources: Positions) -> tuple[Positions, _Groups]:
    """The distinct sources, ascending, and the rows of each."""
    rows = np.flatnonzero(sources >= 0)
    held = sources[rows]
    if not bool((held[1:] > held[:-1]).all()):
        order = np.argsort(held, kind="stable")
        rows, held = rows[order], held[order]
    begins = np.flatnonzero(np.append(True, held[1:] != held[:-1])) if len(held) else held
    return held[begins], _Groups(rows, np.append(begins, len(held)))


# --- the walk ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Walk:
    """One walk for a batch of sources; a pair of source number and node is one key."""

    steps: Steps | FewSteps
    loops: Mask
    width: int
    """How many bits of a key are the node."""
    minimum: int
    maximum: int
    chunk: int

    def run(self, starts: Positions, seen: _Seen) -> Part:
        """The number of the source and the node, for everything reached."""
        frontier = seen.fresh((np.arange(len(starts)) << self.width) | starts)
        found = [np.empty(0, dtype=np.int64)]
        for distance in range(1, self.maximum + 1):
            fresh = self._step_frontier(frontier, seen)
            if distance == self.minimum:  # later on they are reached already
                found.append(frontier[self.loops[frontier & self._mask]])
            if distance >= self.minimum:
                found.append(fresh)
            if len(fresh) == 0:
                break
            frontier = fresh
        keys = np.concatenate(found)
        return keys >> self.width, keys & self._mask

    @property
    def _mask(self) -> int:
        return (1 << self.width) - 1

    def _step_frontier(self, frontier: Keys, seen: _Seen) -> Keys:
        nodes = frontier & self._mask
        (first, degree), numbers = self.steps.runs(nodes), frontier - nodes
        found = [np.empty(0, dtype=np.int64)]
        for begin, end in split_runs(degree, self.chunk):
            lengths = degree[begin:end]
            keys = np.repeat(numbers[begin:end], lengths)
            keys += self.steps.targets[run_places(first[begin:end], lengths)]
            found.append(seen.fresh(keys))
        return np.concatenate(found)


class _Seen(Protocol):
    """The pairs that were met."""

    def fresh(self, keys: Keys) -> Keys:
        """The keys not met before, each once; from now on they are met."""


class _Marks:
    """A mark for every possible key."""

    def __init__(self, cells: int) -> None:
        self._marks = np.zeros(cells, dtype=np.bool_)
        self._slots = np.empty(cells, dtype=np.int32)
        self._given: list[Keys] = []

    def fresh(self, keys: Keys) -> Keys:
        if len(keys) * _SCANNED > len(self._marks):
            return self._given_out(self._scan_marks(keys))
        keys = keys[~self._marks.take(keys)]
        turns = np.arange(len(keys), dtype=np.int32)
        self._slots[keys] = turns  # of equal keys one wins
        keys = keys[self._slots.take(keys) == turns]
        self._marks[keys] = True
        return self._given_out(keys)

    def _scan_marks(self, keys: Keys) -> Keys:
        """The same for so many keys that looking through all marks costs less than looking at each key."""
        before = self._marks.copy()
        self._marks[keys] = True
        return np.flatnonzero(self._marks & ~before)

    def _given_out(self, keys: Keys) -> Keys:
        self._given.append(keys)
        return keys

    def clear(self) -> None:
        """Forget what was met."""
        for keys in self._given:
            self._marks[keys] = False
        self._given.clear()


class _SortedKeys:
    """The keys that were met, in order."""

    def __init__(self) -> None:
        self._keys = np.empty(0, dtype=np.int64)

    def fresh(self, keys: Keys) -> Keys:
        keys = np.sort(keys)
        keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
        if len(self._keys):
            places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            keys = keys[self._keys[places] != keys]
        # Two sorted runs: the stable sort only merges them.
        self._keys = np.sort(np.concatenate([self._keys, keys]), kind="stable")
        return keys


def _batch_sources(walk: _Walk, sources: int, nodes: int) -> Iterator[tuple[int, int, _Seen]]:
    """Ranges of source numbers that walk together."""
    together = max(1, _CELLS >> walk.width)
    if together >= _ENOUGH or sources <= _FEW:
        marks = _Marks(min(together, sources) << walk.width)
        for begin in range(0, sources, together):
            yield begin, min(begin + together, sources), marks
            marks.clear()
        return
    degree = len(walk.steps.targets) / max(1, nodes)
    together = max(_FEW, int(walk.chunk / max(1.0, degree ** min(walk.maximum, _DEEP))))
    for begin in range(0, sources, together):
        yield begin, min(begin + together, sources), _SortedKeys()
