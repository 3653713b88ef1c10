"""Stored key values -> the id of a node; uniqueness tuples are compared by the same rendering."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from decimal import Decimal

from omnigraph.errors import InvalidValue
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType

# Nine digits distinguish any two 32-bit floats.
_MAX_F32_DIGITS = 9


def render_scalar(value: object, type: ValueType) -> str:
    """The text of one stored value; a Date is its day number, a DateTime its millisecond number."""
    if type.is_list or type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        raise InvalidValue(f"scalar key: unsupported column type {type}")
    if type.scalar is Scalar.STRING and isinstance(value, str):
        return value
    if type.scalar is Scalar.BOOL and isinstance(value, bool):
        return "true" if value else "false"
    if type.scalar in FLOATS and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _render_float(value, type.scalar)
    is_counted = type.scalar in INTEGERS or type.scalar in (Scalar.DATE, Scalar.DATETIME)
    if is_counted and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidValue(f"scalar key: a stored {type.scalar} cannot be {value!r}")


def compose_id(parts: Sequence[str]) -> str:
    """The id from rendered key values in the order of their properties' identities."""
    if len(parts) == 1:
        return parts[0]
    return json.dumps(list(parts), ensure_ascii=False, separators=(",", ":"))


def _render_float(value: int | float, scalar: Scalar) -> str:
    stored = _as_f32(value) if scalar is Scalar.F32 else float(value)
    if not math.isfinite(stored):
        width = "Float32" if scalar is Scalar.F32 else "Float64"
        shown = "NaN" if math.isnan(stored) else str(stored)
        raise InvalidValue(f"scalar key: non-finite {width} value {shown} cannot identify an entity")
    if stored == 0:
        return "0"
    return to_positional(_shortest_f32(stored) if scalar is Scalar.F32 else repr(stored))


def to_positional(digits: str) -> str:
    """A decimal text without exponent, trailing zeros after the point, or a trailing point."""
    text = format(Decimal(digits), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _as_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _shortest_f32(stored: float) -> str:
    """The shortest decimal that reads back as this 32-bit float; of several the nearest."""
    exact = Decimal(stored)
    for precision in range(1, _MAX_F32_DIGITS):
        rounded = Decimal(f"{stored:.{precision - 1}e}")
        # Next to a power of two the nearest short decimal may read back as the neighbour below.
        step = Decimal((0, (1,), int(rounded.as_tuple().exponent)))
        for candidate in sorted(
            (rounded - step, rounded, rounded + step), key=lambda each: abs(each - exact)
        ):
            if _as_f32(float(candidate)) == stored:
                return str(candidate)
    return f"{stored:.{_MAX_F32_DIGITS - 1}e}"
