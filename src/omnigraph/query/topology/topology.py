"""The topology of one edge table version: which nodes its edges join, as arrays of numbers.

A topology depends on nothing but the edge table, so all branches and all versions of the node tables
share it. The ids at the ends are codes; a `Linked` topology knows which node positions they are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.topology.adjacency import (
    Adjacency,
    Counts,
    Ints,
    Mask,
    Pairs,
    arrange_edges,
    change_edges,
    collapse_parallel,
    position_type,
)
from omnigraph.query.topology.endpoint_codes import (
    Codes,
    Encoded,
    encode_endpoints,
    encoded_more,
    numbered_as,
)
from omnigraph.query.topology.file_blocks import AdjacencyReader

Kind = tuple[EdgeDirection, bool]
"""Which adjacency: its direction, and whether every neighbour is there once only."""


@dataclass(frozen=True, slots=True)
class Stored:
    """How many bytes there are to fetch of an adjacency."""

    neighbours: int
    edges: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a topology before anything of it is fetched."""

    shared: bool
    """Whether both ends have the same type of node, and so the same codes."""
    edges: int
    """How many edge positions there are, dead ones included."""
    dead: int
    sources: int
    """How many codes there are at the source ends."""
    targets: int
    numbered_by: tuple[str, str] = ("", "")
    """The version of the table of nodes whose positions are the codes, for each end; empty if unknown."""
    stored: Mapping[Kind, Stored] = field(default_factory=dict)
    """The adjacencies that need not be sorted but can be fetched.

    Where no edges are parallel, the distinct one is the very same.
    """
    held: int = 0
    """Bytes in memory from which they are fetched."""


