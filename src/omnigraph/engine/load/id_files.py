"""Ids of a load by their hashes, on file: two with one hash may be equal, all others are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.table_change import exclude
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.rows.lookup import parse_whole_numbers, split_numbers
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


def find_shared_hashes(
    job: LoadJob, files: Sequence[IdHashes], first: int, last: int, most: int = 1 << 62
) -> Hashes | None:
    """The hashes that are there twice, of those whose first byte is at least `first` and below `last`.

    None when there are more than `most` of them.
    """
    parts = [_read_part(job, file, first, last) for file in files]
    shared: list[Hashes] = [np.zeros(0, np.uint64)]
    count = 0
    for byte in range(first, last):
        # Few at a time, which are in order much sooner than all together.
        found = np.concatenate(
            [
                part[file.cuts[byte] - file.cuts[first] : file.cuts[byte + 1] - file.cuts[first]]
                for part, file in zip(parts, files, strict=True)
            ]
        )
        found.sort()
        again = found[1:][found[1:] == found[:-1]]
        if again.size:
            shared.append(np.unique(again))
            count += shared[-1].size
            if count > most:
                return None
    return np.concatenate(shared)


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
_FEW_TEXTS, _ROWS_PER_TEXT = 1024, 16
"""So many other texts, or one in so many rows, are kept beside the bits."""
_READ_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class NumberBitmap:
    """A file of bits, and of the few texts that are no such numbers; it travels between processes."""

    name: str
    bytes: int
    """What the bits take; the texts follow them."""
    text_bytes: int
    count: int
    """How many ids there are."""


@dataclass(frozen=True, slots=True)
class MarkedIds:
    """Ids, each once: numbers as bits, others as texts."""

    bits: Bits
    texts: pa.Array

    @property
    def count(self) -> int:
        """How many ids there are."""
        return int(np.bitwise_count(self.bits).sum(dtype=np.int64)) + len(self.texts)


class BitmapBuilder:
    """Marks the numbers of one column, as long as there is little else in it."""

    def __init__(self) -> None:
        self._rows = 0
        self._marked: NDArray[np.bool_] | None = np.zeros(_FEWEST, np.bool_)
        self._texts = pa.array([], pa.string())

    def add(self, texts: pa.Array) -> None:
        """Some more values; one that is missing is no number."""
        if self._marked is None or not len(texts):
            return
        if texts.null_count:
            self._marked = None
            return
        self._rows += len(texts)
        numbers = parse_whole_numbers(texts)
        if numbers is None or int(numbers.max()) >= MOST:
            numbers = self._keep_texts(texts)
        last = int(numbers.max(initial=0))
        if last >= self._marked.size:
            grown = np.zeros(1 << last.bit_length(), np.bool_)
            grown[: self._marked.size] = self._marked
            self._marked = grown
        self._marked[numbers] = True
        if len(self._texts) > max(_FEW_TEXTS, self._rows // _ROWS_PER_TEXT):
            self._marked = None

    def _keep_texts(self, texts: pa.Array) -> NDArray[np.int64]:
        """Keep what has no bit; return the numbers that have one."""
        numbers, others = split_numbers(texts)
        small = numbers < MOST
        beyond = pa.array(numbers[~small]).cast(pa.string())
        self._texts = pc.unique(pa.concat_arrays([self._texts, others, beyond]))
        return numbers[small]

    def write(self, job: LoadJob, name: str) -> NumberBitmap | None:
        """The marks on file, unless too much has none."""
        marked = self._marked
        if marked is None or marked.size > max(_FEW_PLACES, _PLACES_PER_ROW * self._rows):
            return None
        bits, texts = np.packbits(marked).tobytes(), _pack_texts(self._texts)
        write_scratch(job.root.objects, job.bitmaps(name), bits + texts)
        count = int(np.count_nonzero(marked)) + len(self._texts)
        return NumberBitmap(name, len(bits), len(texts), count)


def _pack_texts(texts: pa.Array) -> bytes:
    if not len(texts):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
        writer.write_batch(pa.record_batch([texts], ["text"]))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_union(job: LoadJob, files: Iterable[NumberBitmap]) -> MarkedIds:
    """What is marked in any of the files."""
    found, texts = np.zeros(0, np.uint8), [pa.array([], pa.string())]
    for one in _read_bitmaps(job, list(files)):
        fewer, found = sorted((found, one.bits), key=len)
        found[: fewer.size] |= fewer
        texts.append(one.texts)
    return MarkedIds(found, pc.unique(pa.concat_arrays(texts)))


def _read_bitmaps(job: LoadJob, files: Sequence[NumberBitmap]) -> Iterator[MarkedIds]:
    """One by one, and in a bucket, where each takes a while, several at a time; few are in memory."""

    def one(file: NumberBitmap) -> MarkedIds:
        body = read_scratch(job.bitmaps(file.name), 0, file.bytes + file.text_bytes)
        texts = pa.array([], pa.string())
        if file.text_bytes:
            texts = pa.ipc.open_stream(memoryview(body)[file.bytes :]).read_all().column(0).combine_chunks()
        return MarkedIds(np.frombuffer(body, np.uint8, file.bytes), texts)

    if job.place.is_local:
        yield from map(one, files)
        return
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        for begin in range(0, len(files), _READ_AT_ONCE):
            yield from threads.map(one, files[begin : begin + _READ_AT_ONCE])


def find_unmarked(some: MarkedIds, known: MarkedIds) -> pa.Array:
    """The ids that are marked here and not there."""
    lost = some.bits.copy()
    both = min(lost.size, known.bits.size)
    lost[:both] &= ~known.bits[:both]
    numbers = pa.array(np.flatnonzero(np.unpackbits(lost)) if lost.any() else np.zeros(0, np.int64))
    texts = exclude(pa.chunked_array([some.texts]), known.texts)
    return pa.concat_arrays([numbers.cast(pa.string()), *texts.chunks])
