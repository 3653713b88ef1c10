"""The JSON values of one property -> an Arrow column, and why single values do not fit.

A column whose values all have the expected kind is converted at once. Only when something is wrong with
it, or written in an unusual way, its values are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.ndjson import format_json
from omnigraph.engine.rows.records import Values, to_objects
from omnigraph.errors import InvalidValue
from omnigraph.lang import dates
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from omnigraph.lang.values import (
    FORMS,
    Atom,
    Stored,
    arrow_type,
    format_number,
    is_number,
    require_finite_float,
    require_finite_floats,
    require_storable_text,
)

Read = TypeVar("Read", bound=Stored)

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_ZONED = f"^{_DAY}{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"
_UNZONED = f"^{_DAY}({_TIME})?$"
_IN_UTC = {20, 22, 23, 24}
"""How long a moment is that ends in Z: without a fraction, and with one to three digits of it."""


@dataclass(frozen=True, slots=True)
class ParsedColumn:
    """A column, with nulls for the values that do not fit."""

    array: pa.Array
    faults: Mapping[int, str] = field(default_factory=dict)
    """Why a row's value does not fit."""


def parse_column(values: Values, name: str, type_: ValueType) -> ParsedColumn:
    """The column of a property that is not a Blob."""
    found = _convert_whole(values, type_)
    return ParsedColumn(found) if found is not None else _parse_each(to_objects(values), name, type_)


# --- a whole column at once ----------------------------------------------------------------------


def _convert_whole(values: Values, type_: ValueType) -> pa.Array | None:
    """The column when every value has the expected kind and range."""
    try:
        if isinstance(values, pa.Array):
            return _convert_array(values, type_)
        if type_.scalar is Scalar.VECTOR:
            return _convert_vectors(values, type_)
        return _convert_lists(values, type_) if type_.is_list else _convert_atoms(values, type_.scalar)
    except (ValueError, OverflowError, pa.ArrowTypeError):  # Arrow's other errors are ValueErrors
        return None


def _convert_array(values: pa.Array, type_: ValueType) -> pa.Array | None:
    """The same of values that are all of one kind: integers, floats, booleans or texts."""
    target, scalar = arrow_type(type_), type_.scalar
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    if type_.is_list or scalar is Scalar.VECTOR:
        return None
    if pa.types.is_string(values.type):
        if scalar in (Scalar.DATE, Scalar.DATETIME):
            return _convert_dates(values) if scalar is Scalar.DATE else _convert_datetimes(values)
        return values if scalar is Scalar.STRING else None
    if pa.types.is_floating(values.type):
        return _require_finite(values.cast(target, safe=False)) if scalar in FLOATS else None
    if pa.types.is_integer(values.type):
        return values.cast(target) if scalar in INTEGERS else None
    return values if scalar is Scalar.BOOL else None


def _convert_atoms(values: Sequence[Any], scalar: Scalar) -> pa.Array | None:
    target = arrow_type(ValueType(scalar))
    if scalar in (Scalar.STRING, Scalar.BOOL):
        return pa.array(values, target)  # Arrow takes no other kind for these
    if scalar in (Scalar.DATE, Scalar.DATETIME) and isinstance(_first_value(values), str):
        texts = pa.array(values, pa.string())
        return _convert_dates(texts) if scalar is Scalar.DATE else _convert_datetimes(texts)
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values), target)
    if scalar in FLOATS:
        return _convert_floats(values, target) if kinds <= {int, float} else None
    if kinds != {int}:
        return None
    return pa.array(values, target if scalar in INTEGERS else _storage_integer(scalar)).view(target)


def _first_value(values: Sequence[Any]) -> object:
    return next((value for value in values if value is not None), None)


def _convert_floats(values: Sequence[Any], target: pa.DataType) -> pa.Array | None:
    return _require_finite(pa.array(values, pa.float64()).cast(target, safe=False))


def _require_finite(found: pa.Array) -> pa.Array | None:
    return found if pc.all(pc.is_finite(found)).as_py() is not False else None


def _convert_dates(texts: pa.Array) -> pa.Array | None:
    # Of ten characters Arrow takes nothing but YYYY-MM-DD.
    return texts.cast(pa.date32()) if _text_lengths(texts) <= {10} else None


def _convert_datetimes(texts: pa.Array) -> pa.Array | None:
    target = arrow_type(ValueType(Scalar.DATETIME))
    if _text_lengths(texts) <= _IN_UTC and pc.all(pc.ends_with(texts, "Z")).as_py():
        return texts.cast(target)
    if pc.all(pc.match_substring_regex(texts, _ZONED)).as_py():
        found = texts.cast(pa.timestamp("us", "UTC"))
    elif pc.all(pc.match_substring_regex(texts, _UNZONED)).as_py():
        found = texts.cast(pa.timestamp("us"))
    else:
        return None
    cut = pc.floor_temporal(found.view(pa.timestamp("us")), unit="millisecond")
    return cut.cast(pa.timestamp("ms")).view(target)


