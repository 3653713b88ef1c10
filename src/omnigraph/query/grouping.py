"""Group rows by values, encoded as integers: equal values get equal codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import NO_ROW, Positions

_CODE_BYTES = 8
_SPACE = 2**62
_DENSE = 4


def encode_values(values: pa.Array) -> Positions:
    """Return a code for each value; null is NO_ROW. -0.0 equals 0.0, and lists are equal item by item."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = _list_keys(values)
    elif pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0
    indices = values.dictionary_encode().indices
    return np.asarray(indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False), dtype=np.int64)


def _list_keys(values: pa.Array) -> pa.Array:
    """Each list as the bytes of its items' codes."""
    lists = values.cast(pa.large_list(values.type.value_type))
    # Null lists may still hide items, which would shift those behind them.
    items, lengths = lists.flatten(), lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * _CODE_BYTES
    held = encode_values(items).tobytes()
    keys = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(held)]
    )
    return pc.if_else(values.is_valid(), keys, None)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that share their keys, in the order in which each group was first seen."""

    of_row: Positions
    """The group of each row."""
    first: Positions
    """The first row of each group."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.first)


def group_rows(keys: Sequence[Positions], length: int) -> Groups:
    """Group rows by all keys; without keys all rows are one group."""
    if not keys:
        return Groups(np.zeros(length, dtype=np.int64), np.zeros(min(length, 1), dtype=np.int64))
    key, space = keys[0] + 1, _code_space(keys[0])
    for more in keys[1:]:
        if space * _code_space(more) > _SPACE:
            _, key = np.unique(key, return_inverse=True)
            space = len(key)
        key = key * _code_space(more) + more + 1
        space *= _code_space(more)
    return _number_groups(key, space, length)


def _code_space(codes: Positions) -> int:
    return int(codes.max(initial=NO_ROW)) + 2


def _number_groups(key: Positions, space: int, length: int) -> Groups:
    if space > _DENSE * length + 1024:
        _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return Groups(place[of_row], first[order])
    # Written from the last row to the first, what stays is the first row of each key.
    seen = np.full(space, length, dtype=np.int64)
    seen[key[::-1]] = np.arange(length - 1, -1, -1)
    first = np.sort(seen[seen < length])
    number = np.empty(space, dtype=np.int64)
    number[key[first]] = np.arange(len(first))
    return Groups(number[key], first)
