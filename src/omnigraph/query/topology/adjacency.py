"""Neighbours in compressed form: sorted, collapsed where edges are parallel, merged when edges change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import Positions

Ints = NDArray[np.signedinteger[Any]]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_KEY_BITS = 64


class Adjacency:
    """The neighbours of code `c` are `neighbours[indptr[c]:indptr[c + 1]]`, in ascending order.

    `edges` holds the edge position of each neighbour, ascending among equal ones. Most walks ask for
    nodes alone, so it may be given as a function that fetches it when it is first wanted.
    """

    __slots__ = ("_edges", "indptr", "neighbours")

    def __init__(
        self, indptr: Counts, neighbours: NDArray[np.int32], edges: Ints | Callable[[], Ints]
    ) -> None:
        self.indptr: Final = indptr
        self.neighbours: Final = neighbours
        self._edges = edges

    @property
    def edges(self) -> Ints:
        """The edge position of each neighbour."""
        if callable(self._edges):
            self._edges = self._edges()  # threads that meet here fetch the same
        return self._edges

    @property
    def nbytes(self) -> int:
        """Memory taken by what was fetched so far."""
        edges = 0 if callable(self._edges) else self._edges.nbytes
        return self.indptr.nbytes + self.neighbours.nbytes + edges

    def starts(self) -> Mask:
        """Which places are the first of some code."""
        first = np.zeros(len(self.neighbours) + 1, dtype=np.bool_)
        first[self.indptr] = True  # those of codes without neighbours fall on the start of a later one
        return first[:-1]


def position_type(count: int) -> np.dtype[np.signedinteger[Any]]:
    """The narrowest type for positions below a count."""
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.int64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Edges as (near code, far code, edge position)."""

    near: NDArray[np.int32]
    far: NDArray[np.int32]
    edges: Ints

    def sorted(self) -> Pairs:
        """The same in ascending order."""
        return Pairs(*_sort_triples(self.near, self.far, self.edges))


def arrange_edges(pairs: Pairs, codes: int) -> Adjacency:
    """The adjacency of edges in any order."""
    counts = np.bincount(pairs.near, minlength=codes)
    ordered = pairs.sorted()
    return Adjacency(run_offsets(counts), ordered.far, ordered.edges)


def run_offsets(counts: Counts) -> Counts:
    """Where each run starts when runs of these lengths follow each other, and where the last one ends."""
    indptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr


def _sort_triples(
    near: NDArray[np.int32], far: NDArray[np.int32], edges: Ints
) -> tuple[NDArray[np.int32], NDArray[np.int32], Ints]:
    """Triples in ascending order.

    Sorting keys that hold all three numbers is two to three times faster than an indirect sort.
    """
    if len(near) == 0:
        return near, far, edges
    far_bits, edge_bits = _count_bits(far), _count_bits(edges)
    if _count_bits(near) + far_bits + edge_bits > _KEY_BITS:
        return _sorted_twice(near, far, edges)
    keys = _pack_keys(_pack_keys(near.astype(np.uint64), far, far_bits), edges, edge_bits)
    if bool((keys[1:] > keys[:-1]).all()):
        return near, far, edges
    keys.sort()
    edges = _unpack_keys(keys, edge_bits).astype(edges.dtype)
    keys >>= np.uint64(edge_bits)
    far = _unpack_keys(keys, far_bits).astype(np.int32)
    keys >>= np.uint64(far_bits)
    return keys.astype(np.int32), far, edges


def _sorted_twice(
    near: NDArray[np.int32], far: NDArray[np.int32], edges: Ints
) -> tuple[NDArray[np.int32], NDArray[np.int32], Ints]:
    """The same for numbers that do not fit one key: by the last two first, then by the first."""
    by_edge = np.argsort(edges, kind="stable")
    by_far = by_edge[_stable_order(far[by_edge])]
    order = by_far[_stable_order(near[by_far])]
    return near[order], far[order], edges[order]


