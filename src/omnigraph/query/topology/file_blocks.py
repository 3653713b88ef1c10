"""Arrays in a file, read and verified block by block on first use.

A block has a checksum: the sum of its words, each times an odd number of its own, in 64 bits. One word that
differs always shows, and of anything else about one in 2^64 does not. Many blocks are summed up at once,
several times faster than by a cyclic code, which counts where a whole array is read for one query.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omnigraph.query.topology.adjacency import Adjacency, Counts, Ints, run_places

BLOCK = 1 << 14
"""Bytes of a block; the last one of an array has fewer."""
WORD = 8

Bytes = NDArray[np.uint8]
Sums = NDArray[np.uint64]

_WORDS = BLOCK // WORD
_OFTEN = 64
"""When single runs were asked for so often, all of them should be read."""
_MANY = 2  # one block in so many that are missing, and all of them are read: it is less work than to choose


class DamagedFile(Exception):
    """An array of a file is damaged; the caller has to do without the file."""


class File(Protocol):
    """Bytes to read from."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def held(self) -> int:
        """How many of them are in memory, whether they are used or not."""

    def read(self, start: int, length: int) -> bytes | memoryview:
        """A stretch of them; a shorter one, where they end or cannot be read."""

    def room(self, start: int, length: int) -> Bytes:
        """Where a stretch of them is to be found once it was fetched."""

    def fetch(self, start: int, room: Bytes, stretches: Iterable[tuple[int, int]]) -> None:
        """Bring stretches of a room to where they belong; what cannot be read stays as it is."""


def compute_checksums(data: Bytes) -> Sums:
    """One for each block; there must be whole words."""
    words = data.view("<u8")
    whole = len(words) // _WORDS
    found = words[: whole * _WORDS].reshape(whole, _WORDS) @ _make_factors()
    rest = words[whole * _WORDS :]
    return np.append(found, rest @ _make_factors()[: len(rest)]) if len(rest) else found


@cache
def _make_factors() -> Sums:
    """Odd numbers that have nothing to do with each other: those of a well-mixed count."""
    mixed = np.arange(1, _WORDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed | np.uint64(1)


class CheckedArray:
    """An array in a file, verified by checksums as it is read; safe to share between threads."""

    def __init__(self, file: File, start: int, values: tuple[str, int], length: int, sums: Sums) -> None:
        type_, count = values
        self._file = file
        self._start = start
        self._room = file.room(start, length)
        self._sums = sums
        self._there = np.zeros(len(sums), dtype=np.bool_)
        self._missing = len(sums)
        self._lock = threading.Lock()
        self.type = np.dtype(type_)
        self.values: NDArray[Any] = self._room[: count * self.type.itemsize].view(self.type)
        """The array, of which only what was read may be looked at."""

    @property
    def nbytes(self) -> int:
        """Memory taken by what was read so far."""
        return int(self._there.sum()) * BLOCK if self._missing else len(self._room)

    @property
    def is_mostly_there(self) -> bool:
        """Whether little is left to read."""
        return self._missing * _MANY < len(self._there)

    def whole(self) -> NDArray[Any]:
        """The array."""
        if self._missing:
            self._read_blocks(np.arange(len(self._there)))
        return self.values

    def at(self, places: Counts) -> NDArray[Any]:
        """The values at some places."""
        if self._missing:
            self._read_blocks(places * self.type.itemsize // BLOCK)
        return self.values[places]

    def read_runs(self, first: Counts, lengths: Counts) -> None:
        """Have the runs from `first` on read."""
        if self._missing:
            some = np.flatnonzero(lengths)
            size = self.type.itemsize
            begin = first[some] * size // BLOCK
            end = ((first[some] + lengths[some]) * size - 1) // BLOCK
            self._read_blocks(run_places(begin, end - begin + 1))

    def _read_blocks(self, blocks: Counts) -> None:
        if self._there[blocks].all():
            return
        with self._lock:
            wanted = np.unique(blocks[~self._there[blocks]])
            if len(wanted) * _MANY > self._missing:
                wanted = np.flatnonzero(~self._there)
            if len(wanted) == 0:
                return
            cuts = np.flatnonzero(np.diff(wanted) > 1) + 1
            runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(wanted, cuts)]
            self._file.fetch(self._start, self._room, [(begin * BLOCK, end * BLOCK) for begin, end in runs])
            for begin, end in runs:
                if (
                    compute_checksums(self._room[begin * BLOCK : end * BLOCK]) != self._sums[begin:end]
                ).any():
                    raise DamagedFile
            self._there[wanted] = True
            self._missing -= len(wanted)


class AdjacencyReader:
    """An adjacency in a file, of which the neighbours of single codes can be read."""

    def __init__(self, indptr: CheckedArray, neighbours: CheckedArray, edges: CheckedArray) -> None:
        self._indptr = indptr
        self._neighbours = neighbours
        self._edges = edges
        self._asked = 0

    @property
    def nbytes(self) -> int:
        """Memory taken by what was read so far."""
        return self._indptr.nbytes + self._neighbours.nbytes + self._edges.nbytes

    @property
    def neighbours(self) -> Ints:
        """All neighbours, of which only those that were read may be looked at."""
        return self._neighbours.values

    @property
    def edges(self) -> Ints:
        """The edge position of each neighbour, likewise."""
        return self._edges.values

    @property
    def should_read_all(self) -> bool:
        """Whether it was used so often that all of it should be read."""
        return self._asked > _OFTEN or self._neighbours.is_mostly_there

    def read(self, codes: Counts, *, with_edges: bool) -> tuple[Counts, Counts]:
        """Where the run of each code begins, and its length; NO_ROW has none. The runs are read."""
        self._asked += 1
        known = np.maximum(codes, 0)
        first, end = self._indptr.at(np.stack([known, known + 1]))
        lengths = np.where(codes >= 0, end - first, 0)
        self._neighbours.read_runs(first, lengths)
        if with_edges:
            self._edges.read_runs(first, lengths)
        return first, lengths

    def whole(self) -> Adjacency:
        """All of it, but for the edge positions, which are read when they are wanted."""
        return Adjacency(self._indptr.whole(), self._neighbours.whole(), self._edges.whole)
