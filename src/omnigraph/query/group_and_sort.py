"""Group rows by equal values, and sort them in a total order.

Values are encoded as integers: equal values get equal codes. Rows with equal sort keys are ordered by further
values, so the order is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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


SortKey = NDArray[np.generic]
"""Numbers that sort as the values do, ascending."""
Ties = Callable[[Positions], Sequence[pa.Array]]
"""The values, ascending, that decide between the rows at these places."""

_WORTH_SELECTING = 10_000
_RANK_BYTES = 8


def make_sort_keys(values: pa.Array, descending: bool) -> list[SortKey]:
    """Return numbers that sort as the values do, most significant first; null comes before all values."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = _rank_lists(values)
    keys: list[SortKey] = []
    if values.null_count:
        keys.append(
            _apply_direction(values.is_valid().to_numpy(zero_copy_only=False).astype(np.int8), descending)
        )
    keys.append(_apply_direction(_sortable_numbers(values), descending))
    return keys


def _sortable_numbers(values: pa.Array) -> SortKey:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values = pc.rank(values, "ascending", tiebreaker="dense").cast(pa.int64())
    filled = values.fill_null(pa.scalar(0, values.type)) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _rank_lists(values: pa.Array) -> pa.Array:
    """Numbers that sort as lists do: item by item, and the shorter of two that begin alike first."""
    lists = values.cast(pa.large_list(values.type.value_type))
    # Null lists may still hide items, which would shift those behind them.
    items, lengths = lists.flatten(), lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(items.type):
        items = pc.add(items, pa.scalar(0.0, items.type))  # -0.0 + 0.0 is 0.0
    ranks = pc.rank(items, "ascending", tiebreaker="dense")
    ranks = pc.if_else(items.is_valid(), ranks, pa.scalar(0, ranks.type))
    # Texts of as many bytes each as a rank has, the highest first, compare as the ranks do.
    held = ranks.to_numpy(zero_copy_only=False).astype(">u8").tobytes()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * _RANK_BYTES
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(held)]
    )
    places = pc.rank(texts, "ascending", tiebreaker="dense").cast(pa.int64())
    return pc.if_else(values.is_valid(), places, pa.scalar(None, pa.int64()))


def _apply_direction(key: SortKey, descending: bool) -> SortKey:
    if not descending:
        return key
    negated: SortKey = np.negative(key) if key.dtype.kind == "f" else np.invert(key)
    return negated


def sort_rows(keys: Sequence[SortKey], length: int, ties: Ties, top: int | None = None) -> Positions:
    """Return the rows in order, or the first `top` of them."""
    places = _select_top(keys, length, top)
    chosen = [key[places] for key in keys]
    order = np.arange(len(places)) if _is_sorted(chosen) else np.lexsort(chosen[::-1])
    group = _tie_groups(chosen, order)
    if top is not None and top < len(order):
        # Rows that tie with the last one that fits may come before it.
        order = order[: int(np.searchsorted(group, group[top - 1], "right"))] if top else order[:0]
        group = group[: len(order)]
    return places[_break_ties(places, order, group, ties)][:top]


def _is_sorted(keys: Sequence[SortKey]) -> bool:
    """Whether rows are in order already, as ranked ones mostly are."""
    return not keys or (len(keys) == 1 and bool(np.greater_equal(keys[0][1:], keys[0][:-1]).all()))


def _select_top(keys: Sequence[SortKey], length: int, top: int | None) -> Positions:
    """Rows that can be among the first: all that are not behind the last of them by the first key."""
    if not keys or top is None or length < _WORTH_SELECTING or not 0 < top < length // 4:
        return np.arange(length)
    bound = np.partition(keys[0], top - 1)[top - 1]
    return np.flatnonzero(keys[0] <= bound)


def _tie_groups(keys: Sequence[SortKey], order: Positions) -> Positions:
    """The number of the group of equal keys at each place of the order."""
    if len(order) == 0:
        return order
    starts = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        sorted_key = key[order]
        starts[1:] |= sorted_key[1:] != sorted_key[:-1]
    return np.cumsum(starts)


def _break_ties(places: Positions, order: Positions, group: Positions, ties: Ties) -> Positions:
    if len(order) == 0:
        return order
    sizes = np.bincount(group)
    tied = sizes[group] > 1
    if not tied.any():
        return order
    # Only rows that tie are asked for more.
    among = order[tied]
    decided = [key for values in ties(places[among]) for key in make_sort_keys(values, False)]
    inner = np.lexsort([*decided[::-1], group[tied]])
    ordered = order.copy()
    ordered[tied] = among[inner]
    return ordered
