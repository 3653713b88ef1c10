"""Values of another kind than their property: which of them become values of it without loss.

Frames hold integers in floats where one is missing, and numbers and ids as Decimal or UUID. What would lose
something is a fault of its row.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.engine.rows.violations import Flags
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import FORMS, arrow_type, format_number, integer_bounds

LARGEST_WHOLE_FLOAT = 2**53
"""From here on a float stands for several integers: which one was meant is unknown."""
_DIGITS_OF_F64 = 15
"""So many digits of a decimal survive a float and back, whatever they are."""
_MOST_DIGITS = 76
"""Of a decimal in Arrow."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def find_rows(flags: pa.Array) -> list[int]:
    """The numbers of the rows where a flag is set; null is not."""
    found: list[int] = np.flatnonzero(pc.fill_null(flags, False).to_numpy(zero_copy_only=False)).tolist()
    return found


def without_faults(column: pa.Array, faults: dict[int, str]) -> ParsedColumn:
    """A column with nulls where something is wrong."""
    if not faults:
        return ParsedColumn(column)
    flags = np.zeros(len(column), np.bool_)
    flags[list(faults)] = True
    return ParsedColumn(pc.if_else(pa.array(flags), pa.scalar(None, column.type), column), faults)


def nan_to_null(column: pa.Array) -> pa.Array:
    """The same floats with null for what is not a number, which is how frames mark a missing value."""
    missing = pc.is_nan(column)
    return pc.if_else(missing, pa.scalar(None, column.type), column) if pc.any(missing).as_py() else column


# --- floats --------------------------------------------------------------------------------------


def whole_floats(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """Floats without a fraction as 64-bit integers."""
    wide = column.cast(pa.float64())
    whole = pc.and_(pc.is_finite(wide), pc.equal(wide, pc.floor(wide)))
    large = pc.greater(pc.abs(wide), pa.scalar(float(LARGEST_WHOLE_FLOAT)))
    faults = {
        row: f"strict property '{name}' expects {FORMS[scalar].name}, got {format_number(wide[row].as_py())}"
        for row in find_rows(pc.invert(whole))
    }
    for row in find_rows(pc.and_(whole, large)):
        shown = format_number(int(wide[row].as_py()))
        faults[row] = f"property '{name}' value {shown} is beyond what a float holds exactly"
    kept = without_faults(wide, faults)
    return ParsedColumn(kept.array.cast(pa.int64()), faults)


# --- decimals ------------------------------------------------------------------------------------


def whole_decimals(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """Decimals without a fraction as integers of a type."""
    form = FORMS[scalar].name
    # Arrow compares only decimals whose digits before and after the point fit together.
    wide = widen_decimals(column)
    rounded = pc.trunc(wide)
    whole = rounded.cast(pa.decimal256(_MOST_DIGITS, 0))
    faults = {
        row: f"strict property '{name}' expects {form}, got {_decimal_text(column[row].as_py())}"
        for row in find_rows(pc.not_equal(rounded, wide))
    }
    low, high = map(Decimal, integer_bounds(scalar))
    outside = pc.or_(pc.less(whole, pa.scalar(low)), pc.greater(whole, pa.scalar(high)))
    for row in find_rows(outside):
        faults[row] = f"property '{name}' value {_decimal_text(column[row].as_py())} exceeds {form} range"
    kept = without_faults(whole, faults)
    return ParsedColumn(kept.array.cast(arrow_type(ValueType(scalar))), faults)


def widen_decimals(column: pa.Array) -> pa.Array:
    """Decimals of any width as those that Arrow can round."""
    return column.cast(pa.decimal256(_MOST_DIGITS, max(column.type.scale, 0)))


def exact_decimals(column: pa.Array, name: str) -> ParsedColumn:
    """Decimals as the nearest 64-bit floats, if these have the same digits."""
    # Through texts: the direct cast of Arrow does not always find the nearest float.
    found = column.cast(pa.string()).cast(pa.float64())
    if column.type.precision <= _DIGITS_OF_F64:
        return ParsedColumn(found)
    faults = {
        row: f"property '{name}' value {_decimal_text(column[row].as_py())} is not exact in Float64"
        for row in _inexact(column, found)
    }
    return without_faults(found, faults)


def _inexact(column: pa.Array, found: pa.Array) -> list[int]:
    return [
        row
        for row, (given, near) in enumerate(zip(column.to_pylist(), found.to_pylist(), strict=True))
        if given is not None and Decimal(repr(near)) != given
    ]


def _decimal_text(value: Decimal) -> str:
    digits = f"{value:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# --- UUIDs ---------------------------------------------------------------------------------------


def uuid_texts(column: pa.Array) -> pa.Array:
    """UUIDs, 16 bytes each, in their usual form with dashes."""
    stored = column.fill_null(bytes(16))
    octets = np.frombuffer(stored.buffers()[1], np.uint8)[stored.offset * 16 :][: len(stored) * 16]
    digits = _HEX[np.stack([octets >> 4, octets & 15], axis=1).reshape(len(stored), 32)]
    texts = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    offsets = np.arange(len(stored) + 1, dtype=np.int32) * texts.shape[1]
    made = pa.StringArray.from_buffers(len(stored), pa.py_buffer(offsets), pa.py_buffer(texts.tobytes()))
    missing: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), made) if missing.any() else made
