"""Who is joined to whom by the edges of one table version, as arrays of numbers.

A topology depends on nothing but the edge table, so all branches and all versions of the node tables
share it. The ids at the ends are codes; a `Linked` topology knows which node positions they are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology.adjacency import (
    Adjacency,
    Counts,
    Ints,
    Mask,
    Pairs,
    arranged,
    changed,
    collapsed,
    position_type,
)
from omnigraph.query.topology.endpoint_codes import Codes, encoded, encoded_more

_MUCH = 64  # when one edge in so many changed, sorting anew is as cheap as copying around the changes


class Topology:
    """The ends of each edge position as codes, and the neighbours of each code; threads may share it.

    A dead edge has NO_ROW at both ends and no place in any adjacency. Adjacencies are built when they
    are first wanted, so `nbytes` grows until all of them were.
    """

    def __init__(
        self,
        sources: pa.Array,
        targets: pa.Array,
        src: Codes,
        dst: Codes,
        built: dict[tuple[EdgeDirection, bool], Adjacency] | None = None,
    ) -> None:
        self.sources: Final = sources
        """The ids at the source ends, by code."""
        self.targets: Final = targets
        """The ids at the target ends, by code; the very same array when both ends have one type."""
        self.src: Final = src
        self.dst: Final = dst
        self.dead: Final = int(np.count_nonzero(src < 0))
        """How many edge positions are dead."""
        self._built = dict(built or {})
        self._lock = threading.RLock()

    @property
    def shared(self) -> bool:
        """Whether both ends have the same type of node, and so the same codes."""
        return self.sources is self.targets

    @property
    def edge_count(self) -> int:
        """How many edge positions there are, dead ones included."""
        return len(self.src)

    @property
    def nbytes(self) -> int:
        """Memory taken by what is built so far."""
        ids = int(self.sources.nbytes) + (0 if self.shared else int(self.targets.nbytes))
        arrays = {id(array): array.nbytes for each in self.built().values() for array in _arrays(each)}
        return ids + self.src.nbytes + self.dst.nbytes + sum(arrays.values())

    def built(self) -> dict[tuple[EdgeDirection, bool], Adjacency]:
        """The adjacencies that exist already, by direction and whether they are distinct."""
        with self._lock:
            return dict(self._built)

    def code_count(self, direction: EdgeDirection) -> int:
        """How many codes there are on the side a walk in this direction leaves."""
        return len(self.targets if direction == "in" else self.sources)

    def adjacency(self, direction: EdgeDirection, *, distinct: bool = False) -> Adjacency:
        """The neighbours in a direction: one for each edge, or each neighbour once.

        In both directions a self-loop is there once.
        """
        found = self._built.get((direction, distinct))
        if found is not None:
            return found
        with self._lock:
            if (direction, distinct) not in self._built:
                made = collapsed(self.adjacency(direction)) if distinct else self._arranged(direction)
                self._built[direction, distinct] = made
            return self._built[direction, distinct]

    def degrees(self, direction: EdgeDirection, *, distinct: bool = False) -> Counts:
        """How many edges, or distinct neighbours, each code has."""
        if distinct or direction == "both" or (direction, False) in self._built:
            return np.diff(self.adjacency(direction, distinct=distinct).indptr)
        near = self.dst if direction == "in" else self.src
        return np.bincount(near[near >= 0] if self.dead else near, minlength=self.code_count(direction))

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves, ascending; none when the ends differ in type."""
        if not self.shared:
            return np.empty(0, dtype=np.int32)
        return np.unique(self.src[(self.src == self.dst) & (self.src >= 0)])

    def _arranged(self, direction: EdgeDirection) -> Adjacency:
        pairs = _pairs(direction, self.src, self.dst, _numbered(0, self.edge_count))
        return arranged(pairs, self.code_count(direction))


def build(
    src: pa.Array | pa.ChunkedArray,
    dst: pa.Array | pa.ChunkedArray,
    shared: bool,
    alive: Mask | None = None,
) -> Topology:
    """The topology of edges given by the ids at their ends; edge positions are the order given.

    `shared` says that both ends have the same type of node. An edge without an id at an end, or one
    that is not `alive`, is dead.
    """
    sources, targets = _chunked(src), _chunked(dst)
    if shared:
        both = encoded(sources, targets)
        ids, other_ids, (left, right) = both.ids, both.ids, both.columns
    else:
        one, other = encoded(sources), encoded(targets)
        ids, other_ids, left, right = one.ids, other.ids, one.columns[0], other.columns[0]
    return Topology(ids, other_ids, *_buried(left, right, alive))


