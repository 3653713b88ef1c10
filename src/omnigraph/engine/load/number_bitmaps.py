"""Ids of a load that are numbers, on file with a bit for each number there can be.

Whether some are among others, and whether all differ, is then a matter of a few operations on bytes, however
many rows there are. It is for ids that are numbers without exception and not spread too far; for others there
are no marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.rows.lookup import parse_whole_numbers
from omnigraph.storage.scratch_files import read_scratch, write_scratch

Bits: TypeAlias = NDArray[np.uint8]

MOST = 1 << 24
"""Numbers from here on have no bit."""
_FEWEST = 1 << 16
_PLACES_PER_ROW = 64
_FEW_PLACES = 1 << 20
_READ_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class NumberBitmap:
    """A file of bits; it travels between processes."""

    name: str
    bytes: int
    count: int
    """How many numbers are marked."""


class BitmapBuilder:
    """Marks the numbers of one column, as long as there is nothing else in it."""

    def __init__(self) -> None:
        self._rows = 0
        self._marked: NDArray[np.bool_] | None = np.zeros(_FEWEST, np.bool_)

    def add(self, texts: pa.Array) -> None:
        """Some more values, none of them null."""
        if self._marked is None or not len(texts):
            return
        numbers = parse_whole_numbers(texts)
        last = MOST if numbers is None else int(numbers.max())
        if numbers is None or last >= MOST:
            self._marked = None
            return
        if last >= self._marked.size:
            grown = np.zeros(1 << last.bit_length(), np.bool_)
            grown[: self._marked.size] = self._marked
            self._marked = grown
        self._marked[numbers] = True
        self._rows += len(numbers)

    def write(self, job: LoadJob, name: str) -> NumberBitmap | None:
        """The marks on file, unless there is something that has none."""
        marked = self._marked
        if marked is None or marked.size > max(_FEW_PLACES, _PLACES_PER_ROW * self._rows):
            return None
        bits = np.packbits(marked)
        write_scratch(job.root.objects, job.bitmaps(name), bits.data)
        return NumberBitmap(name, bits.size, int(np.count_nonzero(marked)))


def read_union(job: LoadJob, files: Iterable[NumberBitmap]) -> Bits:
    """What is marked in any of the files."""
    found = np.zeros(0, np.uint8)
    for bits in _read(job, list(files)):
        fewer, found = sorted((found, bits), key=len)
        found[: fewer.size] |= fewer
    return found


def _read(job: LoadJob, files: Sequence[NumberBitmap]) -> Iterator[Bits]:
    """One by one, and in a bucket, where each takes a while, several at a time; few are in memory."""

    def one(file: NumberBitmap) -> Bits:
        return np.frombuffer(read_scratch(job.bitmaps(file.name), 0, file.bytes), np.uint8)

    if job.place.is_local:
        yield from map(one, files)
        return
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        for begin in range(0, len(files), _READ_AT_ONCE):
            yield from threads.map(one, files[begin : begin + _READ_AT_ONCE])


def is_subset(some: Bits, others: Bits) -> bool:
    """Whether all that is marked here is marked there, too."""
    both = min(some.size, others.size)
    return not some[both:].any() and not (some[:both] & ~others[:both]).any()


def count_bits(bits: Bits) -> int:
    """How many numbers are marked."""
    return int(np.bitwise_count(bits).sum(dtype=np.int64))