class Parts(Protocol):
    """Gives the arrays of a topology; each is asked for once."""

    def sources(self) -> pa.Array:
        """The ids at the source ends, by code."""

    def targets(self) -> pa.Array:
        """The ids at the target ends, by code, when these have codes of their own."""

    def src(self) -> Codes:
        """The code at the source end of each edge position."""

    def dst(self) -> Codes:
        """The code at the target end of each edge position."""

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves, ascending."""

    def adjacency(self, kind: Kind) -> AdjacencyReader:
        """An adjacency that is stored."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Parts of which nothing is stored anywhere."""

    source_ids: pa.Array
    target_ids: pa.Array
    source_codes: Codes
    target_codes: Codes

    @property
    def shape(self) -> Shape:
        """The shape of these parts."""
        dead = int(np.count_nonzero(self.source_codes < 0))
        shared = self.source_ids is self.target_ids
        return Shape(shared, len(self.source_codes), dead, len(self.source_ids), len(self.target_ids))

    def sources(self) -> pa.Array:
        """The ids at the source ends."""
        return self.source_ids

    def targets(self) -> pa.Array:
        """The ids at the target ends."""
        return self.target_ids

    def src(self) -> Codes:
        """The codes at the source ends."""
        return self.source_codes

    def dst(self) -> Codes:
        """The codes at the target ends."""
        return self.target_codes

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves."""
        if self.source_ids is not self.target_ids:
            return np.empty(0, dtype=np.int32)
        src, dst = self.source_codes, self.target_codes
        return np.unique(src[(src == dst) & (src >= 0)])

    def adjacency(self, kind: Kind) -> AdjacencyReader:
        """Nothing is stored."""
        raise KeyError(kind)


State = Literal["in memory", "stored", "to be sorted"]

_FETCHED = frozenset({"sources", "targets", "src", "dst"})
_OBJECT_BYTES = 1024  # of a topology without its arrays, about
_MUCH = 64  # when one edge in so many changed, sorting again is as cheap as copying around the changes


class Topology:
    """The ends of each edge position as codes, and the neighbours of each code; threads may share it.

    A dead edge has NO_ROW at both ends and no place in any adjacency. What it is made of is fetched or
    built when it is first wanted, so `nbytes` grows until all of it was.
    """

    def __init__(self, shape: Shape, parts: Parts, built: Mapping[Kind, Adjacency] | None = None) -> None:
        self.shape: Final = shape
        self._parts = parts
        self._built = dict(built or {})
        self._stored: dict[Kind, AdjacencyReader] = {}
        self._lock = threading.RLock()

    @classmethod
    def of(
        cls,
        sources: pa.Array,
        targets: pa.Array,
        src: Codes,
        dst: Codes,
        built: Mapping[Kind, Adjacency] | None = None,
    ) -> Topology:
        """A topology of arrays in memory."""
        parts = InMemory(sources, targets, src, dst)
        made = cls(parts.shape, parts, built)
        vars(made).update(sources=sources, targets=targets, src=src, dst=dst)  # they count from the start
        return made

    @cached_property
    def sources(self) -> pa.Array:
        """The ids at the source ends, by code."""
        return self._parts.sources()

    @cached_property
    def targets(self) -> pa.Array:
        """The ids at the target ends, by code; the very same array when both ends have one type."""
        return self.sources if self.shared else self._parts.targets()

    @cached_property
    def src(self) -> Codes:
        """The code at the source end of each edge position."""
        return self._parts.src()

    @cached_property
    def dst(self) -> Codes:
        """The code at the target end of each edge position."""
        return self._parts.dst()

    @property
    def shared(self) -> bool:
        """Whether both ends have the same type of node, and so the same codes."""
        return self.shape.shared

    @property
    def edge_count(self) -> int:
        """How many edge positions there are, dead ones included."""
        return self.shape.edges

    @property
    def dead(self) -> int:
        """How many edge positions are dead."""
        return self.shape.dead

    @property
    def nbytes(self) -> int:
        """Memory taken by what was fetched or built so far."""
        # One and the same thing may be there under two names.
        fetched, built = dict(vars(self)), self.built()
        there = {id(held): held for name in _FETCHED if (held := fetched.get(name)) is not None}
        there |= {id(each): each for each in list(built.values())}
        there |= {id(each): each for kind, each in list(self._stored.items()) if kind not in built}
        taken: int = sum([each.nbytes for each in there.values()])
        return _OBJECT_BYTES + self.shape.held + taken

    def built(self) -> dict[Kind, Adjacency]:
        """The adjacencies that are in memory."""
        # Without the lock, which is held as long as another one is sorted; copying a dictionary is one step.
        return dict(self._built)

    def known(self) -> set[Kind]:
        """The adjacencies that need not be sorted: those in memory and those that are stored."""
        return self.built().keys() | self.shape.stored.keys()

    def state(self, direction: EdgeDirection, *, distinct: bool) -> State:
        """How far an adjacency is from being used."""
        built = self.built()
        if (direction, distinct) in built or (direction, False) in built:
            return "in memory"  # the distinct neighbours follow from it quickly
        return "stored" if (direction, distinct) in self.shape.stored else "to be sorted"

    def code_count(self, direction: EdgeDirection) -> int:
        """How many codes there are on the side a walk in this direction leaves."""
        return self.shape.targets if direction == "in" else self.shape.sources

    def adjacency(self, direction: EdgeDirection, *, distinct: bool = False) -> Adjacency:
        """The neighbours in a direction: one for each edge, or each neighbour once.

        In both directions a self-loop is there once.
        """
        found = self._built.get((direction, distinct))
        if found is not None:
            return found
        return run_in_worker(self.edge_count, lambda: self._kept_adjacency(direction, distinct))

    def _kept_adjacency(self, direction: EdgeDirection, distinct: bool) -> Adjacency:
        with self._lock:
            if (direction, distinct) not in self._built:
                self._built[direction, distinct] = self._make_adjacency(direction, distinct)
            return self._built[direction, distinct]

    def runs(self, direction: EdgeDirection, *, distinct: bool) -> AdjacencyReader | None:
        """The same where it is stored and not in memory, so that few neighbours can be read of it."""
        is_stored = self.state(direction, distinct=distinct) == "stored"
        return self._open_runs(self._shared_kind(direction, distinct)) if is_stored else None

    def _open_runs(self, kind: Kind) -> AdjacencyReader:
        found = self._stored.get(kind)
        if found is not None:
            return found
        # Without the lock, which is held as long as another one is sorted; nothing is read for it.
        return self._stored.setdefault(kind, self._parts.adjacency(kind))

    def _shared_kind(self, direction: EdgeDirection, distinct: bool) -> Kind:
        """Which adjacency is read for one: where no edges are parallel, that of all edges."""
        stored = self.shape.stored
        if (direction, True) in stored and stored[direction, True] is stored.get((direction, False)):
            return direction, False
        return direction, distinct

    def degrees(self, direction: EdgeDirection, *, distinct: bool = False) -> Counts:
        """How many edges, or distinct neighbours, each code has."""
        if distinct or direction == "both" or (direction, False) in self.known():
            return np.diff(self.adjacency(direction, distinct=distinct).indptr)
        near = self.dst if direction == "in" else self.src
        return np.bincount(near[near >= 0] if self.dead else near, minlength=self.code_count(direction))

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves, ascending; none when the ends differ in type."""
        return self._parts.loops()

    def _make_adjacency(self, direction: EdgeDirection, distinct: bool) -> Adjacency:
        if distinct and self._shared_kind(direction, distinct) == (direction, False):
            return self.adjacency(direction)
        if (direction, distinct) in self.shape.stored:
            return self._open_runs((direction, distinct)).whole()
        if distinct:
            return collapse_parallel(self.adjacency(direction))
        pairs = _list_pairs(direction, self.src, self.dst, _number_range(0, self.edge_count))
        return arrange_edges(pairs, self.code_count(direction))


