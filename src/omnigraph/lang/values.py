"""Values in their three shapes: as stored in Arrow, as Python values, and as JSON.

A stored value in Python is a `str`, `bool`, `int` or `float`, with a Date as days and a DateTime as
milliseconds since 1970-01-01 UTC, an F32 rounded to 32 bits, a list or vector as a tuple, and null as
None. `convert` makes stored values of what a query supplies, `result_value` and `json_column` make JSON
values of stored ones.

A Blob has no Arrow type here: how its bytes are laid out is the storage's business, and it is never
part of a result.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InternalError, InvalidValue
from omnigraph.lang import dates
from omnigraph.lang.source import shorten
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType

if TYPE_CHECKING:
    import pyarrow as pa

Atom = str | bool | int | float
Stored = Atom | tuple[Atom, ...] | None
JsonAtom = str | bool | int | float | None
Json = JsonAtom | list[JsonAtom]
Writer = Callable[[Any], JsonAtom]

JS_SAFE = 2**53 - 1
"""The largest integer that a JavaScript number holds exactly, with all smaller ones."""

# Characters that move the cursor, end a line or turn the direction of writing: no data may steer a terminal.
# And halves of characters, which no output takes.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_LONGEST_SHOWN = 256  # bits; Python refuses to print integers of many thousand digits


@dataclass(frozen=True, slots=True)
class Form:
    """How one scalar is stored."""

    name: str
    """What messages about stored values call it."""
    arrow: tuple[Any, ...]
    """A function of pyarrow and its arguments; empty when there is no fixed Arrow type."""
    bounds: tuple[int, int] | None = None
    """Smallest and largest value, where it is stored as an integer."""


# A DateTime is a timestamp and not an Arrow date64: Arrow takes a date64 for a whole day and cuts the
# time of day off when it casts it, writes it to Parquet or makes Python values of it.
FORMS: dict[Scalar, Form] = {
    Scalar.STRING: Form("Utf8", ("string",)),
    Scalar.BOOL: Form("Boolean", ("bool_",)),
    Scalar.I32: Form("Int32", ("int32",), (-(2**31), 2**31 - 1)),
    Scalar.I64: Form("Int64", ("int64",), (-(2**63), 2**63 - 1)),
    Scalar.U32: Form("UInt32", ("uint32",), (0, 2**32 - 1)),
    Scalar.U64: Form("UInt64", ("uint64",), (0, 2**64 - 1)),
    Scalar.F32: Form("Float32", ("float32",)),
    Scalar.F64: Form("Float64", ("float64",)),
    Scalar.DATE: Form("Date32", ("date32",), (dates.MIN_DAYS, dates.MAX_DAYS)),
    Scalar.DATETIME: Form(
        "Date64", ("timestamp", "ms", "UTC"), (dates.MIN_MILLISECONDS, dates.MAX_MILLISECONDS)
    ),
    Scalar.VECTOR: Form("Float32", ("float32",)),
    Scalar.BLOB: Form("Blob", ()),
}


# --- Arrow types ---------------------------------------------------------------------------------


def arrow_type(type_: ValueType) -> pa.DataType:
    """The Arrow type of a column; items of lists and vectors may be null in Arrow, though never here."""
    import pyarrow as pa

    form = FORMS[type_.scalar]
    if not form.arrow:
        raise InternalError(f"a {type_} has no Arrow type of its own; the storage lays it out")
    function, *arguments = form.arrow
    single = getattr(pa, function)(*arguments)
    if type_.scalar is Scalar.VECTOR:
        return pa.list_(single, type_.dimension)
    return pa.list_(single) if type_.is_list else single


def arrow_field(name: str, type_: ValueType) -> pa.Field:
    """A column of that name and type, nullable or not."""
    import pyarrow as pa

    return pa.field(name, arrow_type(type_), nullable=type_.nullable)


def stored_name(type_: ValueType) -> str:
    """What messages about stored values call a type: `Int32`, `[Utf8]`, `Vector(3)`."""
    if type_.scalar is Scalar.VECTOR:
        return str(type_.with_nullable(False))
    name = FORMS[type_.scalar].name
    return f"[{name}]" if type_.is_list else name


def integer_bounds(scalar: Scalar) -> tuple[int, int]:
    """The smallest and largest value of an integer type, or of a Date or DateTime as a number."""
    bounds = FORMS[scalar].bounds
    if bounds is None:
        raise InternalError(f"{scalar} is not stored as an integer")
    return bounds


# --- values a query supplies, made storable ------------------------------------------------------


def convert(value: object, type_: ValueType) -> Stored:
    """The stored form of a constant or parameter meant for a property of `type_`.

    An integer widens to a float; no other kind becomes another. Dates and moments may be text or
    their numbers. Whether a text is a value of an enum is not looked at here.
    """
    if value is None:
        if not type_.nullable:
            raise InvalidValue("null is not accepted for a non-nullable property")
        return None
    if type_.scalar is Scalar.VECTOR:
        return _convert_vector(value, type_)
    if type_.is_list:
        if not isinstance(value, list | tuple):
            _refuse_kind(value, type_)
        return tuple(_convert_atom(item, type_.item) for item in value)
    return _convert_atom(value, type_)


def _convert_atom(value: object, type_: ValueType) -> Atom:
    match value:
        case bool() if type_.scalar is Scalar.BOOL:
            return value
        case bool():
            pass
        case str() if type_.scalar in _TEXT_READERS:
            return _TEXT_READERS[type_.scalar](value)
        case int() if FORMS[type_.scalar].bounds is not None:
            return _within_bounds(value, type_.scalar)
        case int() | float() if type_.scalar in FLOATS:
            return require_finite_float(value, type_.scalar)
    _refuse_kind(value, type_)


def require_storable_text(text: str) -> str:
    """The text itself, when it can be stored: UTF-8 has no lone surrogates."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidValue(f"text '{shorten_legibly(text)}' contains a lone surrogate")
    return text


