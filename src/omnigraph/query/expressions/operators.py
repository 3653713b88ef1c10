"""Operators on Arrow columns: arithmetic, comparisons, and which texts and lists contain what.

Arithmetic never fails: what has no value in the result's type is null. Both columns have the same number of
rows, or one of them has a single row that stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.ast import AffixOp, ArithmeticOp
from omnigraph.lang.query.terms import RelationOp
from omnigraph.lang.types import Scalar, ValueType

Numbers = NDArray[Any]
Flags = NDArray[np.bool_]

_ARITHMETIC: dict[ArithmeticOp, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}


def calculate(op: ArithmeticOp, left: pa.Array, right: pa.Array, type_: ValueType) -> pa.Array:
    """`left op right` as I64 or F64."""
    combine = calculate_whole if type_.scalar is Scalar.I64 else _calculate_floating
    result, wrong = combine(op, to_numpy_numbers(left), to_numpy_numbers(right))
    return _to_column(result, wrong | find_missing(left) | find_missing(right))


def negate(argument: pa.Array, type_: ValueType) -> pa.Array:
    """`-argument` as I64 or F64."""
    found = to_numpy_numbers(argument)
    if type_.scalar is Scalar.I64:
        result, wrong = calculate_whole("-", np.zeros(1, np.int64), found)
    else:
        result = -found.astype(np.float64)
        wrong = ~np.isfinite(result)
    return _to_column(result, wrong | find_missing(argument))


def to_numpy_numbers(column: pa.Array) -> Numbers:
    """The numbers of a column in their own width; nulls are some number."""
    filled = pc.fill_null(column, 0) if column.null_count else column
    found: Numbers = filled.to_numpy(zero_copy_only=False)
    return found


def find_missing(column: pa.Array) -> Flags:
    """Where a column is null; a single flag when it is nowhere."""
    if not column.null_count:
        return np.zeros(1, np.bool_)
    found: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _to_column(result: Numbers, missing: Flags) -> pa.Array:
    return pa.array(result, mask=missing) if missing.any() else pa.array(result)


def calculate_whole(op: ArithmeticOp, left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    """64-bit results and where they are wrong.

    Arithmetic that wraps around is right whenever the true result fits, also for operands above
    the signed range. A result in floats is close enough to the true one to decide whether it does:
    only near the ends of the range the two could be mistaken, and there a result that has wrapped
    around has the other sign.
    """
    result = _ARITHMETIC[op](left.astype(np.int64), right.astype(np.int64))
    close = _ARITHMETIC[op](left.astype(np.float64), right.astype(np.float64))
    size = np.abs(close)
    if not size.size or size.max() < 2.0**62:
        return result, np.zeros(result.shape, np.bool_)
    other_sign = (result < 0) != (close < 0)
    return result, (size > 1.5 * 2.0**63) | ((size > 2.0**62) & other_sign)


def _calculate_floating(op: ArithmeticOp, left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    with np.errstate(all="ignore"):
        result = _ARITHMETIC[op](left.astype(np.float64), right.astype(np.float64))
    return result, ~np.isfinite(result)


FLIPPED: dict[RelationOp, RelationOp] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_KERNELS: dict[RelationOp, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_RELATIONS: dict[RelationOp, Any] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

_EXACT_IN_FLOATS = 2.0**53  # below it every whole number has a float of its own


def true_rows(flags: pa.Array | pa.ChunkedArray) -> Flags:
    """Booleans of Arrow as NumPy's, unknown as false."""
    if isinstance(flags, pa.ChunkedArray):
        flags = flags.combine_chunks()
    if not len(flags):
        return np.zeros(0, np.bool_)
    valid, bits = flags.buffers()
    found = _unpack_bits(bits, flags)
    return found & _unpack_bits(valid, flags) if flags.null_count else found


def _unpack_bits(bits: pa.Buffer, flags: pa.Array) -> Flags:
    """One bit per row as one byte, far faster than Arrow's own conversion."""
    first = flags.offset // 8
    skipped = flags.offset % 8
    found = np.unpackbits(
        np.frombuffer(bits, np.uint8)[first:], count=skipped + len(flags), bitorder="little"
    )
    return found[skipped:].view(np.bool_)


