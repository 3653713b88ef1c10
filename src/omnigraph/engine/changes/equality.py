"""Whether stored values differ, whole columns at once.

Null differs from empty, floats are compared by their bits (so -0.0 is not 0.0), lists and vectors item by
item, Blobs by their bytes. Numbers of different widths are equal when they mean the same number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def values_differ(left: pa.ChunkedArray | pa.Array, right: pa.ChunkedArray | pa.Array) -> Mask:
    """Return for each row whether the values of two columns of equal length differ."""
    ours, theirs = _whole(left), _whole(right)
    present, too = _valid(ours), _valid(theirs)
    found: Mask = present != too
    both = np.flatnonzero(present & too)
    if len(both) == len(found):
        return _present_differ(ours, theirs)
    if len(both):
        found[both] = _present_differ(ours.take(pa.array(both)), theirs.take(pa.array(both)))
    return found


def _present_differ(left: pa.Array, right: pa.Array) -> Mask:
    if _is_list(left.type) and _is_list(right.type):
        return _lists_differ(left, right)
    alike = _cast_to_common(left, right)
    if alike is None:
        # Rare: a property changed its type, and some value exists in one of the types only.
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((ours != theirs for ours, theirs in pairs), np.bool_, len(left))
    left, right = alike
    if pa.types.is_floating(left.type):
        bits = np.dtype(f"u{left.type.bit_width // 8}")
        ours, theirs = (column.to_numpy(zero_copy_only=False).view(bits) for column in (left, right))
        return np.asarray(ours != theirs)
    return _mask(pc.not_equal(left, right))


def _lists_differ(left: pa.Array, right: pa.Array) -> Mask:
    lengths, others = _lengths(left), _lengths(right)
    found: Mask = lengths != others
    same = np.flatnonzero(~found)
    # The items of all rows that can be equal are compared at once, then counted row by row.
    wrong = values_differ(left.take(pa.array(same)).flatten(), right.take(pa.array(same)).flatten())
    counted = np.concatenate(([0], np.cumsum(wrong)))
    ends = np.cumsum(lengths[same])
    found[same] = counted[ends] != counted[ends - lengths[same]]
    return found


def _cast_to_common(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Both columns in one type; None when there is none that has the values of both."""
    if left.type.equals(right.type):
        return left, right
    if not any(belong(left.type) and belong(right.type) for belong in _FAMILIES):
        return None
    for goal in (right.type, left.type):
        try:
            return left.cast(goal), right.cast(goal)
        except pa.ArrowInvalid:  # a value that the other type does not have
            continue
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (_is_number, _is_text, _is_moment)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [_none(column)])


def _none(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([], column.type)


def _valid(column: pa.Array) -> Mask:
    return _mask(column.is_valid())


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.value_lengths().to_numpy(zero_copy_only=False)).astype(np.int64)


def _mask(column: Any) -> Mask:
    return np.array(column.to_numpy(zero_copy_only=False), np.bool_)