_TEXT_READERS: dict[Scalar, Callable[[str], Atom]] = {
    Scalar.STRING: require_storable_text,
    Scalar.BLOB: require_storable_text,
    Scalar.DATE: dates.parse_date,
    Scalar.DATETIME: dates.parse_datetime,
}


def _within_bounds(value: int, scalar: Scalar) -> int:
    low, high = integer_bounds(scalar)
    if not low <= value <= high:
        raise InvalidValue(f"integer value {format_number(value)} exceeds {FORMS[scalar].name} range")
    return value


def require_finite_float(value: float, scalar: Scalar) -> float:
    """A number as a finite float of the type's width; the range is that of the rounded value."""
    try:
        found = float(value)
        if scalar is not Scalar.F64:
            (found,) = struct.unpack("<f", struct.pack("<f", found))
    except OverflowError:
        raise InvalidValue(f"float value {format_number(value)} exceeds {FORMS[scalar].name} range") from None
    if not math.isfinite(found):
        raise InvalidValue(f"float value {format_number(value)} must be finite")
    return found


def require_finite_floats(values: Sequence[float]) -> tuple[float, ...]:
    """The numbers of a vector, each rounded to 32 bits and finite."""
    layout = f"<{len(values)}f"
    try:
        found: tuple[float, ...] = struct.unpack(layout, struct.pack(layout, *values))
    except (OverflowError, struct.error):
        found = ()
    if len(found) == len(values) and all(map(math.isfinite, found)):
        return found
    return tuple(require_finite_float(value, Scalar.VECTOR) for value in values)  # names the one to blame


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is an integer or float; a Boolean is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _convert_vector(value: object, type_: ValueType) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        _refuse_kind(value, type_)
    if len(value) != type_.dimension:
        raise InvalidValue(f"vector property expects {type_.dimension} dimensions, got {len(value)}")
    for item in value:
        if not is_number(item):
            _refuse_kind(item, ValueType(Scalar.F32))
    return require_finite_floats(value)


def _refuse_kind(value: object, type_: ValueType) -> NoReturn:
    raise InvalidValue(f"cannot convert {_describe_value(value)} to {stored_name(type_)}")


def _describe_value(value: object) -> str:
    match value:
        case None:
            return "Null"
        case bool():
            return f"Bool({str(value).lower()})"
        case int():
            return f"Integer({format_number(value)})"
        case float():
            return f"Float({format_number(value)})"
        case str():
            return f"String({_quote_text(value)})"
        case list() | tuple():
            return f"List of {len(value)}"
    return type(value).__name__


def _quote_text(text: str) -> str:
    encodable = shorten(text).encode("utf-8", "backslashreplace").decode("utf-8")
    return escape_unprintable(json.dumps(encodable, ensure_ascii=False))


def shorten_legibly(text: str) -> str:
    """A piece of the user's text as messages show it: not too long, and fit for any output."""
    return escape_unprintable(shorten(text))