def _stable_order(codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """A stable indirect sort; a code and a place always fit one key."""
    bits = (len(codes) - 1).bit_length()
    keys = _pack_keys(codes.astype(np.uint64), np.arange(len(codes)), bits)
    keys.sort()
    return _unpack_keys(keys, bits).astype(np.int64)


def _pack_keys(keys: NDArray[np.uint64], lower: Ints, bits: int) -> NDArray[np.uint64]:
    keys <<= np.uint64(bits)
    keys |= lower.astype(np.uint64)
    return keys


def _unpack_keys(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return keys & np.uint64((1 << bits) - 1)


def _count_bits(numbers: Ints) -> int:
    return int(numbers.max()).bit_length()


def collapse_parallel(adjacency: Adjacency) -> Adjacency:
    """Every neighbour once, by its first edge; the same adjacency when no edges are parallel."""
    fresh = adjacency.starts()
    fresh[1:] |= adjacency.neighbours[1:] != adjacency.neighbours[:-1]
    if bool(fresh.all()):
        return adjacency
    kept = run_offsets(fresh.astype(np.int64))
    return Adjacency(kept[adjacency.indptr], adjacency.neighbours[fresh], adjacency.edges[fresh])


def change_edges(adjacency: Adjacency, removed: Pairs, added: Pairs, codes: int) -> Adjacency:
    """The adjacency without some of its edges and with new ones, whose positions are behind all others.

    There may be more codes than before. What stays is copied, not sorted.
    """
    missing = codes + 1 - len(adjacency.indptr)
    indptr = np.concatenate([adjacency.indptr, np.repeat(adjacency.indptr[-1:], missing)])
    removed, added = removed.sorted(), added.sorted()
    out = _places_of(adjacency, indptr, removed)
    into = bisect_values(
        adjacency.neighbours, indptr[added.near], indptr[added.near + 1], added.far, after=True
    )
    counts = np.bincount(added.near, minlength=codes) - np.bincount(removed.near, minlength=codes)
    return Adjacency(
        indptr + run_offsets(counts),
        _splice_values(adjacency.neighbours, out, into, added.far),
        _splice_values(adjacency.edges, out, into, added.edges),
    )


def _places_of(adjacency: Adjacency, indptr: Counts, pairs: Pairs) -> Counts:
    """Where in the adjacency these edges are."""
    first, end = indptr[pairs.near], indptr[pairs.near + 1]
    low = bisect_values(adjacency.neighbours, first, end, pairs.far, after=False)
    high = bisect_values(adjacency.neighbours, low, end, pairs.far, after=True)
    return bisect_values(adjacency.edges, low, high, pairs.edges, after=False)


def _splice_values(values: NDArray[Any], out: Counts, into: Counts, added: NDArray[Any]) -> NDArray[Any]:
    """Values without those at the places `out`, and with added ones before the places `into`; both ascend.

    Whole runs are copied: with few changes that is many times faster than any choice value by value.
    """
    cuts = np.unique(np.concatenate([into, out, out + 1]))
    runs = np.split(values, cuts)  # run number n + 1 starts at cut n
    for number in np.searchsorted(cuts, out).tolist():
        runs[number + 1] = values[:0]
    news = np.split(added, np.searchsorted(into, cuts, side="left")[1:]) if len(cuts) else []
    mixed = [run for pair in zip(news, runs[1:], strict=True) for run in pair]
    return np.concatenate([runs[0], *mixed], dtype=added.dtype)


_BLOCK = 1 << 15
"""So many values are looked for together: what is known of them stays in the processor's caches."""


def bisect_values(values: Ints, low: Counts, high: Counts, wanted: Ints, *, after: bool) -> Counts:
    """Where each wanted value belongs in its own sorted run `values[low:high]`, before or after equal ones.

    All runs are halved together, so the work is the logarithm of the longest one, and no key of the
    whole array is needed.
    """
    found = low.copy()
    for begin in range(0, len(low), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        _bisect_runs(values, found[block], high[block].copy(), wanted[block], after)
    return found


def _bisect_runs(values: Ints, low: Counts, high: Counts, wanted: Ints, after: bool) -> None:
    """Move each low end to where the value belongs."""
    rounds = int((high - low).max()).bit_length()
    for _ in range(rounds):
        open_ = low < high
        middle = (low + high) >> 1
        met = values.take(middle, mode="clip")  # a closed run may lie behind the last value
        right = (met <= wanted) if after else (met < wanted)
        np.copyto(low, middle + 1, where=open_ & right)
        np.copyto(high, middle, where=open_ & ~right)


def expand_runs(first: Counts, lengths: Counts) -> tuple[Positions, Positions]:
    """Return the run index and the place of every element of the runs that start at `first`."""
    return np.repeat(np.arange(len(lengths)), lengths), run_places(first, lengths)


def run_places(first: Counts, lengths: Counts) -> Positions:
    """Return every place of the runs that start at `first`."""
    ends = np.cumsum(lengths)
    places = np.repeat(first - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def split_runs(lengths: Counts, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of runs that together have at most `chunk` places, or are one longer run."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] <= chunk:
        yield 0, len(ends)
        return
    begin = done = 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, done + chunk, side="right")))
        yield begin, end
        begin, done = end, int(ends[end - 1])
