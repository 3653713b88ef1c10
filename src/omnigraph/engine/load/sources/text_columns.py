"""Columns of texts -> columns of properties.

A column whose texts all have their usual form is converted at once. In any other, each different text is
looked at by the rules that hold for JSON values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.engine.rows.violations import Flags
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from omnigraph.lang.values import arrow_type

_INTEGER = "^[+-]?[0-9]+$"
_NUMBER = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?"
_ZONED, _UNZONED = f"{_MOMENT}Z$", f"{_MOMENT}$"
_FLAT_ARRAY = r"^\[[^\[\]]*\]$"
"""No other bracket, not even in a text: so that no two of them can be taken for something else together."""
_DIGITS_READ = 200  # more take long to read, and these are out of every range already

_WHOLE_FLOAT = r"([+-]?[0-9]{1,16})[.]0+"
"""An integer that a program wrote as a float, because another value of its column was missing."""
_MISSING = pa.array(["NA", "N/A", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None", "\\N"])
"""How programs write a missing value. A text may well be one of them, so this holds for other types only."""

Convert = Callable[[pa.Array, ValueType], pa.Array | None]

NOT_UTF8 = "text that is not UTF-8"


def parse_texts(texts: pa.Array, name: str, type_: ValueType) -> ParsedColumn:
    """The column of a property that is not a Blob, written as in CSV."""
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        return _parse_arrays(texts, name, type_)
    if type_.scalar is Scalar.STRING:
        return ParsedColumn(texts)
    convert, value = _READERS.get(type_.scalar, (_parse_moments, str))
    found = _convert_at_once(texts, type_, convert)
    if found is None and type_.nullable:
        texts = pc.if_else(pc.is_in(texts, value_set=_MISSING), pa.scalar(None, pa.string()), texts)
        found = _convert_at_once(texts, type_, convert)
    return found or _parse_distinct(texts, name, type_, value)


def parse_dates(texts: pa.Array, name: str, type_: ValueType) -> ParsedColumn:
    """The column of a text, Date or DateTime."""
    if type_.scalar is Scalar.STRING:
        return ParsedColumn(texts)
    return _convert_at_once(texts, type_, _parse_moments) or _parse_distinct(texts, name, type_, str)


def valid_texts(column: pa.Array) -> tuple[pa.Array, Flags | None]:
    """Bytes or texts of any width as texts, and which rows are not UTF-8; those are null."""
    try:
        texts = column if column.type == pa.string() else column.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(pa.binary()).to_pylist()
    else:
        return texts, None
    wrong = np.array([data is not None and not _is_utf8(data) for data in raw], np.bool_)
    kept = [None if bad else data for data, bad in zip(raw, wrong.tolist(), strict=True)]
    return pa.array(kept, pa.binary()).cast(pa.string()), wrong


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- a whole column at once ----------------------------------------------------------------------


def _convert_at_once(texts: pa.Array, type_: ValueType, convert: Convert) -> ParsedColumn | None:
    try:
        found = convert(texts, type_)
    except pa.ArrowInvalid:
        return None
    return None if found is None else ParsedColumn(found)


def _are_all_true(flags: pa.Array) -> bool:
    return pc.all(flags).as_py() is not False


def _parse_integers(texts: pa.Array, type_: ValueType) -> pa.Array | None:
    # Arrow would read `0x1F` as well, and does not read `+1`.
    if not _are_all_true(pc.match_substring_regex(texts, _INTEGER)):
        return None
    return pc.utf8_ltrim(texts, "+").cast(arrow_type(type_.with_nullable()))


def _parse_floats(texts: pa.Array, type_: ValueType) -> pa.Array | None:
    if not _are_all_true(pc.match_substring_regex(texts, _NUMBER)):
        return None
    found = texts.cast(pa.float64()).cast(arrow_type(type_), safe=False)
    return found if _are_all_true(pc.is_finite(found)) else None


def _parse_booleans(texts: pa.Array, _type: ValueType) -> pa.Array | None:
    known = pa.array(["true", "false"])
    if not _are_all_true(pc.or_kleene(texts.is_null(), pc.is_in(texts, value_set=known))):
        return None
    return pc.equal(texts, "true")


def _parse_moments(texts: pa.Array, type_: ValueType) -> pa.Array | None:
    target = arrow_type(type_)
    if type_.scalar is Scalar.DATE:
        return texts.cast(target) if _are_all_true(pc.match_substring_regex(texts, _DAY)) else None
    if _are_all_true(pc.match_substring_regex(texts, _ZONED)):
        return texts.cast(target)
    if _are_all_true(pc.match_substring_regex(texts, _UNZONED)):
        return texts.cast(pa.timestamp("ms")).view(pa.int64()).view(target)
    return None


# --- each different text -------------------------------------------------------------------------


def _parse_distinct(
    texts: pa.Array, name: str, type_: ValueType, value: Callable[[str], Any]
) -> ParsedColumn:
    """The column by the rules of JSON values, where `value` says which value a text is."""
    coded = texts.dictionary_encode()
    cells = parse_column([value(text) for text in coded.dictionary.to_pylist()], name, type_)
    column = cells.array.take(coded.indices)
    if not cells.faults:
        return ParsedColumn(column)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.isin(codes, list(cells.faults)))
    return ParsedColumn(column, {row: cells.faults[codes[row]] for row in rows.tolist()})


def _parse_integer(text: str) -> int | str:
    if (whole := re.fullmatch(_WHOLE_FLOAT, text)) is not None:
        text = whole[1]
    if not re.fullmatch(_INTEGER, text) or "\n" in text:
        return text
    digits = int(text.lstrip("+-").lstrip("0")[:_DIGITS_READ] or "0")
    return -digits if text[0] == "-" else digits


def _parse_float(text: str) -> float | str:
    return float(text) if re.fullmatch(_NUMBER, text) and "\n" not in text else text


def _parse_boolean(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text.lower(), text)


_READERS: dict[Scalar, tuple[Convert, Callable[[str], Any]]] = {
    **dict.fromkeys(INTEGERS, (_parse_integers, _parse_integer)),
    **dict.fromkeys(FLOATS, (_parse_floats, _parse_float)),
    Scalar.BOOL: (_parse_booleans, _parse_boolean),
}


# --- JSON arrays ---------------------------------------------------------------------------------


def _parse_arrays(texts: pa.Array, name: str, type_: ValueType) -> ParsedColumn:
    present = texts.drop_null()
    found = iter(_decode_texts(present))
    values = [next(found) if valid else None for valid in texts.is_valid().to_pylist()]
    if len(present) == len(texts) or None not in values:
        return parse_column(values, name, type_)
    nulls = [row for row, value in enumerate(values) if value is None and texts[row].is_valid]
    cells = parse_column(values, name, type_)
    kind = "vector" if type_.scalar is Scalar.VECTOR else "list"
    reason = f"{kind} property '{name}' expects a JSON array, got null"
    return ParsedColumn(cells.array, {**cells.faults, **dict.fromkeys(nulls, reason)})


def _decode_texts(texts: pa.Array) -> Sequence[Any]:
    """The values of JSON texts; one that is no JSON stays as it is."""
    if _are_all_true(pc.match_substring_regex(texts, _FLAT_ARRAY)):
        lines = "\n".join(texts.to_pylist())
        try:
            found: list[Any] = msgspec.json.Decoder().decode_lines(lines)
        except msgspec.DecodeError:
            pass
        else:
            if len(found) == len(texts):
                return found
    return [_decode_text(text) for text in texts.to_pylist()]


def _decode_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
