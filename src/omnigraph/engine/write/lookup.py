"""Many texts looked up among many others.

Very often ids are numbers. As such they are found in a table with a place for each, in a tenth of the time
that texts take.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.write.text_bytes import bytes_of

_MOST_DIGITS = 18
_PLACES_PER_NUMBER = 16
_FEW_PLACES = 1 << 20
_ZERO, _NINE = b"09"


def all_among(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> bool:
    """Whether each text that is wanted is one of the known ones; none of them is null."""
    table = _table(known)
    if table is None:
        there = pc.is_in(wanted, value_set=known.combine_chunks())
        return pc.all(there).as_py() is not False
    return all(_all_in(table, chunk) for chunk in wanted.chunks)


def _table(known: pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """For each number whether it is known; None when not all are numbers, or they are too far apart."""
    numbers = [_numbers(chunk) for chunk in known.chunks]
    if any(part is None for part in numbers):
        return None
    together = np.concatenate([*(part for part in numbers if part is not None), np.zeros(0, np.int64)])
    places = int(together.max(initial=0)) + 1
    if places > max(_FEW_PLACES, _PLACES_PER_NUMBER * len(together)):
        return None
    table = np.zeros(places, np.bool_)
    table[together] = True
    return table


def _all_in(table: NDArray[np.bool_], chunk: pa.Array) -> bool:
    numbers = _numbers(chunk)
    if numbers is None or not len(numbers):
        # What is no number cannot be a known one.
        return numbers is not None
    return int(numbers.max()) < len(table) and bool(table[numbers].all())


def _numbers(texts: pa.Array) -> NDArray[np.int64] | None:
    """Texts as the numbers they are, when all of them are digits without a zero before them."""
    data, offsets = bytes_of(texts)
    lengths = np.diff(offsets)
    if not len(lengths):
        return np.zeros(0, np.int64)
    if int(lengths.min()) < 1 or int(lengths.max()) > _MOST_DIGITS:
        return None
    first = data[offsets[:-1]]
    if int(first.max()) > _NINE or int(first.min()) < _ZERO or ((first == _ZERO) & (lengths > 1)).any():
        return None
    try:
        # Behind such a beginning nothing but digits is taken.
        return np.asarray(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        return None
