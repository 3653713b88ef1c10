"""Arrow columns of any origin -> columns of properties: without loss, or with a reason why not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.engine.load.sources.coercion import (
    exact_decimals,
    find_rows,
    nan_to_null,
    uuid_texts,
    whole_decimals,
    whole_floats,
    without_faults,
)
from omnigraph.engine.load.sources.text_columns import NOT_UTF8, parse_dates, valid_texts
from omnigraph.engine.rows.blobs import Refusal, read_blobs, to_writable
from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.engine.rows.ndjson import format_json
from omnigraph.engine.rows.violations import Flags, Numbers
from omnigraph.lang import dates
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from omnigraph.lang.values import FORMS, arrow_type, format_number, integer_bounds

_PER_DAY = {"s": 86_400, "ms": dates.DAY, "us": dates.DAY * 1000, "ns": dates.DAY * 1_000_000}
_PER_MILLISECOND = {"ms": 1, "us": 1000, "ns": 1_000_000}
_FLOAT_WIDTHS = {Scalar.F32: 24, Scalar.F64: 53}
"""Up to two to this power every integer is a float of the type."""


# --- which columns are taken at all --------------------------------------------------------------


def plain_type(found: pa.DataType) -> pa.DataType:
    """A column's type without what only says how its values are laid out."""
    if isinstance(found, pa.UuidType):
        return pa.string()
    if isinstance(found, pa.BaseExtensionType):
        return plain_type(found.storage_type)
    if kinds.is_dictionary(found) or kinds.is_run_end_encoded(found):
        return plain_type(found.value_type)
    if kinds.is_large_string(found) or kinds.is_string_view(found):
        return pa.string()
    if kinds.is_binary(found) or kinds.is_binary_view(found) or kinds.is_fixed_size_binary(found):
        return pa.large_binary()
    if _is_list(found):
        return pa.list_(plain_type(found.value_type))
    return found


def is_convertible(found: pa.DataType, type_: ValueType) -> bool:
    """Whether values of a column can be values of a property; single ones may still not fit."""
    plain = plain_type(found)
    if kinds.is_null(plain):
        return True
    if type_.scalar is Scalar.BLOB:
        return bool(kinds.is_large_binary(plain) or kinds.is_string(plain))
    if type_.scalar is Scalar.VECTOR:
        items = plain.value_type if kinds.is_list(plain) else plain
        return kinds.is_list(plain) and any(test(items) for test in _IN_VECTORS)
    if type_.is_list:
        return kinds.is_list(plain) and _is_taken_alone(plain.value_type, type_.scalar)
    return _is_taken_alone(plain, type_.scalar)


def _is_taken_alone(plain: pa.DataType, scalar: Scalar) -> bool:
    return kinds.is_null(plain) or any(test(plain) for test in _TAKEN[scalar])


_DATES = (kinds.is_string, kinds.is_date, kinds.is_timestamp, kinds.is_integer)
_TAKEN: dict[Scalar, tuple[Callable[[pa.DataType], bool], ...]] = {
    Scalar.STRING: (kinds.is_string, kinds.is_decimal),
    Scalar.BOOL: (kinds.is_boolean,),
    Scalar.DATE: _DATES,
    Scalar.DATETIME: _DATES,
    **dict.fromkeys((*INTEGERS, *FLOATS), (kinds.is_integer, kinds.is_floating, kinds.is_decimal)),
}


_IN_VECTORS = (kinds.is_null, kinds.is_integer, kinds.is_floating)


def _is_list(found: pa.DataType) -> bool:
    return any(
        test(found)
        for test in (
            kinds.is_list,
            kinds.is_large_list,
            kinds.is_fixed_size_list,
            kinds.is_list_view,
            kinds.is_large_list_view,
        )
    )


# --- columns -------------------------------------------------------------------------------------


