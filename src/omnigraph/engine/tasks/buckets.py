"""Partition rows into buckets by a hash of their key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.rows.lookup import text_buffers
from omnigraph.errors import InternalError

MAX_BUCKETS = 65_535

_WINDOW = 8
# Keys are read up to here and at their end; longer ones that differ only in between share a bucket.
_WINDOWS = 64
_U64 = np.uint64
Hashes = npt.NDArray[np.uint64]


def partition_rows(rows: pa.Table, key: str, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has any, in the order they have."""
    if not rows.num_rows:
        return
    if buckets == 1:
        yield 0, rows
        return
    chosen = (hash_keys(rows.column(key)) % _U64(buckets)).astype(np.uint16)
    order = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[order], np.arange(buckets + 1))
    sorted_rows = rows.take(pa.array(order)).combine_chunks()
    for bucket in np.flatnonzero(ends[1:] > ends[:-1]).tolist():
        yield bucket, sorted_rows.slice(int(ends[bucket]), int(ends[bucket + 1] - ends[bucket]))


def hash_keys(keys: pa.Array | pa.ChunkedArray) -> Hashes:
    """A 64-bit hash of each text or binary value, the same for equal values however they are stored.

    It is stable between processes and machines. It places keys and proves nothing about their equality.
    """
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    if not chunks:
        return np.empty(0, _U64)
    return np.concatenate([_hash_of(chunk) for chunk in chunks])


def are_among(hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """For each hash whether it is one of those that are wanted."""
    # Few share the last bits with one of few others; only these are compared in full.
    last = _U64((1 << max(16, (8 * len(wanted)).bit_length())) - 1)
    likely = np.zeros(int(last) + 1, np.bool_)
    likely[wanted & last] = True
    found: npt.NDArray[np.bool_] = likely[hashes & last]
    found[found] = np.isin(hashes[found], wanted)
    return found


def _hash_of(keys: pa.Array) -> Hashes:
    if keys.null_count:
        raise InternalError("a key to be hashed is null")
    data, offsets = text_buffers(keys)
    lengths = np.diff(offsets)
    # Eight zero bytes behind, so that a window over the end of the last value is still inside.
    padded = np.zeros(len(data) + _WINDOW, np.uint8)
    padded[: len(data)] = data
    windows: Hashes = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, 0, (1,))
    hashes = _mix_bits(lengths.astype(_U64))
    for at in range(_WINDOWS):
        here = np.flatnonzero(lengths > at * _WINDOW)
        if not here.size:
            return hashes
        hashes[here] = _mix_bits(
            hashes[here] ^ _read_word(windows, offsets[here], lengths[here], at * _WINDOW)
        )
    ends = np.flatnonzero(lengths > _WINDOWS * _WINDOW)
    hashes[ends] = _mix_bits(hashes[ends] ^ windows[offsets[ends] + lengths[ends] - _WINDOW])
    return hashes


def _read_word(windows: Hashes, starts: npt.NDArray[Any], lengths: npt.NDArray[Any], at: int) -> Hashes:
    """Up to eight bytes of each value from `at` on, without those of its neighbour."""
    left = np.minimum(lengths - at, _WINDOW).astype(_U64)
    unused = (_U64(_WINDOW) - left) * _U64(8)
    words: Hashes = (windows[starts + at] << unused) >> unused
    return words


def _mix_bits(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        values = (values + _U64(0x9E3779B97F4A7C15)) * _U64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> _U64(29))) * _U64(0x94D049BB133111EB)
        return values ^ (values >> _U64(32))