def _text_lengths(texts: pa.Array) -> set[int]:
    return set(pc.unique(pc.binary_length(texts)).to_pylist()) - {None}


def _convert_lists(values: Sequence[Any], type_: ValueType) -> pa.Array | None:
    kinds = set(map(type, values))
    if not kinds <= {list, tuple, NoneType}:
        return None
    items = _convert_atoms(list(chain.from_iterable(filter(None, values))), type_.scalar)
    if items is None or items.null_count:
        return None
    present = [() if value is None else value for value in values] if NoneType in kinds else values
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, present), np.int32, len(values)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=_null_mask(values, kinds))


def _convert_vectors(values: Sequence[Any], type_: ValueType) -> pa.Array | None:
    kinds = set(map(type, values))
    if not kinds <= {list, tuple, NoneType}:
        return None
    present = values
    if NoneType in kinds:
        zeros = (0.0,) * type_.dimension
        present = [zeros if value is None else value for value in values]
    if not set(map(len, present)) <= {type_.dimension}:
        return None
    items = _convert_atoms(list(chain.from_iterable(present)), Scalar.F32)
    if items is None or items.null_count:
        return None
    return pa.FixedSizeListArray.from_arrays(items, type=arrow_type(type_), mask=_null_mask(values, kinds))


def _null_mask(values: Sequence[Any], kinds: set[type]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if NoneType in kinds else None


def _storage_integer(scalar: Scalar) -> pa.DataType:
    return pa.int32() if scalar is Scalar.DATE else pa.int64()


# --- value by value ------------------------------------------------------------------------------


def _parse_each(values: Sequence[object], name: str, type_: ValueType) -> ParsedColumn:
    stored: list[Stored] = []
    faults: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            stored.append(None if value is None else _parse_value(value, name, type_))
        except InvalidValue as wrong:
            stored.append(None)
            faults[row] = wrong.message
    return ParsedColumn(build_column(stored, type_), faults)


def build_column(stored: Sequence[Stored], type_: ValueType) -> pa.Array:
    """The Arrow column of stored values."""
    if type_.scalar in (Scalar.DATE, Scalar.DATETIME):
        numbers = _storage_integer(type_.scalar)
        as_numbers = pa.array(stored, pa.list_(numbers) if type_.is_list else numbers)
        return as_numbers.cast(arrow_type(type_)) if type_.is_list else as_numbers.view(arrow_type(type_))
    return pa.array(stored, arrow_type(type_))


def _parse_value(value: object, name: str, type_: ValueType) -> Stored:
    if type_.scalar is Scalar.VECTOR:
        return _parse_vector(value, name, type_.dimension)
    if not type_.is_list:
        return _parse_atom(value, name, type_.scalar)
    if not isinstance(value, list | tuple):
        raise InvalidValue(f"list property '{name}' expects a JSON array, got {format_json(value)}")
    try:
        return tuple(_parse_atom(item, name, type_.scalar) for item in value)
    except InvalidValue:
        raise InvalidValue(f"strict list property '{name}' contains a null or invalid item") from None


def _parse_vector(value: object, name: str, size: int) -> Stored:
    if not isinstance(value, list | tuple):
        raise InvalidValue(f"vector property '{name}' expects a JSON array, got {format_json(value)}")
    if len(value) != size:
        raise InvalidValue(f"vector property '{name}' expects {size} dimensions, got {len(value)}")
    for item in value:
        if not is_number(item):
            raise InvalidValue(f"vector property '{name}' elements must be numeric, got {format_json(item)}")
    return _add_property_name(name, require_finite_floats, value)


def _parse_atom(value: object, name: str, scalar: Scalar) -> Atom:
    match value:
        case bool():
            if scalar is Scalar.BOOL:
                return value
        case int() if scalar in INTEGERS or scalar in (Scalar.DATE, Scalar.DATETIME):
            return _check_range(value, name, scalar)
        case int() | float() if scalar in FLOATS:
            return _add_property_name(name, require_finite_float, value, scalar)
        case str() if scalar in _TEXT_READERS:
            try:
                return _TEXT_READERS[scalar](value)
            except InvalidValue:
                pass
    raise InvalidValue(f"strict property '{name}' expects {FORMS[scalar].name}, got {format_json(value)}")


def _add_property_name(name: str, read: Callable[..., Read], *value: Any) -> Read:
    """What is read, with the name of the property in what is wrong with it."""
    try:
        return read(*value)
    except InvalidValue as wrong:
        raise InvalidValue(f"property '{name}': {wrong.message}") from None


def _check_range(value: int, name: str, scalar: Scalar) -> int:
    form = FORMS[scalar]
    low, high = form.bounds or (0, 0)
    if not low <= value <= high:
        raise InvalidValue(f"property '{name}' value {format_number(value)} exceeds {form.name} range")
    return value


_TEXT_READERS: Mapping[Scalar, Callable[[str], Atom]] = {
    Scalar.STRING: require_storable_text,
    Scalar.DATE: dates.parse_date,
    Scalar.DATETIME: dates.parse_datetime,
}