def convert_column(
    column: pa.Array, name: str, type_: ValueType, field: pa.Field, external: Refusal
) -> ParsedColumn:
    """The column of a property; `field` says how it is stored."""
    column = plain(column)
    if type_.scalar is Scalar.BLOB:
        return _convert_blobs(column, name, field, external)
    if kinds.is_null(column.type):
        return ParsedColumn(pa.nulls(len(column), arrow_type(type_)))
    if type_.scalar is Scalar.VECTOR:
        return _convert_vectors(column, name, type_)
    if type_.is_list:
        return _convert_lists(column, name, type_)
    if type_.nullable and kinds.is_floating(column.type):
        column = nan_to_null(column)
    return _convert_scalars(column, name, type_.scalar)


def plain(column: pa.Array) -> pa.Array:
    """The values of a column without what only says how they are laid out; widths stay."""
    if isinstance(column.type, pa.UuidType):
        return uuid_texts(column.storage)
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if kinds.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column))
    if kinds.is_dictionary(column.type):
        values = plain(column.dictionary)
        # Views have no `take`.
        return (values.cast(pa.string()) if kinds.is_string_view(values.type) else values).take(
            column.indices
        )
    return column


def _convert_blobs(column: pa.Array, name: str, field: pa.Field, external: Refusal) -> ParsedColumn:
    if kinds.is_null(column.type):
        column = column.cast(pa.large_binary())
    if plain_type(column.type) == pa.string():
        texts, wrong = valid_texts(column)
        cells = read_blobs(texts.to_pylist(), name, field, external)
        return cells if wrong is None else with_faults(cells, wrong, name, Scalar.BLOB)
    rows = pa.table([column.cast(pa.large_binary())], names=[field.name])
    return ParsedColumn(to_writable(rows, pa.schema([field])).column(0).combine_chunks())


