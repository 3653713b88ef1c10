"""The spelling of property types."""

from __future__ import annotations

import re
from difflib import get_close_matches

from omnigraph.lang.source import Problems, shorten
from omnigraph.lang.tokens import INT, MAX_NAME_CHARS, UPPER, Cursor, parse_integer
from omnigraph.lang.types import MAX_VECTOR_DIMENSION, SCALARS, Scalar, ValueType

_ENUM_VALUE = re.compile(r"[A-Za-z0-9_-]+")
_SPELLINGS = {
    "string": "String", "text": "String", "str": "String", "int": "I64", "integer": "I64", "float": "F64",
    "double": "F64", "boolean": "Bool", "timestamp": "DateTime", "bytes": "Blob", "varchar": "String",
    "char": "String", "bigint": "I64", "smallint": "I32", "real": "F32", "numeric": "F64", "decimal": "F64",
}  # fmt: skip

_SCALAR_TYPES = {
    (scalar, nullable): ValueType(scalar, nullable) for scalar in Scalar for nullable in (False, True)
}


def parse_type(cursor: Cursor, problems: Problems) -> ValueType:
    """The type at the cursor; a type that reads well but cannot be is reported and read on."""
    if cursor.at("["):
        found = _parse_list(cursor, problems)
    elif cursor.word("enum"):
        found = _parse_enum(cursor, problems)
    elif cursor.at(UPPER, "Vector"):
        found = _parse_vector(cursor, problems)
    else:
        scalar = _parse_scalar(cursor)
        return _SCALAR_TYPES[scalar, cursor.accept("?")]
    return found.with_nullable(cursor.accept("?"))


def _parse_scalar(cursor: Cursor) -> Scalar:
    scalar = SCALARS.get(cursor.text) if cursor.at(UPPER) else None
    if scalar is None:
        cursor.expected("a type", help=_suggest_type(cursor.text))
    cursor.advance()
    return scalar


def _suggest_type(text: str) -> str:
    if text in ("Optional", "Nullable"):
        return "a property that may be missing has a `?` after its type: `I64?`"
    if text in ("List", "Array", "list", "array"):
        return "a list is written with its type inside: `[String]`"
    if len(text) <= 20:
        close = _SPELLINGS.get(text.lower()) or next(iter(get_close_matches(text, SCALARS, 1)), None)
        if close:
            return f"did you mean `{close}`?"
    return f"types are {', '.join(SCALARS)}, Vector(n), enum(...) and lists like [String]"


def _parse_list(cursor: Cursor, problems: Problems) -> ValueType:
    start = cursor.start
    cursor.advance()
    if cursor.word("enum") or cursor.at("[") or cursor.at(UPPER, "Vector"):
        cursor.expected("a scalar type", help="lists hold scalars; not lists, enums or vectors")
    scalar = _parse_scalar(cursor)
    if cursor.at("?"):
        cursor.fail(
            "items of a list cannot be nullable", help=f"only the whole list can be nullable: `[{scalar}]?`"
        )
    cursor.take("]")
    if scalar is Scalar.BLOB:
        problems.add("list of Blob is not supported", cursor.since(start))
    return ValueType(scalar, is_list=True)


def _parse_vector(cursor: Cursor, problems: Problems) -> ValueType:
    cursor.advance()
    cursor.take("(", "`(` and the dimension of the vector, like `Vector(768)`")
    at = cursor.span
    text = cursor.take(INT, "the dimension of the vector")
    dimension = parse_integer(text, MAX_VECTOR_DIMENSION)
    cursor.take(")")
    if dimension == 0:
        problems.add("Vector dimension must be greater than zero", at)
    elif dimension is None:
        shown = shorten(text.lstrip("0"))
        problems.add(f"Vector dimension {shown} exceeds maximum supported {MAX_VECTOR_DIMENSION}", at)
    return ValueType(Scalar.VECTOR, dimension=dimension or 1)


def _parse_enum(cursor: Cursor, problems: Problems) -> ValueType:
    cursor.advance()
    cursor.take("(", "`(` and the values of the enum, like `enum(open, closed)`")
    values = [_enum_value(cursor)]
    seen = set(values)
    while cursor.at(","):
        cursor.advance()
        at = cursor.span
        value = _enum_value(cursor)
        if value in seen:
            problems.add("enum type cannot include duplicate values", at, help=f"'{value}' is there already")
        seen.add(value)
    cursor.take(")", "`,` or `)`")
    return ValueType(Scalar.STRING, enum_values=tuple(sorted(seen)))


def _enum_value(cursor: Cursor) -> str:
    at = cursor.span
    value = cursor.rescan(_ENUM_VALUE)
    if value is None:
        cursor.expected("an enum value", help="values have letters, digits, `_` and `-`, and no quotes")
    if len(value) > MAX_NAME_CHARS:
        cursor.fail(f"enum values have at most {MAX_NAME_CHARS} characters", at)
    return value
