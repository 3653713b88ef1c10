"""The values of generated graphs and queries: few, so that they meet, and at the edges of their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from omnigraph.lang import dates
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar
from omnigraph.lang.values import integer_bounds

EDITABLE_WORDS = ["graph", "lemon", "quartz", "zinc"]
"""Words that lower case, stemming and stop words leave as they are."""

TEXTS = ["", "a", "A", "ab", "ABC", "é", "É", "ß", "ÀΣ", "\uffff", "🙂", 'q"\\', "%_", "a\nb", "red"]
LIKE = ["a%", "%b", "%a%", "a_b", "_", "%", "", "A%", "\\%\\_", "é", "__", "%B", "%re_", "a%b", "%\\\\"]
REGULAR = ["^a", "b", "[A-Z]", "a.b", "é|É", "^.$", "(?i)ab", "[^a]", "(?s)^a.b"]
"""Patterns that fit some of these texts, and mean the same to every engine of regular expressions."""
MOMENTS = [-1, 0, 1704067200000, 1704067200001, 7258118400000]
POOLS: dict[str, list[Any]] = {
    Scalar.STRING: [*TEXTS, "a\x00b"],
    Scalar.BOOL: [True, False],
    Scalar.I32: [-(2**31), -1, 0, 1, 2, 3, 36, 2**31 - 1],
    Scalar.I64: [-(2**63), -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [0, 1, 2, 3, 2**31, 2**32 - 1],
    Scalar.U64: [0, 1, 2, 3, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    Scalar.F32: [-0.0, 0.0, 0.1, 1.0, 1.5, 2.0, -3.0, 16777217.0, 3.4028234663852886e38, 1e-45],
    Scalar.F64: [
        -0.0,
        0.0,
        0.1,
        1.0,
        1.5,
        2.0,
        -3.0,
        2.0**53,
        2.0**63,
        2.0**64,
        1.7976931348623157e308,
        5e-324,
    ],
    Scalar.DATE: [-1, 0, 1, 19723, 19724],
    Scalar.DATETIME: MOMENTS,
    "x": [-2.5, -0.25, 0.0, 0.5, 1.0, 4.0, 1024.0],
    "t": ["graph", "graph graph lemon", "Lemon, quartz", "zinc zinc", "", "quartz-graph"],
}
VECTORS = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.5), (3.0, 4.0), (2.0, 2.0), (100.0, -50.0)]

Pick = Callable[[Sequence[Any]], Any]


def constant(scalar: Scalar, pick: Pick) -> str:
    """A literal of the query language."""
    if scalar is Scalar.STRING:
        return quote(pick(TEXTS))
    value = pick(POOLS[scalar])
    if scalar is Scalar.BOOL:
        return json.dumps(value)
    if scalar is Scalar.DATE:
        return f'date("{dates.format_date(value)}")'
    if scalar is Scalar.DATETIME:
        return f'datetime("{dates.format_datetime(value)}")'
    if scalar in FLOATS:
        return positional(value)
    return str(value)


def parameter_value(scalar: Scalar, pick: Pick) -> Any:
    """A value as JSON brings it to a parameter."""
    value = pick(POOLS[scalar])
    if scalar is Scalar.DATE:
        return dates.format_date(value)
    if scalar is Scalar.DATETIME:
        return dates.format_datetime(value)
    if scalar in INTEGERS:
        return min(value, 2**63 - 1, integer_bounds(scalar)[1])
    return value


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def positional(number: float) -> str:
    """A float without an exponent and with a point."""
    text = format(Decimal(repr(number)), "f")
    return text if "." in text else f"{text}.0"
