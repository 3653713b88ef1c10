"""Rows in a total order: by keys, and what these leave equal by further values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.query.frame import Positions

SortKey = NDArray[np.generic]
"""Numbers that sort as the values do, ascending."""
Ties = Callable[[Positions], Sequence[pa.Array]]
"""The values, ascending, that decide between the rows at these places."""

_WORTH_SELECTING = 10_000


def sort_keys(values: pa.Array, descending: bool) -> list[SortKey]:
    """Numbers that bring values in order, most important first; null comes before all values."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return []
    keys: list[SortKey] = []
    if values.null_count:
        keys.append(_turned(values.is_valid().to_numpy(zero_copy_only=False).astype(np.int8), descending))
    keys.append(_turned(_numbers(values), descending))
    return keys


def _numbers(values: pa.Array) -> SortKey:
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


def _turned(key: SortKey, descending: bool) -> SortKey:
    if not descending:
        return key
    turned: SortKey = np.negative(key) if key.dtype.kind == "f" else np.invert(key)
    return turned


def order_of(keys: Sequence[SortKey], length: int, ties: Ties, top: int | None = None) -> Positions:
    """The rows in order, or the first `top` of them."""
    places = _selected(keys, length, top)
    chosen = [key[places] for key in keys]
    order = np.arange(len(places)) if _is_sorted(chosen) else np.lexsort(chosen[::-1])
    group = _groups(chosen, order)
    if top is not None and top < len(order):
        # Whoever ties with the last one that fits may come before it.
        order = order[: int(np.searchsorted(group, group[top - 1], "right"))] if top else order[:0]
        group = group[: len(order)]
    return places[_untied(places, order, group, ties)][:top]


def _is_sorted(keys: Sequence[SortKey]) -> bool:
    """Whether rows are in order already, as ranked ones mostly are."""
    return not keys or (len(keys) == 1 and bool(np.greater_equal(keys[0][1:], keys[0][:-1]).all()))


def _selected(keys: Sequence[SortKey], length: int, top: int | None) -> Positions:
    """Rows that can be among the first: all that are not behind the last of them by the first key."""
    if not keys or top is None or length < _WORTH_SELECTING or not 0 < top < length // 4:
        return np.arange(length)
    bound = np.partition(keys[0], top - 1)[top - 1]
    return np.flatnonzero(keys[0] <= bound)


def _groups(keys: Sequence[SortKey], order: Positions) -> Positions:
    """The number of the group of equal keys at each place of the order."""
    if len(order) == 0:
        return order
    starts = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        sorted_key = key[order]
        starts[1:] |= sorted_key[1:] != sorted_key[:-1]
    return np.cumsum(starts)


def _untied(places: Positions, order: Positions, group: Positions, ties: Ties) -> Positions:
    if len(order) == 0:
        return order
    sizes = np.bincount(group)
    tied = sizes[group] > 1
    if not tied.any():
        return order
    # Only rows that tie are asked for more.
    among = order[tied]
    decided = [key for values in ties(places[among]) for key in sort_keys(values, False)]
    inner = np.lexsort([*decided[::-1], group[tied]])
    settled = order.copy()
    settled[tied] = among[inner]
    return settled