def build_topology(
    src: pa.Array | pa.ChunkedArray,
    dst: pa.Array | pa.ChunkedArray,
    shared: bool,
    alive: Mask | None = None,
    nodes: tuple[pa.Array | None, pa.Array | None] = (None, None),
) -> Topology:
    """The topology of edges given by the ids at their ends; edge positions are the order given.

    `shared` says that both ends have the same type of node. An edge without an id at an end, or one
    that is not `alive`, is dead. With the ids of the `nodes` at the two ends, codes are their positions.
    """
    sources, targets = _to_chunked(src), _to_chunked(dst)
    if shared:
        both = _as_positions(nodes[0], encode_endpoints(sources, targets))
        ids, other_ids, (left, right) = both.ids, both.ids, both.columns
    else:
        one, other = (
            _as_positions(nodes[0], encode_endpoints(sources)),
            _as_positions(nodes[1], encode_endpoints(targets)),
        )
        ids, other_ids, left, right = one.ids, other.ids, one.columns[0], other.columns[0]
    return Topology.of(ids, other_ids, *_bury_dead(left, right, alive))


def _as_positions(nodes: pa.Array | None, found: Encoded) -> Encoded:
    return found if nodes is None else numbered_as(nodes, found)


def extend_topology(
    topology: Topology,
    removed: Positions,
    added_src: pa.Array | pa.ChunkedArray,
    added_dst: pa.Array | pa.ChunkedArray,
) -> Topology:
    """The topology after some edges went and others came.

    Positions stay: a removed edge keeps its position and is dead, added edges have the positions behind
    all others, in the order given. Ids are not encoded again, and after a small change nothing is
    sorted again either.
    """
    sources, targets = _to_chunked(added_src), _to_chunked(added_dst)
    if topology.shared:
        both = encoded_more(topology.sources, sources, targets)
        ids, other_ids, (left, right) = both.ids, both.ids, both.columns
    else:
        one, other = encoded_more(topology.sources, sources), encoded_more(topology.targets, targets)
        ids, other_ids, left, right = one.ids, other.ids, one.columns[0], other.columns[0]
    left, right = _bury_dead(left, right, None)
    src, dst = np.concatenate([topology.src, left]), np.concatenate([topology.dst, right])
    src[removed] = NO_ROW
    dst[removed] = NO_ROW
    grown = Topology.of(ids, other_ids, src, dst)
    if (len(removed) + len(left)) * _MUCH > topology.edge_count:
        return grown
    return Topology.of(ids, other_ids, src, dst, _change_adjacencies(topology, grown, np.unique(removed)))


def _change_adjacencies(before: Topology, after: Topology, removed: Positions) -> dict[Kind, Adjacency]:
    """The adjacencies that were known before, as they are after; distinct ones follow from them."""
    first = before.edge_count
    edges = _number_range(first, after.edge_count)
    made: dict[Kind, Adjacency] = {}
    for direction in [each for each, distinct in before.known() if not distinct]:
        out = _list_pairs(direction, before.src[removed], before.dst[removed], removed)
        into = _list_pairs(direction, after.src[first:], after.dst[first:], edges)
        adjacency = before.adjacency(direction)
        made[direction, False] = change_edges(adjacency, out, into, after.code_count(direction))
    return made


def _number_range(first: int, end: int) -> Ints:
    return np.arange(first, end, dtype=position_type(end))


def _list_pairs(direction: EdgeDirection, src: Codes, dst: Codes, edges: Ints) -> Pairs:
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


def _bury_dead(src: Codes, dst: Codes, alive: Mask | None) -> tuple[Codes, Codes]:
    dead = (src < 0) | (dst < 0)
    if alive is not None:
        dead |= ~alive
    if not bool(dead.any()):
        return src, dst
    return np.where(dead, np.int32(NO_ROW), src), np.where(dead, np.int32(NO_ROW), dst)


def _to_chunked(ids: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([ids])