def extended(
    topology: Topology,
    removed: Positions,
    added_src: pa.Array | pa.ChunkedArray,
    added_dst: pa.Array | pa.ChunkedArray,
) -> Topology:
    """The topology after some edges went and others came.

    Positions stay: a removed edge keeps its position and is dead, added edges have the positions behind
    all others, in the order given. Ids are not encoded anew, and after a small change nothing is
    sorted anew either.
    """
    sources, targets = _chunked(added_src), _chunked(added_dst)
    if topology.shared:
        both = encoded_more(topology.sources, sources, targets)
        ids, other_ids, (left, right) = both.ids, both.ids, both.columns
    else:
        one, other = encoded_more(topology.sources, sources), encoded_more(topology.targets, targets)
        ids, other_ids, left, right = one.ids, other.ids, one.columns[0], other.columns[0]
    left, right = _buried(left, right, None)
    src, dst = np.concatenate([topology.src, left]), np.concatenate([topology.dst, right])
    src[removed] = NO_ROW
    dst[removed] = NO_ROW
    grown = Topology(ids, other_ids, src, dst)
    if (len(removed) + len(left)) * _MUCH > topology.edge_count:
        return grown
    return Topology(ids, other_ids, src, dst, _changed(topology, grown, np.unique(removed)))


def _changed(
    before: Topology, after: Topology, removed: Positions
) -> dict[tuple[EdgeDirection, bool], Adjacency]:
    """The adjacencies that were built before, as they are after; distinct ones follow from them."""
    first = before.edge_count
    edges = _numbered(first, after.edge_count)
    made: dict[tuple[EdgeDirection, bool], Adjacency] = {}
    for direction in [each for each, distinct in before.built() if not distinct]:
        out = _pairs(direction, before.src[removed], before.dst[removed], removed)
        into = _pairs(direction, after.src[first:], after.dst[first:], edges)
        adjacency = before.adjacency(direction)
        made[direction, False] = changed(adjacency, out, into, after.code_count(direction))
    return made


def _numbered(first: int, end: int) -> Ints:
    return np.arange(first, end, dtype=position_type(end))


def _pairs(direction: EdgeDirection, src: Codes, dst: Codes, edges: Ints) -> Pairs:
    """Each living edge as seen in a direction; in both, from either end."""
    alive = src >= 0
    if not bool(alive.all()):
        src, dst, edges = src[alive], dst[alive], edges[alive]
    if direction == "out":
        return Pairs(src, dst, edges)
    if direction == "in":
        return Pairs(dst, src, edges)
    proper = np.flatnonzero(src != dst)
    near, far = np.concatenate([src, dst[proper]]), np.concatenate([dst, src[proper]])
    return Pairs(near, far, np.concatenate([edges, edges[proper]]))


def _buried(src: Codes, dst: Codes, alive: Mask | None) -> tuple[Codes, Codes]:
    dead = (src < 0) | (dst < 0)
    if alive is not None:
        dead |= ~alive
    if not bool(dead.any()):
        return src, dst
    return np.where(dead, np.int32(NO_ROW), src), np.where(dead, np.int32(NO_ROW), dst)


def _chunked(ids: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([ids])


def _arrays(adjacency: Adjacency) -> tuple[Ints, ...]:
    return adjacency.indptr, adjacency.neighbours, adjacency.edges


@dataclass(frozen=True, slots=True)
class Steps:
    """What a hop in one direction reads, by node position.

    The neighbours of the node at `p` are `targets[first[p]:first[p] + degree[p]]`. Both have one more
    entry than there are nodes, without neighbours, so that NO_ROW, the last entry, leads nowhere.
    """

    first: Counts
    degree: Counts
    targets: Ints
    edges: Ints
    indptr: Counts
    """The same runs by code, in the order in which `targets` holds them."""


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
            steps = list({id(each): each for each in self._steps.values()}.values())
        positions = {id(a): a.nbytes for a in (self.source_positions, self.target_positions)}
        codes = {id(a): a.nbytes for a in (self.source_codes, self.target_codes)}
        held = sum(each.first.nbytes + each.degree.nbytes + each.targets.nbytes for each in steps)
        return held + sum(positions.values()) + sum(codes.values())

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
        places = far.astype(position_type(self.far_count(direction)))
        targets, edges, indptr = places[adjacency.neighbours], adjacency.edges, adjacency.indptr
        if bool((far < 0).any()):
            exists = targets >= 0
            kept = np.zeros(len(targets) + 1, dtype=np.int64)
            np.cumsum(exists, out=kept[1:])
            targets, edges, indptr = targets[exists], edges[exists], kept[indptr]
        codes = self.near_codes(direction)
        first, degree = np.append(indptr[:-1], 0), np.append(np.diff(indptr), 0)
        return Steps(first[codes], degree[codes], targets, edges, indptr)


def _codes_of(positions: Positions, count: int) -> Codes:
    """The code of each position, NO_ROW for a node without edges, and one NO_ROW more for NO_ROW itself."""
    codes = np.full(count + 1, NO_ROW, dtype=np.int32)
    known = np.flatnonzero(positions >= 0)
    codes[positions[known]] = known
    return codes
