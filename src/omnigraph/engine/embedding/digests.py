"""Texts and vectors as numbers of 64 bits: enough to notice that one of them is another now."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

_U64 = np.uint64
_WORD = 8
_WHOLE = _U64(2**64 - 1)
_LONG = 4096
"""Texts of more bytes have so many words that one text at a time is faster than one word of all of them."""


def text_digests(texts: pa.Array) -> Digests:
    """A digest of all bytes of each text, the same in every process; null counts as empty."""
    offsets, data = _bytes_of(pc.fill_null(texts, "").cast(pa.large_string()))
    lengths = np.diff(offsets)
    # Zeros behind, so that a word over the end of the last text is still inside.
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words: Digests = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, 0, (1,))
    digests = _mix_bits(lengths.astype(_U64))
    for row in np.flatnonzero(lengths > _LONG).tolist():
        digests[row] = _of_bytes(data[offsets[row] : offsets[row + 1]])
    here = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    at = 0
    while here.size:
        digests[here] = _mix_bits(digests[here] ^ _words(words, offsets[here] + at, lengths[here] - at))
        at += _WORD
        here = here[lengths[here] > at]
    return digests


def vector_digests(vectors: pa.FixedSizeListArray) -> Digests:
    """A digest of the numbers of each vector; 0 where there is none."""
    digests = np.zeros(len(vectors), _U64)
    valid = vectors.is_valid().to_numpy(zero_copy_only=False)
    if not valid.any():
        return digests
    numbers = vectors.filter(pa.array(valid)).flatten().to_numpy().astype("<f4", copy=False)
    matrix = numbers.view("<u4").reshape(int(valid.sum()), -1)
    # Sums of products with fixed odd numbers, one for each place: a column at a time, whatever the dimension.
    factors = _mix_bits(np.arange(1, matrix.shape[1] + 1, dtype=_U64)) | _U64(1)
    total = np.zeros(len(matrix), _U64)
    for place, factor in enumerate(factors):
        total += matrix[:, place] * factor
    digests[valid] = _mix_bits(total)
    return digests


def join_digests(*parts: Digests) -> Digests:
    """One digest of several, in this order."""
    whole = parts[0]
    for part in parts[1:]:
        whole = _mix_bits(whole * _U64(3) ^ part)
    return whole


def text_digest(text: str) -> np.uint64:
    """The digest of one text."""
    return np.uint64(text_digests(pa.array([text], pa.string()))[0])


def _bytes_of(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    _, bounds, letters = texts.buffers()
    if not len(texts) or letters is None:
        return np.zeros(len(texts) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return offsets - offsets[0], np.frombuffer(letters, np.uint8)[offsets[0] : offsets[-1]]


def _of_bytes(text: NDArray[np.uint8]) -> int:
    return int.from_bytes(blake2b(text.tobytes(), digest_size=_WORD).digest(), "little")


def _words(words: Digests, starts: NDArray[np.int64], left: NDArray[np.int64]) -> Digests:
    """Up to eight bytes of each text, without those of its neighbour."""
    unused = np.maximum(_WORD - left, 0).astype(_U64) * _U64(8)
    return words[starts] & (_WHOLE >> unused)


def _mix_bits(values: NDArray[Any]) -> Digests:
    """Values whose bits all depend on all bits of the given ones."""
    mixed: Digests = values + _U64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> _U64(27))) * _U64(0x94D049BB133111EB)
    return mixed ^ (mixed >> _U64(31))
