"""Many texts looked up among many others.

Very often ids are numbers. As such they are found in a table with a place for each, in a tenth of the time
that texts take. What is no number, or one far beyond the others, is looked up as a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import InternalError


def text_buffers(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes an array uses, which may be a slice of a larger one, and where its values begin in them."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width: np.dtype[Any] = np.dtype("<i4")
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.dtype("<i8")
    else:
        raise InternalError(f"an array of type {kind} holds no texts")
    if len(keys) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, places, values = keys.buffers()
    offsets = np.frombuffer(places, width, len(keys) + 1, keys.offset * width.itemsize).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(values, np.uint8, last - first, first) if last > first else np.empty(0, np.uint8)
    return data, offsets - first


_MOST_DIGITS = 18
_PLACES_PER_TEXT = 16
_FEW_PLACES = 1 << 20
_ZERO, _NINE, _MINUS = b"09-"


def is_subset(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> bool:
    """Whether each text that is wanted is one of the known ones; none of them is null."""
    return not len(find_absent(wanted, known))


def find_absent(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.Array:
    """The texts that are wanted and none of the known ones, each once; none of them is null."""
    places = max(_FEW_PLACES, _PLACES_PER_TEXT * len(known))
    numbers, texts = _split_by_form(known, places)
    asked_numbers, asked_texts = _split_by_form(wanted, places)
    absent = [*_absent_numbers(asked_numbers, numbers), *_absent_texts(asked_texts, texts)]
    return pc.unique(pa.concat_arrays(absent)) if absent else pa.array([], pa.string())


def parse_whole_numbers(texts: pa.Array) -> NDArray[np.int64] | None:
    """Texts as the numbers they are; None when one is not just digits without a zero before them."""
    data, offsets = text_buffers(texts)
    lengths = np.diff(offsets)
    if not len(texts) or lengths.min() == 0 or lengths.max() > _MOST_DIGITS:
        return None
    first = data[offsets[:-1]]
    # Arrow takes these for numbers, too: 007, 0x1f and -1.
    if ((first == _MINUS) | ((first == _ZERO) & (lengths > 1))).any():
        return None
    try:
        return np.asarray(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        return None


def _absent_numbers(wanted: list[NDArray[np.int64]], known: list[NDArray[np.int64]]) -> Iterator[pa.Array]:
    # The last place is never taken: it stands for all numbers beyond the known ones.
    table = np.zeros(2 + max((int(part.max(initial=0)) for part in known), default=0), np.bool_)
    for part in known:
        table[part] = True
    for part in wanted:
        there = table[np.minimum(part, len(table) - 1)]
        if not there.all():
            yield pa.array(np.unique(part[~there])).cast(pa.string())


def _absent_texts(wanted: list[pa.Array], known: list[pa.Array]) -> Iterator[pa.Array]:
    asked = pa.table({"text": pa.chunked_array(wanted, pa.string())})
    if not asked.num_rows:
        return
    # Much faster than `is_in`, which looks at one text after the other; one thread, as a task has one core.
    others = pa.table({"text": pa.chunked_array(known, pa.string())})
    lost = asked.join(others, "text", join_type="left anti", use_threads=False)
    if lost.num_rows:
        yield pc.unique(lost.column("text"))


def _split_by_form(texts: pa.ChunkedArray, places: int) -> tuple[list[NDArray[np.int64]], list[pa.Array]]:
    """The numbers below `places`, and all other texts."""
    numbers, others = [], []
    for chunk in texts.chunks:
        written, rest = split_numbers(chunk)
        small = written < places
        if not small.all():
            others.append(pa.array(written[~small]).cast(pa.string()))
        numbers.append(written[small])
        others.append(rest)
    return numbers, [part for part in others if len(part)]


def split_numbers(texts: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Texts that are digits without a zero before them, as numbers, and the rest of them."""
    data, offsets = text_buffers(texts)
    lengths = np.diff(offsets)
    likely = (lengths > 0) & (lengths <= _MOST_DIGITS)
    if not likely.all():
        numbers, rest = split_numbers(texts.filter(pa.array(likely))) if likely.any() else (_NONE, texts[:0])
        return numbers, pa.concat_arrays([rest, texts.filter(pa.array(~likely))])
    first = data[offsets[:-1]]
    digits = (data >= _ZERO) & (data <= _NINE)
    if digits.all() and not ((first == _ZERO) & (lengths > 1)).any():
        return np.asarray(texts.cast(pa.int64())), texts[:0]
    # None is empty here: for one without bytes `reduceat` would look at the next.
    plain = np.logical_and.reduceat(digits, offsets[:-1]) & ((first != _ZERO) | (lengths == 1))
    return np.asarray(texts.filter(pa.array(plain)).cast(pa.int64())), texts.filter(pa.array(~plain))


_NONE = np.zeros(0, np.int64)