def _convert_scalars(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    found = column.type
    if plain_type(found) == pa.string():
        return _convert_texts(column, name, scalar)
    if scalar is Scalar.BOOL:
        return ParsedColumn(column)
    if kinds.is_decimal(found):
        return _decimals(column, name, scalar)
    if scalar in FLOATS:
        return _convert_floats(column, name, scalar)
    if kinds.is_floating(found):
        whole = whole_floats(column, name, scalar)
        cells = convert_integers(whole.array, name, scalar)
        return ParsedColumn(cells.array, {**cells.faults, **whole.faults})
    if kinds.is_timestamp(found) or kinds.is_date(found):
        return (_convert_days if scalar is Scalar.DATE else _convert_moments)(column, name)
    cells = convert_integers(column, name, scalar)
    if scalar in INTEGERS:
        return cells
    return ParsedColumn(cells.array.view(arrow_type(ValueType(scalar))), cells.faults)


def _decimals(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    if scalar is Scalar.STRING:
        return ParsedColumn(column.cast(pa.string()))
    if scalar in INTEGERS:
        return whole_decimals(column, name, scalar)
    exact = exact_decimals(column, name)
    cells = _convert_floats(exact.array, name, scalar)
    return ParsedColumn(cells.array, {**cells.faults, **exact.faults})


def _convert_texts(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    texts, wrong = valid_texts(column)
    cells = parse_dates(texts, name, ValueType(scalar))
    if wrong is None:
        return cells
    return with_faults(cells, wrong, name, scalar)


def with_faults(cells: ParsedColumn, wrong: Flags, name: str, scalar: Scalar) -> ParsedColumn:
    """The same cells, with texts refused that are not UTF-8."""
    reason = f"strict property '{name}' expects {FORMS[scalar].name}, got {NOT_UTF8}"
    return ParsedColumn(
        cells.array, {**cells.faults, **dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)}
    )


def convert_integers(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """Integers of any width by the range of the type; a Date or DateTime by its numbers."""
    target = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(scalar) or arrow_type(
        ValueType(scalar)
    )
    try:
        return ParsedColumn(column if column.type == target else column.cast(target))
    except pa.ArrowInvalid:
        outside = _is_outside(column, *integer_bounds(scalar))
    reason = f"property '{name}' value {{}} exceeds {FORMS[scalar].name} range"
    faults = {row: reason.format(format_number(column[row].as_py())) for row in find_rows(outside)}
    return ParsedColumn(pc.if_else(outside, pa.scalar(None, column.type), column).cast(target), faults)


def _is_outside(column: pa.Array, low: int, high: int) -> pa.Array:
    held = np.iinfo(column.type.to_pandas_dtype())
    least, most = max(low, int(held.min)), min(high, int(held.max))
    return pc.or_(
        pc.less(column, pa.scalar(least, column.type)), pc.greater(column, pa.scalar(most, column.type))
    )


# --- floats --------------------------------------------------------------------------------------


def _convert_floats(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """Floats, rounded to the width of the type as in every other input; integers where they are exact."""
    target = arrow_type(ValueType(scalar))
    found = column.cast(target, safe=False)
    if kinds.is_integer(column.type):
        wrong = _inexact_integers(column, scalar)
        reason = f"property '{name}' value {{}} is not exact in {FORMS[scalar].name}"
        return without_faults(found, {row: reason.format(column[row].as_py()) for row in wrong})
    wrong = find_rows(pc.invert(pc.is_finite(found)))
    return without_faults(found, {row: _why_not_finite(column[row].as_py(), name, scalar) for row in wrong})


def _inexact_integers(column: pa.Array, scalar: Scalar) -> list[int]:
    width = _FLOAT_WIDTHS[scalar]
    if column.type.bit_width <= width:
        return []
    # Most integers are so small that no float misses them; the others are tried.
    large = find_rows(_is_outside(column, -(2**width), 2**width))
    as_float = np.float32 if scalar is Scalar.F32 else np.float64
    return [row for row in large if int(as_float(value := column[row].as_py())) != value]


def _why_not_finite(value: float, name: str, scalar: Scalar) -> str:
    if np.isfinite(value):
        return f"property '{name}': float value {format_number(value)} exceeds {FORMS[scalar].name} range"
    return f"property '{name}': float value {format_number(value)} must be finite"


# --- days and moments ----------------------------------------------------------------------------


def _time_numbers(column: pa.Array) -> tuple[Numbers, Flags]:
    """The numbers behind days or moments, 0 for null, and which are null."""
    stored = column.view(pa.int32() if kinds.is_date32(column.type) else pa.int64())
    missing = stored.is_null().to_numpy(zero_copy_only=False)
    return stored.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), missing


def _convert_moments(column: pa.Array, name: str) -> ParsedColumn:
    """Milliseconds, rounded down; a moment without a zone is one of UTC."""
    target = arrow_type(ValueType(Scalar.DATETIME))
    if column.type == target:
        return ParsedColumn(column)
    numbers, missing = _time_numbers(column)
    unit = "ms" if kinds.is_date64(column.type) else getattr(column.type, "unit", "day")
    if unit in _PER_MILLISECOND:
        return ParsedColumn(_build_array(numbers // _PER_MILLISECOND[unit], missing).view(target))
    times = dates.DAY if kinds.is_date32(column.type) else 1000
    low, high = integer_bounds(Scalar.DATETIME)
    outside = (numbers < -(-low // times)) | (numbers > high // times)
    reason = f"property '{name}' value {{}} exceeds {FORMS[Scalar.DATETIME].name} range"
    faults = {row: reason.format(int(numbers[row]) * times) for row in np.flatnonzero(outside).tolist()}
    kept = np.where(outside, 0, numbers) * times
    return ParsedColumn(_build_array(kept, missing | outside).view(target), faults)


def _convert_days(column: pa.Array, name: str) -> ParsedColumn:
    """Whole days; a moment is one only at midnight, in its own zone or in UTC."""
    target = arrow_type(ValueType(Scalar.DATE))
    if column.type == target:
        return ParsedColumn(column)
    numbers, missing = _time_numbers(column)
    unit = "ms" if kinds.is_date64(column.type) else column.type.unit
    days, rest = np.divmod(numbers, _PER_DAY[unit])
    if getattr(column.type, "tz", None) not in (None, "UTC"):
        local_days, local_rest = np.divmod(_time_numbers(pc.local_timestamp(column))[0], _PER_DAY[unit])
        days, rest = np.where(local_rest == 0, local_days, days), np.where(local_rest == 0, 0, rest)
    low, high = integer_bounds(Scalar.DATE)
    wrong = (rest != 0) | (days < low) | (days > high)
    faults = {
        row: f"strict property '{name}' expects Date32, got {_moment_text(int(numbers[row]), unit)}"
        for row in np.flatnonzero(wrong).tolist()
    }
    kept = np.where(wrong, 0, days).astype(np.int32)
    return ParsedColumn(_build_array(kept, missing | wrong).view(target), faults)


def _moment_text(number: int, unit: str) -> str:
    milliseconds = number * 1000 if unit == "s" else number // _PER_MILLISECOND[unit]
    return format_json(dates.format_datetime(milliseconds))


def _build_array(numbers: np.ndarray[tuple[int], np.dtype[np.signedinteger]], missing: Flags) -> pa.Array:
    return pa.array(numbers, mask=missing if missing.any() else None)


# --- lists and vectors ---------------------------------------------------------------------------


def _split_lists(column: pa.Array) -> tuple[pa.Array, Numbers, Flags]:
    """All items of lists, how many each list has, and which lists are null; these have none."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return plain(column.flatten()), lengths, missing


def _convert_lists(column: pa.Array, name: str, type_: ValueType) -> ParsedColumn:
    items, lengths, missing = _split_lists(column)
    if kinds.is_null(items.type):
        items = items.cast(arrow_type(type_.item))
    cells = _convert_scalars(items, name, type_.scalar)
    wrong = _lists_with_faults(cells, lengths)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    masked = missing | wrong
    array = pa.ListArray.from_arrays(
        pa.array(offsets),
        cells.array,
        type=arrow_type(type_),
        mask=pa.array(masked) if masked.any() else None,
    )
    reason = f"strict list property '{name}' contains a null or invalid item"
    return ParsedColumn(array, dict.fromkeys(np.flatnonzero(wrong).tolist(), reason))


def _lists_with_faults(cells: ParsedColumn, lengths: Numbers) -> Flags:
    """Which lists have an item that is null or does not fit."""
    wrong = np.zeros(len(lengths), np.bool_)
    if cells.array.null_count or cells.faults:
        bad = cells.array.is_null().to_numpy(zero_copy_only=False)
        wrong[np.repeat(np.arange(len(lengths)), lengths)[bad]] = True
    return wrong


def _convert_vectors(column: pa.Array, name: str, type_: ValueType) -> ParsedColumn:
    """Vectors of 32-bit floats; wider numbers are rounded to these, as they are in every other input."""
    items, lengths, missing = _split_lists(column)
    size = type_.dimension
    faults = {
        row: f"vector property '{name}' expects {size} dimensions, got {lengths[row]}"
        for row in np.flatnonzero((lengths != size) & ~missing).tolist()
    }
    numbers = items.cast(pa.float32(), safe=False)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    for at in find_rows(pc.invert(pc.fill_null(pc.is_finite(numbers), False))):
        faults.setdefault(int(owners[at]), _wrong_number(items[at].as_py(), name))
    good = ~missing
    good[list(faults)] = False
    dense = np.zeros((len(lengths), size), np.float32)
    kept = numbers.filter(pa.array(np.repeat(good, lengths))) if not good.all() else numbers
    dense[good] = kept.to_numpy(zero_copy_only=False).reshape(-1, size)
    array = pa.FixedSizeListArray.from_arrays(
        pa.array(dense.reshape(-1)), type=arrow_type(type_), mask=None if good.all() else pa.array(~good)
    )
    return ParsedColumn(array, faults)


def _wrong_number(value: float | None, name: str) -> str:
    if value is None:
        return f"vector property '{name}' elements must be numeric, got null"
    return _why_not_finite(value, name, Scalar.VECTOR)
