"""Bound tests as filters of Lance, each meaning exactly what `predicate.evaluate_rows` answers.

Every constant is written in the type of its column, so that Lance neither refuses nor rounds it and can
use an index.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.graph.columns import ID
from omnigraph.engine.rows.predicate import (
    Bindings,
    Comparison,
    MatchesNothing,
    OneOf,
    Presence,
    Test,
    TextMatch,
    bind_predicate,
    with_both_zeros,
)
from omnigraph.lang.query.terms import Predicate
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import FLOATS, INTEGERS, STRING, Scalar, ValueType
from omnigraph.lang.values import FORMS, Atom

_SMALLEST = -(2**63)  # its digits without the sign are no 64-bit integer
_SAME_TEXT = (Scalar.STRING, *INTEGERS)
"""Two values of these types are equal exactly when their texts in ids are."""
_CASTS = {
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
    Scalar.DATE: "Date32",
    Scalar.DATETIME: 'Timestamp(ms, "UTC")',
}


def render_predicate(predicate: Predicate, bindings: Bindings, key: Sequence[str] = ()) -> str:
    """A predicate as a filter of Lance; `key` names the properties from which the ids of the rows follow."""
    test = bind_predicate(predicate, bindings)
    return render_test(_use_id_index(test) if len(key) == 1 and _column(test) == key[0] else test)


def _column(test: Test) -> str | None:
    return None if isinstance(test, MatchesNothing) else test.column


def _use_id_index(test: Test) -> Test:
    """A test of the key as one of the id, where that says the same: the id is what has an index."""
    match test:
        case Comparison(type=type_, op="=", value=value) if type_.scalar in _SAME_TEXT:
            return Comparison(ID, STRING, "=", render_scalar(value, type_))
        case OneOf(type=type_, values=values) if type_.scalar in _SAME_TEXT:
            return OneOf(ID, STRING, tuple(render_scalar(value, type_) for value in values))
    return test


def render_test(test: Test) -> str:
    """Render a bound test as a filter of Lance."""
    match test:
        case MatchesNothing():
            return "false"
        case Presence(column=column, present=present):
            return f"{quoted(column)} IS {'NOT ' if present else ''}NULL"
        case Comparison(column=column, type=type_, op=op, value=value):
            return f"{quoted(column)} {'<>' if op == '!=' else op} {render_literal(value, type_)}"
        case OneOf(column=column, type=type_, values=values) if type_.is_list:
            every = with_both_zeros(values, type_)
            tests = (
                f"array_has({quoted(column)}, {_render_list_item(value, type_.item)})" for value in every
            )
            return " OR ".join(tests)
        case OneOf(column=column, type=type_, values=values):
            return one_of(column, values, type_)
        case TextMatch(column=column, part=part, at_start=at_start):
            function = "starts_with" if at_start else "contains"
            return f"{function}({quoted(column)}, {render_literal(part, STRING)})"


def one_of(column: str, values: Sequence[Atom], type_: ValueType = STRING) -> str:
    """Whether a column has one of these values; there must be one."""
    written = (render_literal(value, type_) for value in with_both_zeros(values, type_))
    return f"{quoted(column)} IN ({', '.join(written)})"


def quoted(column: str) -> str:
    """The name of a column, kept from being read as a keyword or in another case."""
    return f"`{column}`"


def render_literal(value: Atom, type_: ValueType) -> str:
    """A stored value of a type."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type_.scalar in FLOATS:
        return f"arrow_cast('{float(value)!r}', '{_CASTS[type_.scalar]}')"
    number = f"arrow_cast('{value}', 'Int64')" if value == _SMALLEST else str(value)
    return f"arrow_cast({number}, '{_CASTS[type_.scalar]}')" if type_.scalar in _CASTS else number


def _render_list_item(value: Atom, type_: ValueType) -> str:
    """A value as an item of a list: unlike in a comparison, Lance does not infer its type."""
    if type_.scalar in INTEGERS:
        return f"arrow_cast('{value}', '{FORMS[type_.scalar].name}')"
    return render_literal(value, type_)
