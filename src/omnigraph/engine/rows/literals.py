"""Values that stand without quotation marks, those of many lines at a time -> a column.

As with all that is read from lines that are alike, nothing but acceptance comes of it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.lines import Lines
from omnigraph.engine.rows.text_buffers import text_buffers
from omnigraph.engine.rows.violations import Flags, Numbers
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType

_NULL, _MINUS, _POINT, _ZERO, _NINE = b"n-.09"
_NUMBER = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_WHOLE = r"^-?[0-9]+$"
_EXACT_DIGITS = 15
"""Integers of no more digits are floats without loss."""

_IN_NUMBERS = np.zeros(256, np.bool_)
"""What nearly all numbers consist of."""
_IN_NUMBERS[list(b"-.0123456789")] = True


def read_literals(lines: Lines, begins: Numbers, ends: Numbers, type_: ValueType) -> pa.Array | None:
    """The values between places, none of them empty; None when one of them may be wrong."""
    first = lines.bytes_at(begins) == _NULL
    if first.any():
        return _with_nulls(lines, begins, ends, type_, first)
    if type_.is_list:
        return None
    if type_.scalar is Scalar.BOOL:
        return _flags(lines, begins, ends)
    try:
        if type_.scalar in INTEGERS:
            return _Written(lines, begins, ends).integers()
        return _Written(lines, begins, ends).floats() if type_.scalar in FLOATS else None
    except pa.ArrowInvalid:
        return None


def _with_nulls(
    lines: Lines, begins: Numbers, ends: Numbers, type_: ValueType, maybe: Flags
) -> pa.Array | None:
    nothing = lines.having(b"null", begins) & (ends - begins == len("null"))
    if (maybe != nothing).any():
        return None
    if nothing.all():
        return pa.nulls(begins.size)
    found = read_literals(lines, begins[~nothing], ends[~nothing], type_)
    return None if found is None else found.take(pa.array(np.cumsum(~nothing) - 1, mask=nothing))


def _flags(lines: Lines, begins: Numbers, ends: Numbers) -> pa.Array | None:
    sizes = ends - begins
    true = lines.having(b"true", begins) & (sizes == len("true"))
    false = lines.having(b"false", begins) & (sizes == len("false"))
    return pa.array(true) if (true | false).all() else None


class _Written:
    """Values that may be numbers, and how they begin."""

    def __init__(self, lines: Lines, begins: Numbers, ends: Numbers) -> None:
        self._texts = lines.texts(begins, ends)
        self._sizes = ends - begins
        self._negative = lines.bytes_at(begins) == _MINUS
        unsigned = begins + self._negative
        self._digit = lines.bytes_at(unsigned)
        self._zero = self._digit == _ZERO
        self._second = unsigned[self._zero & (self._sizes - self._negative > 1)] + 1
        """What follows a zero."""
        self._lines = lines
        self._last = ends - 1

    def integers(self) -> pa.Array | None:
        """Only as they are usually written: `-0` and what has leading zeros is not, which Arrow takes."""
        if self._second.size or (self._zero & self._negative).any():
            return None
        return self._texts.cast(pa.int64())

    def floats(self) -> pa.Array | None:
        texts = self._texts
        if not self._is_plain() and not _all(pc.match_substring_regex(texts, _NUMBER)):
            return None
        # Integers are read as such: without a sign of zero, and in all their digits.
        odd = (self._sizes > _EXACT_DIGITS) | (self._zero & self._negative & (self._sizes == len("-0")))
        if odd.any() and pc.any(pc.match_substring_regex(texts.filter(pa.array(odd)), _WHOLE)).as_py():
            return None
        found = texts.cast(pa.float64())
        return found if _all(pc.is_finite(found)) else None

    def _is_plain(self) -> bool:
        """Whether whatever Arrow takes of these texts is written as JSON wants numbers to be."""
        letters, _ = text_buffers(self._texts)
        return bool(
            _IN_NUMBERS[letters].all()
            and _are_digits(self._digit)
            and _are_digits(self._lines.bytes_at(self._last))
            and (self._lines.bytes_at(self._second) == _POINT).all()
        )


def _are_digits(letters: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
    return bool(((letters >= _ZERO) & (letters <= _NINE)).all())


def _all(flags: pa.Array) -> bool:
    """Whether a flag is set wherever there is one."""
    return pc.all(flags).as_py() is not False
