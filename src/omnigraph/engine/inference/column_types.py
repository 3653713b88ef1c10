"""The type that a column could have as a property, guessed from its Arrow type and its values."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.arrow_columns import plain, plain_type
from omnigraph.lang.types import BOOL, DATE, DATETIME, F64, I64, STRING, Scalar, ValueType, vector_type

_LARGEST_EXACT = 2**53
_DECIMAL_DIGITS_OF_I64 = 18
_DECIMAL_DIGITS_OF_F64 = 15
"""So many digits of a decimal survive a float and back, whatever they are."""
_SHORTEST_VECTOR = 8
"""Lists of floats that all have one length are taken for vectors from this length on."""

_TEXT_FORMS: tuple[tuple[str, ValueType], ...] = (
    # A leading zero is part of a code, such as that of a post office, and would be lost.
    (r"^-?(0|[1-9][0-9]{0,17})$", I64),
    (r"^(0|[1-9][0-9]{0,18})$", ValueType(Scalar.U64)),
    (r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$", F64),
    (r"^(true|false)$", BOOL),
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", DATE),
    (
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?$",
        DATETIME,
    ),
)


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    """The type of a property, and what a reader of the schema should know about it."""

    type: ValueType | None
    """None when no property can hold the values."""
    note: str | None = None


def guess_type(column: pa.Array, *, is_text: bool = False) -> ColumnGuess:
    """Guess the type of a column; the texts of a CSV file are read as what they look like."""
    values = plain(column)
    if is_text:
        return _guess_texts(values.cast(pa.string()))
    found = plain_type(values.type)
    if kinds.is_null(found) or values.null_count == len(values):
        return ColumnGuess(STRING, "no row has a value")
    if kinds.is_list(found):
        return _guess_lists(values)
    if kinds.is_floating(found):
        return _guess_floats(values)
    if kinds.is_decimal(found):
        return _guess_decimals(found)
    if isinstance(column.type, pa.UuidType):
        return ColumnGuess(STRING, "UUIDs, as text")
    known = _guess_by_type(found)
    return known or ColumnGuess(None, f"no property can hold {found}")


def _guess_by_type(found: pa.DataType) -> ColumnGuess | None:
    if kinds.is_string(found):
        return ColumnGuess(STRING)
    if kinds.is_boolean(found):
        return ColumnGuess(BOOL)
    if kinds.is_integer(found):
        sign = "I" if kinds.is_signed_integer(found) else "U"
        return ColumnGuess(ValueType(Scalar(f"{sign}{64 if found.bit_width == 64 else 32}")))
    if kinds.is_date(found):
        return ColumnGuess(DATE)
    if kinds.is_timestamp(found):
        return ColumnGuess(DATETIME, _describe_zone(found))
    if kinds.is_large_binary(found):
        return ColumnGuess(ValueType(Scalar.BLOB))
    return None


def _describe_zone(found: pa.DataType) -> str | None:
    if found.tz in (None, "UTC"):
        return None
    return f"moments of {found.tz}, stored in UTC"


def _guess_floats(values: pa.Array) -> ColumnGuess:
    present = values.filter(pc.fill_null(pc.invert(pc.is_nan(values)), False))
    if not len(present):
        return ColumnGuess(F64, "no row has a value")
    if len(present) < len(values) and _are_whole(present):
        return ColumnGuess(I64, "whole numbers, in floats because some are missing")
    return ColumnGuess(F64 if values.type.bit_width == 64 else ValueType(Scalar.F32))


def _are_whole(present: pa.Array) -> bool:
    wide = present.cast(pa.float64())
    small = pc.less_equal(pc.abs(wide), pa.scalar(float(_LARGEST_EXACT)))
    return bool(pc.all(pc.and_(small, pc.equal(wide, pc.floor(wide)))).as_py())


def _guess_decimals(found: pa.DataType) -> ColumnGuess:
    if found.scale <= 0 and found.precision - found.scale <= _DECIMAL_DIGITS_OF_I64:
        return ColumnGuess(I64, f"{found}")
    if found.precision <= _DECIMAL_DIGITS_OF_F64:
        return ColumnGuess(F64, f"{found}")
    return ColumnGuess(STRING, f"{found}: as text, because a float would round it")


def _guess_lists(values: pa.Array) -> ColumnGuess:
    items = values.flatten()
    lengths = pc.list_value_length(values).drop_null().unique()
    size = lengths[0].as_py() if len(lengths) == 1 else 0
    if kinds.is_floating(plain_type(items.type)) and (
        kinds.is_fixed_size_list(values.type) or size >= _SHORTEST_VECTOR
    ):
        return ColumnGuess(vector_type(size), f"every list has {size} numbers")
    inner = guess_type(items)
    if inner.type is None or inner.type.is_list or inner.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return ColumnGuess(None, f"no property can hold {values.type}")
    return ColumnGuess(ValueType(inner.type.scalar, is_list=True), inner.note)


def _guess_texts(texts: pa.Array) -> ColumnGuess:
    present = texts.drop_null().unique()
    if not len(present):
        return ColumnGuess(STRING, "no row has a value")
    for form, type_ in _TEXT_FORMS:
        if pc.all(pc.match_substring_regex(present, form)).as_py():
            return ColumnGuess(type_)
    lists = _decode_arrays(present)
    return ColumnGuess(STRING) if lists is None else guess_type(lists)


def _decode_arrays(texts: pa.Array) -> pa.Array | None:
    """JSON arrays, if all texts are; None otherwise."""
    if not pc.all(pc.starts_with(texts, "[")).as_py():
        return None
    try:
        return pa.array([msgspec.json.decode(text, type=list) for text in texts.to_pylist()])
    except (msgspec.MsgspecError, pa.ArrowException):
        return None
