"""`@default`: the value that rows get which exist before a property, or before it is required."""

from __future__ import annotations

import json

from omnigraph.errors import InvalidValue
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Json, Stored, convert, shorten_legibly, to_json_value

_WRITTEN_AS_TEXT = (Scalar.STRING, Scalar.DATE, Scalar.DATETIME)


def read_default(text: str, type_: ValueType) -> Stored:
    """The value that the text of a `@default` stands for; raises `InvalidValue` when it is none of the type.

    Texts, days and moments are written as they are; everything else, lists included, as JSON.
    """
    if type_.scalar is Scalar.BLOB:
        raise InvalidValue("a Blob has no default")
    as_text = type_.scalar in _WRITTEN_AS_TEXT and not type_.is_list
    value = convert(text if as_text else _parsed(text), type_.with_nullable(False))
    if type_.enum_values and value not in type_.enum_values:
        raise InvalidValue(f"'{shorten_legibly(text)}' is none of {', '.join(type_.enum_values)}")
    return value


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValue(f"'{shorten_legibly(text)}' cannot be read") from None


def default_of(declared: Property) -> Stored:
    """The value of a property's `@default`; None when it has none."""
    return None if declared.default is None else read_default(declared.default, declared.type)


def default_json(declared: Property) -> Json:
    """The same as a JSON value."""
    return to_json_value(default_of(declared), declared.type)
