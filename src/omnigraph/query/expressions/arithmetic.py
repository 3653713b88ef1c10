"""Arithmetic on Arrow columns that never fails: what has no value in the result's type is null.

Both columns have the same number of rows, or one of them has a single row that stands for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.lang.query.ast import ArithmeticOp
from omnigraph.lang.types import Scalar, ValueType

Numbers = NDArray[Any]
Flags = NDArray[np.bool_]

_UFUNCS: dict[ArithmeticOp, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}


def calculate(op: ArithmeticOp, left: pa.Array, right: pa.Array, type_: ValueType) -> pa.Array:
    """`left op right` as I64 or F64."""
    combine = _whole if type_.scalar is Scalar.I64 else _floating
    result, wrong = combine(op, to_numpy_numbers(left), to_numpy_numbers(right))
    return _column(result, wrong | _missing(left) | _missing(right))


def negate(argument: pa.Array, type_: ValueType) -> pa.Array:
    """`-argument` as I64 or F64."""
    found = to_numpy_numbers(argument)
    if type_.scalar is Scalar.I64:
        result, wrong = _whole("-", np.zeros(1, np.int64), found)
    else:
        result = -found.astype(np.float64)
        wrong = ~np.isfinite(result)
    return _column(result, wrong | _missing(argument))


def to_numpy_numbers(column: pa.Array) -> Numbers:
    """The numbers of a column in their own width; nulls are some number."""
    filled = pc.fill_null(column, 0) if column.null_count else column
    found: Numbers = filled.to_numpy(zero_copy_only=False)
    return found


def _missing(column: pa.Array) -> Flags:
    if not column.null_count:
        return np.zeros(1, np.bool_)
    found: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _column(result: Numbers, missing: Flags) -> pa.Array:
    return pa.array(result, mask=missing) if missing.any() else pa.array(result)


def _whole(op: ArithmeticOp, left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    """64-bit results and where they are wrong.

    Arithmetic that wraps around is right whenever the true result fits, also for operands above
    the signed range. A result in floats is close enough to the true one to decide whether it does:
    only near the ends of the range the two could be mistaken, and there a result that has wrapped
    around has the other sign.
    """
    result = _UFUNCS[op](left.astype(np.int64), right.astype(np.int64))
    close = _UFUNCS[op](left.astype(np.float64), right.astype(np.float64))
    size = np.abs(close)
    if not size.size or size.max() < 2.0**62:
        return result, np.zeros(result.shape, np.bool_)
    other_sign = (result < 0) != (close < 0)
    return result, (size > 1.5 * 2.0**63) | ((size > 2.0**62) & other_sign)


def _floating(op: ArithmeticOp, left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    with np.errstate(all="ignore"):
        result = _UFUNCS[op](left.astype(np.float64), right.astype(np.float64))
    return result, ~np.isfinite(result)
