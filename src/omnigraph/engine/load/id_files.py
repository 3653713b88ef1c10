"""Ids of a load by their hashes, on file: two with one hash may be equal, all others are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.rows.lookup import parse_whole_numbers
from omnigraph.engine.tasks.buckets import Hashes
from omnigraph.storage.scratch import read_scratch, write_scratch

RANGES = 256
"""Hashes lie on file by their first byte, so that a file can be read in so many parts."""
_REST = np.uint64(64 - 8)
_SIZE = 8


@dataclass(frozen=True, slots=True)
class IdHashes:
    """A file of hashes; it travels between processes."""

    name: str
    cuts: NDArray[np.int64]
    """Where the hashes with each first byte begin in the file, and where the last ones end."""

    @property
    def count(self) -> int:
        """How many hashes there are."""
        return int(self.cuts[-1])


def write_id_hashes(job: LoadJob, name: str, hashes: Sequence[Hashes]) -> IdHashes:
    """Put hashes on file."""
    together = np.concatenate(hashes)
    first = (together >> _REST).astype(np.uint8)
    order = np.argsort(first, kind="stable")
    cuts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=RANGES))])
    write_scratch(job.root.objects, job.id_hashes(name), together[order].astype("<u8", copy=False).data)
    return IdHashes(name, cuts)


def are_distinct(job: LoadJob, files: Sequence[IdHashes], first: int, last: int) -> bool:
    """Whether no hash is there twice of those whose first byte is at least `first` and below `last`."""
    parts = [_read_part(job, file, first, last) for file in files]
    for byte in range(first, last):
        # Few at a time, which are in order much sooner than all together.
        found = np.concatenate(
            [
                part[file.cuts[byte] - file.cuts[first] : file.cuts[byte + 1] - file.cuts[first]]
                for part, file in zip(parts, files, strict=True)
            ]
        )
        found.sort()
        if (found[1:] == found[:-1]).any():
            return False
    return True


def _read_part(job: LoadJob, file: IdHashes, first: int, last: int) -> Hashes:
    begin, end = int(file.cuts[first]), int(file.cuts[last])
    body = read_scratch(job.id_hashes(file.name), begin * _SIZE, (end - begin) * _SIZE)
    return np.frombuffer(body, "<u8").astype(np.uint64, copy=False)


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
        """Some more values; one that is missing is no number."""
        if self._marked is None or not len(texts):
            return
        numbers = None if texts.null_count else parse_whole_numbers(texts)
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
    for bits in _read_bitmaps(job, list(files)):
        fewer, found = sorted((found, bits), key=len)
        found[: fewer.size] |= fewer
    return found


def _read_bitmaps(job: LoadJob, files: Sequence[NumberBitmap]) -> Iterator[Bits]:
    """One by one, and in a bucket, where each takes a while, several at a time; few are in memory."""

    def one(file: NumberBitmap) -> Bits:
        return np.frombuffer(read_scratch(job.bitmaps(file.name), 0, file.bytes), np.uint8)

    if job.place.is_local:
        yield from map(one, files)
        return
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        for begin in range(0, len(files), _READ_AT_ONCE):
            yield from threads.map(one, files[begin : begin + _READ_AT_ONCE])


def is_marked_subset(some: Bits, others: Bits) -> bool:
    """Whether all that is marked here is marked there, too."""
    both = min(some.size, others.size)
    return not some[both:].any() and not (some[:both] & ~others[:both]).any()


def count_bits(bits: Bits) -> int:
    """How many numbers are marked."""
    return int(np.bitwise_count(bits).sum(dtype=np.int64))