def escape_unprintable(text: str) -> str:
    """A text on one line that any output takes, with escapes for what would not show."""
    return text if text.isprintable() else _UNSEEN.sub(_escape_character, text)


def _escape_character(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def format_number(number: float) -> str:
    """A number as messages show it."""
    if isinstance(number, int):
        bits = number.bit_length()
        return str(number) if bits <= _LONGEST_SHOWN else f"{'-' if number < 0 else ''}2^{bits - 1} and more"
    return repr(number) if math.isfinite(number) else _non_finite(number)


# --- stored values, made JSON --------------------------------------------------------------------


def to_json_value(value: Stored, type_: ValueType, *, js_safe: bool = False) -> Json:
    """The JSON form of one stored value; `js_safe` writes integers JavaScript would round as text."""
    if value is None:
        return None
    write = _choose_writer(type_.scalar, js_safe)
    if isinstance(value, tuple):
        return [write(item) for item in value]
    return write(value)


def column_to_json(
    column: pa.Array | pa.ChunkedArray, type_: ValueType, *, js_safe: bool = False
) -> list[Json]:
    """The JSON forms of a column, row by row the same as `result_value` gives."""
    write = _choose_writer(type_.scalar, js_safe)
    chunks: Iterable[Any] = getattr(column, "chunks", [column])
    return list(chain.from_iterable(_json_array(chunk, type_, write) for chunk in chunks))


def _choose_writer(scalar: Scalar, js_safe: bool) -> Writer:
    if scalar is Scalar.DATE:
        return dates.format_date
    if scalar is Scalar.DATETIME:
        return dates.format_datetime
    if scalar is Scalar.VECTOR:
        return lambda number: number if math.isfinite(number) else None
    if scalar in FLOATS:
        return lambda number: number if math.isfinite(number) else _non_finite(number)
    if js_safe and scalar in INTEGERS:
        return lambda number: number if -JS_SAFE <= number <= JS_SAFE else str(number)
    if scalar is Scalar.BLOB:
        raise InternalError("a Blob is never part of a result")
    return _keep_unchanged


def _keep_unchanged(value: Any) -> JsonAtom:
    return value  # type: ignore[no-any-return]  # the column's type says what it is


def _non_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _json_array(array: Any, type_: ValueType, write: Writer) -> Sequence[Json]:
    if array.null_count == len(array):
        return [None] * len(array)
    if not type_.is_list and type_.scalar is not Scalar.VECTOR:
        return _json_atoms(array, type_.scalar, write)
    # All items are translated at once and then dealt out to their rows; null rows have none.
    items = iter(_json_atoms(array.flatten(), type_.scalar, write))
    lengths = array.value_lengths().to_pylist()
    return [None if length is None else list(islice(items, length)) for length in lengths]


def _json_atoms(array: Any, scalar: Scalar, write: Writer) -> list[JsonAtom]:
    """Take the whole column's plain form where that is the JSON form, and write value by value otherwise."""
    import pyarrow as pa

    if scalar is Scalar.DATE:
        numbers = array.cast(pa.int32())
        if _all_within(numbers, *dates.PLAIN_DAYS):
            return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    elif scalar is Scalar.DATETIME:
        numbers = array.cast(arrow_type(ValueType(scalar))).cast(pa.int64())
        if _all_within(numbers, *dates.PLAIN_MILLISECONDS):
            texts = numbers.cast(pa.timestamp("ms")).cast(pa.string()).to_pylist()
            return [text and f"{text[:10]}T{text[11:]}Z" for text in texts]
    else:
        numbers = array
        if _is_plain(array, scalar, write):
            return array.to_pylist()  # type: ignore[no-any-return]
    return [None if value is None else write(value) for value in numbers.to_pylist()]


def _is_plain(array: Any, scalar: Scalar, write: Writer) -> bool:
    """Whether Python's values of a column are its JSON values already."""
    if scalar in FLOATS or scalar is Scalar.VECTOR:
        # One value that is not finite makes the sum so; a sum that overflows only costs time.
        return math.isfinite(array.sum().as_py() or 0.0)
    if scalar in INTEGERS and write is not _keep_unchanged:
        return _all_within(array, -JS_SAFE, JS_SAFE)
    return True


def _all_within(numbers: Any, low: int, high: int) -> bool:
    present = numbers.drop_null().to_numpy(zero_copy_only=False)
    return present.size == 0 or bool(low <= int(present.min()) and int(present.max()) <= high)
