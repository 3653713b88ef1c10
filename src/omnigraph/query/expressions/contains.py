"""What holds what, where it differs from row to row: texts and their parts, lists and their items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.expressions.operators import Flags, compare_columns, is_present, true_rows

Places = NDArray[np.int64]

_PLACES_AT_ONCE = 1 << 21
"""Bounds the memory for places where a part could begin."""

_BYTES_ALL_AT_ONCE = 32
"""Rows that agree in so many bytes are looked at one by one: going on byte by byte would take
quadratic time for texts that repeat themselves."""


# --- lists ---------------------------------------------------------------------------------------


def flatten_lists(lists: pa.Array) -> tuple[pa.Array, Places]:
    """The items of all lists one after the other, and the bounds of each list among them."""
    bounds = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return lists.values.slice(bounds[0], bounds[-1] - bounds[0]), bounds - bounds[0]


def list_contains(lists: pa.Array, items: pa.Array) -> Flags:
    """Row by row whether the list has the item; never where either is null."""
    values, bounds = flatten_lists(lists)
    owners = np.repeat(np.arange(len(lists)), np.diff(bounds))
    equal = compare_columns("=", values, items.take(pa.array(owners)))
    return any_within(equal, bounds) & is_present(lists)


def any_within(flags: Flags, bounds: Places) -> Flags:
    """For each range between two bounds whether one of its flags is set."""
    before = np.zeros(len(flags) + 1, np.int32)  # bounds of lists have no more bits
    np.cumsum(flags, out=before[1:])
    reached = before[bounds]
    found: Flags = reached[1:] > reached[:-1]
    return found


# --- one text, parts from rows -------------------------------------------------------------------


def one_text_contains(text: str, parts: pa.Array, *, at_start: bool) -> Flags:
    """Row by row whether one text contains the part, or begins with it."""
    found = np.zeros(len(parts), np.bool_)
    whole = text.encode()
    lengths = pc.fill_null(pc.binary_length(parts), -1).to_numpy(zero_copy_only=False)
    for length in np.unique(lengths):
        if 0 <= length <= len(whole):
            rows = np.flatnonzero(lengths == length)
            starts = range(1 if at_start else len(whole) - int(length) + 1)
            pieces = pa.array({whole[start : start + int(length)] for start in starts}, pa.binary())
            same = pc.is_in(parts.take(pa.array(rows)).cast(pa.binary()), value_set=pieces)
            found[rows] = true_rows(same)
    return found


# --- texts and parts, both from rows -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Texts as one run of bytes and where each begins in it."""

    data: NDArray[np.uint8]
    starts: Places
    lengths: Places


def _bytes_of(texts: pa.Array) -> _Bytes:
    plain = texts.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _Bytes(content, bounds[:-1], np.diff(bounds))


def text_contains(texts: pa.Array, parts: pa.Array, *, at_start: bool) -> Flags:
    """Row by row whether the text contains the part, or begins with it; never where one is null."""
    known = is_present(texts) & is_present(parts)
    if not known.any():
        return known
    text, part = _bytes_of(texts), _bytes_of(parts)
    found: Flags = known & (part.lengths == 0)
    rows = np.flatnonzero(known & (part.lengths > 0) & (part.lengths <= text.lengths))
    undecided = []
    for some, places in _beginnings(text, part, rows, at_start=at_start):
        matched, unsure = _agreeing(text, part, some, places)
        found[matched] = True
        undecided.append(unsure)
    for row in np.unique(np.concatenate(undecided)) if undecided else ():
        found[row] = _one_contains(texts[row].as_py(), parts[row].as_py(), at_start=at_start)
    return found


def _one_contains(text: str, part: str, *, at_start: bool) -> bool:
    return text.startswith(part) if at_start else part in text


def _beginnings(
    text: _Bytes, part: _Bytes, rows: Places, *, at_start: bool
) -> Iterator[tuple[Places, Places]]:
    """Rows, each as often as its part could begin somewhere, and these places in the bytes of the texts."""
    if at_start:
        yield rows, text.starts[rows]
        return
    counts = text.lengths[rows] - part.lengths[rows] + 1
    ends = np.cumsum(counts)
    first = 0
    while first < len(rows):
        before = ends[first] - counts[first]
        last = max(first + 1, int(np.searchsorted(ends, before + _PLACES_AT_ONCE, "right")))
        some, many = rows[first:last], counts[first:last]
        within = np.arange(ends[last - 1] - before) - np.repeat(ends[first:last] - many - before, many)
        yield np.repeat(some, many), np.repeat(text.starts[some], many) + within
        first = last


def _agreeing(text: _Bytes, part: _Bytes, rows: Places, places: Places) -> tuple[Places, Places]:
    """Rows that have their part at one of the places, and rows that agree for long and are undecided."""
    matched: list[Any] = [np.empty(0, np.int64)]
    for step in range(_BYTES_ALL_AT_ONCE):
        agree = text.data[places + step] == part.data[part.starts[rows] + step]
        rows, places = rows[agree], places[agree]
        complete = part.lengths[rows] == step + 1
        matched.append(rows[complete])
        rows, places = rows[~complete], places[~complete]
        if not rows.size:
            break
    return np.concatenate(matched), np.unique(rows)
