"""Casts that a mapping asks for: values of columns as values of another type, also with loss."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.engine.load.sources.arrow_columns import convert_integers, plain, plain_type, with_faults
from omnigraph.engine.load.sources.coercion import find_rows, nan_to_null, widen_decimals, without_faults
from omnigraph.engine.load.sources.text_columns import parse_texts, valid_texts
from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from omnigraph.lang.values import FORMS, arrow_type, format_number

_LARGEST = 2.0**63


def is_castable(found: pa.DataType, scalar: Scalar) -> bool:
    """Whether a column can be cast at all; single values may still not fit."""
    kind = plain_type(found)
    if kinds.is_string(kind) or kinds.is_null(kind):
        return True
    is_number = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
    is_moment = kinds.is_timestamp(kind) or kinds.is_date(kind)
    if scalar is Scalar.STRING:
        return bool(is_number or is_moment or kinds.is_boolean(kind))
    if scalar in (Scalar.DATE, Scalar.DATETIME):
        return bool(is_moment)
    return bool(is_number or kinds.is_boolean(kind))


def cast_column(column: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """A column in a type that values of `scalar` are read from; texts are read as in CSV."""
    values = plain(column)
    kind = plain_type(values.type)
    if kinds.is_null(kind):
        return ParsedColumn(pa.nulls(len(values), arrow_type(ValueType(scalar))))
    if kinds.is_string(kind) or kinds.is_large_binary(kind):
        texts, wrong = valid_texts(values)
        cells = _from_texts(texts, name, scalar)
        return cells if wrong is None else with_faults(cells, wrong, name, scalar)
    if kinds.is_floating(kind):
        values = nan_to_null(values.cast(pa.float64()))
    if scalar is Scalar.STRING:
        return ParsedColumn(values.cast(pa.string()))
    if scalar is Scalar.BOOL:
        flags = values if kinds.is_boolean(kind) else pc.not_equal(values.cast(pa.float64(), safe=False), 0.0)
        return ParsedColumn(flags)
    if scalar is Scalar.DATE:
        local = pc.local_timestamp(values) if getattr(kind, "tz", None) is not None else values
        return ParsedColumn(local.cast(pa.date32(), safe=False))
    if scalar in INTEGERS:
        return _whole(values, name, scalar)
    if scalar in FLOATS:
        exact = values.cast(pa.string()).cast(pa.float64()) if kinds.is_decimal(kind) else values
        return ParsedColumn(exact.cast(pa.float64(), safe=False))
    return ParsedColumn(values)


def _whole(values: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    """Numbers without their fractions."""
    if kinds.is_boolean(values.type):
        return ParsedColumn(values.cast(pa.int8()))
    if kinds.is_decimal(values.type):
        return ParsedColumn(pc.trunc(widen_decimals(values)))
    if not kinds.is_floating(values.type):
        return ParsedColumn(values)
    outside = pc.greater_equal(pc.abs(values), pa.scalar(_LARGEST))
    reason = f"property '{name}' value {{}} exceeds {FORMS[scalar].name} range"
    faults = {row: reason.format(format_number(values[row].as_py())) for row in find_rows(outside)}
    return ParsedColumn(pc.trunc(without_faults(values, faults).array).cast(pa.int64()), faults)


def _from_texts(texts: pa.Array, name: str, scalar: Scalar) -> ParsedColumn:
    found = parse_texts(texts, name, ValueType(scalar, nullable=True))
    if scalar not in INTEGERS or not found.faults:
        return found
    # Texts of numbers with a fraction; those that are no numbers keep their own reason.
    floats = parse_texts(texts, name, ValueType(Scalar.F64, nullable=True))
    whole = _whole(floats.array, name, scalar)
    fitting = convert_integers(whole.array, name, scalar)
    too_large = {**fitting.faults, **whole.faults}
    wrong = {
        row: too_large.get(row, reason)
        for row, reason in found.faults.items()
        if row in too_large or row in floats.faults
    }
    return ParsedColumn(pc.coalesce(found.array, fitting.array), wrong)
