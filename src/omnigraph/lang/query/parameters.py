"""The values of a query's parameters, from JSON to stored values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from omnigraph.errors import InvalidValue, ParameterError
from omnigraph.lang import dates
from omnigraph.lang.query import ast
from omnigraph.lang.query.patterns import find_fault
from omnigraph.lang.types import INTEGERS, Scalar, ValueType
from omnigraph.lang.values import (
    JS_SAFE,
    Atom,
    Stored,
    format_number,
    integer_bounds,
    is_number,
    require_finite_float,
    require_finite_floats,
    require_storable_text,
    shorten_legibly,
)

AtomReader = Callable[[object, bool], Atom]
Reader = Callable[[object, bool], Stored]
"""Turns a JSON value into a stored one; the flag says whether numbers come from JavaScript."""

_ENGINE_MAX = 2**63 - 1
"""Query values are signed 64-bit integers, so a U64 parameter has only half of its range."""

_DECIMAL = re.compile("[+-]?[0-9]+")
_DIGITS_READ = 200  # more take long to read, and these are out of every range already


def decode_parameters(
    declared: Sequence[ast.Parameter], given: object, *, js_safe: bool = False
) -> dict[str, Stored]:
    """The stored value of every declared parameter; see `Decoder`."""
    return Decoder(declared)(given, js_safe=js_safe)


class Decoder:
    """Reads the values of declared parameters; made once for a query that is asked often."""

    def __init__(
        self,
        declared: Sequence[ast.Parameter],
        patterns: Mapping[str, Collection[ast.PatternOp]] = MappingProxyType({}),
    ) -> None:
        self._patterns = patterns
        self._names = frozenset(item.name for item in declared)
        self._readers = tuple((item.name, item.type.nullable, _choose_reader(item.type)) for item in declared)

    def __call__(self, given: object, *, js_safe: bool = False) -> dict[str, Stored]:
        """The stored value of every declared parameter, in the order of declaration.

        `given` is a JSON object (names without `$`) or None. Names the query does not declare are
        ignored. `js_safe` is for callers whose numbers are JavaScript's: integers too large for those to
        be exact must then be decimal text, and `5.0` is the integer 5.
        """
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise ParameterError(
                "params", "params must be a JSON object", remedy='name the values: params={"name": "Ada"}'
            )
        _refuse_objects(self._names, given)
        found = {
            name: _decode_parameter(name, nullable, read, given, js_safe)
            for name, nullable, read in self._readers
        }
        for name, ops in self._patterns.items():
            _check_pattern(name, found[name], ops)
        return found


def _check_pattern(name: str, value: Stored, ops: Collection[ast.PatternOp]) -> None:
    for op in ops if isinstance(value, str) else ():
        fault = find_fault(op, str(value))
        if fault is not None:
            _raise_invalid(name, f"invalid pattern of {op}: {fault}")


def check_count(name: str, value: int) -> int:
    """The value of a parameter that says how many rows to keep or to skip."""
    if value < 0:
        _raise_invalid(name, "must not be negative")
    return value


def check_above_zero(name: str, value: Stored) -> int:
    """The value of a parameter that divides: the `k` of `rrf`."""
    if value is None:
        _raise_invalid(name, "must not be null")
    if not isinstance(value, int) or value <= 0:
        _raise_invalid(name, "must be greater than 0")
    return value


def _raise_invalid(name: str, reason: str, *, remedy: str | None = None) -> NoReturn:
    raise ParameterError(name, f"param '{shorten_legibly(name)}': {reason}", remedy=remedy)


def _refuse_objects(names: Collection[str], given: Mapping[object, object]) -> None:
    """No type takes an object, so one under an unknown name is a mistake worth reporting."""
    for name, value in given.items():
        if name not in names and isinstance(value, Mapping):
            _raise_invalid(str(name), "object is not supported")


def _decode_parameter(
    name: str, nullable: bool, read: Reader, given: Mapping[object, object], js_safe: bool
) -> Stored:
    if name not in given:
        if nullable:
            return None
        remedy = f"give it: -p {name}=VALUE (`params`)"
        if f"${name}" in given:
            remedy = "write parameter names without `$`"
        raise ParameterError(name, f"parameter '{name}' not provided", remedy=remedy)
    value = given[name]
    if value is None:
        if nullable:
            return None
        _raise_invalid(name, "null is not accepted for non-nullable parameter")
    try:
        return read(value, js_safe)
    except InvalidValue as wrong:
        _raise_invalid(name, wrong.message, remedy=wrong.remedy)


# --- one value; `InvalidValue` says what is wrong, without the parameter's name ---------------------


def _choose_reader(type_: ValueType) -> Reader:
    """What reads the values of a type."""
    if type_.scalar is Scalar.VECTOR:
        return lambda value, _: _read_vector(_read_items(value, type_), type_)
    read = _make_integer_reader(type_.scalar) if type_.scalar in INTEGERS else _READERS[type_.scalar]
    if not type_.is_list:
        return read
    return lambda value, js_safe: tuple(read(item, js_safe) for item in _read_items(value, type_))


def _read_items(value: object, type_: ValueType) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise InvalidValue(f"expected array for {type_.with_nullable(False)}")
    return value


def _read_vector(value: Sequence[object], type_: ValueType) -> tuple[float, ...]:
    if len(value) != type_.dimension:
        raise InvalidValue(
            f"expected {type_.dimension} values for Vector({type_.dimension}), got {len(value)}"
        )
    numbers = [item for item in value if is_number(item)]
    if len(numbers) != len(value):
        raise InvalidValue("vector element is not numeric")
    return require_finite_floats(numbers)


def _make_integer_reader(scalar: Scalar) -> AtomReader:
    low, high = integer_bounds(scalar)
    high = min(high, _ENGINE_MAX)

    def read(value: object, js_safe: bool) -> int:
        if type(value) is int and low <= value <= high and not js_safe:
            return value  # as nearly all are
        return _read_integer(value, scalar, js_safe)

    return read


def _read_integer(value: object, scalar: Scalar, js_safe: bool) -> int:
    signed = integer_bounds(scalar)[0] < 0
    kind = "integer" if signed else "unsigned integer"
    if isinstance(value, str):
        found = _parse_decimal(value, signed)
        if found is None:
            raise InvalidValue(f"expected {kind} string, got '{shorten_legibly(value)}'")
    elif is_number(value):
        found = _to_whole(value, js_safe)
        if found is None or (found < 0 and not signed):
            raise InvalidValue(f"expected {kind} number")
    else:
        raise InvalidValue(f"expected {kind}")
    return _in_range(found, scalar)


def _parse_decimal(text: str, signed: bool) -> int | None:
    if not _DECIMAL.fullmatch(text) or (text[0] == "-" and not signed):
        return None
    digits = text.lstrip("+-").lstrip("0")[:_DIGITS_READ] or "0"
    return -int(digits) if text[0] == "-" else int(digits)


def _to_whole(number: int | float, js_safe: bool) -> int | None:
    if isinstance(number, float):
        if not js_safe or not number.is_integer():
            return None
        number = int(number)
    if js_safe and not -JS_SAFE <= number <= JS_SAFE:
        raise InvalidValue(
            f"value {format_number(number)} exceeds JS safe integer range; "
            "pass a decimal string for exact values"
        )
    return number


def _in_range(value: int, scalar: Scalar) -> int:
    low, high = integer_bounds(scalar)
    if scalar is Scalar.U64 and value > _ENGINE_MAX:
        shown = format_number(value)
        raise InvalidValue(f"value {shown} exceeds current engine range for U64 (max {_ENGINE_MAX})")
    if not low <= value <= high:
        raise InvalidValue(f"value {format_number(value)} exceeds {scalar}")
    return value


def _read_string(value: object, _: bool) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"expected string, got {_name_json_kind(value)}")
    return require_storable_text(value)


def _read_blob(value: object, _: bool) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"expected blob URI string, got {_name_json_kind(value)}")
    return require_storable_text(value)


def _read_boolean(value: object, _: bool) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("expected boolean")
    return value


def _make_float_reader(scalar: Scalar) -> AtomReader:
    def read(value: object, _: bool) -> float:
        if not is_number(value):
            raise InvalidValue("expected float")
        return require_finite_float(value, scalar)

    return read


def _read_date(value: object, _: bool) -> int:
    if not isinstance(value, str):
        raise InvalidValue("expected date string")
    return dates.parse_date(value)


def _read_datetime(value: object, _: bool) -> int:
    if not isinstance(value, str):
        raise InvalidValue("expected datetime string")
    return dates.parse_datetime(value)


_READERS: dict[Scalar, AtomReader] = {
    Scalar.STRING: _read_string,
    Scalar.BLOB: _read_blob,
    Scalar.BOOL: _read_boolean,
    Scalar.F32: _make_float_reader(Scalar.F32),
    Scalar.F64: _make_float_reader(Scalar.F64),
    Scalar.DATE: _read_date,
    Scalar.DATETIME: _read_datetime,
}


def _name_json_kind(value: object) -> str:
    """What JSON calls a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case Mapping():
            return "object"
    return type(value).__name__