def is_present(column: pa.Array) -> Flags:
    """Where a column has a value."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return true_rows(column.is_valid())


def compare_columns(op: RelationOp, left: pa.Array, right: pa.Array) -> Flags:
    """Row by row whether `left op right`; never where a side is null."""
    if left.type != right.type:
        return (
            _compare_numbers(op, to_numpy_numbers(left), to_numpy_numbers(right))
            & is_present(left)
            & is_present(right)
        )
    if pa.types.is_boolean(left.type):  # Arrow orders no Booleans
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    return true_rows(_KERNELS[op](left, right))


def _compare_numbers(op: RelationOp, left: Numbers, right: Numbers) -> Flags:
    if _may_round(left) and right.dtype.kind == "f":
        return _against_floats(op, left, right.astype(np.float64))
    if _may_round(right) and left.dtype.kind == "f":
        return _against_floats(FLIPPED[op], right, left.astype(np.float64))
    # NumPy compares all other pairs by value, signed with unsigned ones too.
    flags: Flags = _RELATIONS[op](left, right)
    return flags


def _may_round(found: Numbers) -> bool:
    return found.dtype.kind in "iu" and found.dtype.itemsize == 8


def _against_floats(op: RelationOp, whole: Numbers, floats: NDArray[np.float64]) -> Flags:
    """Rounding a whole number to a float can make the two equal, but never swaps their order."""
    rounded = whole.astype(np.float64)
    relation = _RELATIONS[op]
    flags: Flags = relation(rounded, floats)
    ties = np.flatnonzero((rounded == floats) & (np.abs(floats) >= _EXACT_IN_FLOATS))
    if ties.size:
        # As a float the largest whole number is the first one that is too large.
        above = floats[ties] >= float(np.iinfo(whole.dtype).max)
        exact = np.where(above, 0, floats[ties]).astype(whole.dtype)
        flags[ties] = np.where(above, relation(0, 1), relation(whole[ties], exact))
    return flags


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


def one_text_contains(op: AffixOp, text: str, parts: pa.Array) -> Flags:
    """Row by row whether one text contains the part, or begins or ends with it."""
    found = np.zeros(len(parts), np.bool_)
    whole = text.encode()
    lengths = pc.fill_null(pc.binary_length(parts), -1).to_numpy(zero_copy_only=False)
    for length in np.unique(lengths):
        if 0 <= length <= len(whole):
            rows = np.flatnonzero(lengths == length)
            last = len(whole) - int(length)
            starts = range(last if op == "ends_with" else 0, 1 if op == "starts_with" else last + 1)
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


def text_contains(op: AffixOp, texts: pa.Array, parts: pa.Array) -> Flags:
    """Row by row whether the text contains the part, or begins or ends with it; never where one is null."""
    known = is_present(texts) & is_present(parts)
    if not known.any():
        return known
    text, part = _bytes_of(texts), _bytes_of(parts)
    found: Flags = known & (part.lengths == 0)
    rows = np.flatnonzero(known & (part.lengths > 0) & (part.lengths <= text.lengths))
    undecided = []
    for some, places in _find_beginnings(op, text, part, rows):
        matched, unsure = _match_places(text, part, some, places)
        found[matched] = True
        undecided.append(unsure)
    for row in np.unique(np.concatenate(undecided)) if undecided else ():
        found[row] = _one_contains(op, texts[row].as_py(), parts[row].as_py())
    return found


def _one_contains(op: AffixOp, text: str, part: str) -> bool:
    if op == "contains":
        return part in text
    return text.startswith(part) if op == "starts_with" else text.endswith(part)


def _find_beginnings(
    op: AffixOp, text: _Bytes, part: _Bytes, rows: Places
) -> Iterator[tuple[Places, Places]]:
    """Rows, each as often as its part could begin somewhere, and these places in the bytes of the texts."""
    if op != "contains":
        before = text.lengths[rows] - part.lengths[rows] if op == "ends_with" else 0
        yield rows, text.starts[rows] + before
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


def _match_places(text: _Bytes, part: _Bytes, rows: Places, places: Places) -> tuple[Places, Places]:
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
