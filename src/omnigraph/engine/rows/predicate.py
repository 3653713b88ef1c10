"""The predicate of an update or delete: settled against its values, then asked of Arrow rows.

`settle` turns a predicate into a `Test`: one column, and constants of exactly that column's type. All that
is special about comparing numbers across widths is decided there, once, so that asking Arrow here and
Lance in `sql.py` cannot come to different answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.errors import InternalError, ParameterError
from omnigraph.lang.query.ast import AffixOp
from omnigraph.lang.query.terms import (
    Compare,
    Const,
    EntityId,
    Has,
    InList,
    Instant,
    NullCheck,
    ParamRef,
    Predicate,
    Prop,
    RelationOp,
    Term,
    TextTest,
)
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import FLOATS, INTEGERS, STRING, Scalar, ValueType
from omnigraph.lang.values import FORMS, Atom, Stored, convert, integer_bounds, is_number


@dataclass(frozen=True, slots=True)
class Bindings:
    """The values a request brings along."""

    parameters: Mapping[str, Stored] = field(default_factory=dict)
    now: int = 0
    """The moment of the request in milliseconds."""


@dataclass(frozen=True, slots=True)
class MatchesNothing:
    """No row passes."""


@dataclass(frozen=True, slots=True)
class Presence:
    """The column has a value, or has none."""

    column: str
    present: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """The value of the column compared with a constant of the column's type."""

    column: str
    type: ValueType
    op: RelationOp
    value: Atom


@dataclass(frozen=True, slots=True)
class OneOf:
    """The value of the column is one of these; for a list, one of its items is."""

    column: str
    type: ValueType
    values: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class TextMatch:
    """The text of the column contains a part, or begins or ends with it."""

    column: str
    part: str
    op: AffixOp


Test = MatchesNothing | Presence | Comparison | OneOf | TextMatch

_FLIPPED: dict[RelationOp, RelationOp] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


# --- values into the predicate -------------------------------------------------------------------


def bind_predicate(predicate: Predicate, bindings: Bindings) -> Test:
    """The predicate with its constants in the type of the column they meet."""
    match predicate:
        case NullCheck(argument=argument, negated=negated):
            return Presence(_column_of(argument)[0], present=negated)
        case Compare(op=op, left=left, right=right):
            if _is_column(left):
                return _bind_comparison(left, op, _evaluate_constant(right, bindings))
            return _bind_comparison(right, _FLIPPED[op], _evaluate_constant(left, bindings))
        case InList(argument=argument, items=items):
            return _bind_one_of(argument, _evaluate_constant(items, bindings))
        case Has(items=items, item=item):
            found = _evaluate_constant(item, bindings)
            return _bind_one_of(items, None if found is None else (found,))
        case TextTest(op=affix, text=text, part=part):
            found = _evaluate_constant(part, bindings)
            if not isinstance(found, str):
                return MatchesNothing()
            return TextMatch(_column_of(text)[0], found, affix)
    raise InternalError(f"a mutation cannot select rows by {type(predicate).__name__}")


def _is_column(term: Term) -> bool:
    return isinstance(term, Prop | EntityId)


def _column_of(term: Term) -> tuple[str, ValueType]:
    match term:
        case Prop(name=name, type=type_):
            return name, type_
        case EntityId(type=type_):
            return ID, type_
    raise InternalError(f"a mutation selects rows by their columns, not by {type(term).__name__}")


def _evaluate_constant(term: Term, bindings: Bindings) -> Any:
    match term:
        case Const(value=value, type=type_):
            is_moment = type_.scalar in (Scalar.DATE, Scalar.DATETIME)
            return convert(value, type_) if is_moment and value is not None else value
        case ParamRef(name=name):
            if name not in bindings.parameters:
                raise ParameterError(name, f"parameter '{name}' not provided")
            return bindings.parameters[name]
        case Instant():
            return bindings.now
    raise InternalError(f"a mutation compares columns with constants, not with {type(term).__name__}")


def _bind_comparison(term: Term, op: RelationOp, value: Stored) -> Test:
    column, type_ = _column_of(term)
    if value is None:
        return MatchesNothing()
    if isinstance(value, tuple):
        raise InternalError("lists are not compared as a whole")
    if type_.scalar in INTEGERS and is_number(value):
        return _bind_to_integer(Comparison(column, type_, op, value))
    if type_.scalar in FLOATS and is_number(value):
        return _bind_to_float(Comparison(column, type_, op, value))
    return Comparison(column, type_, op, value)


def _bind_one_of(term: Term, values: Sequence[Any] | None) -> Test:
    column, type_ = _column_of(term)
    single = Prop("", column, type_.item) if type_.is_list else term
    tests = [_bind_comparison(single, "=", value) for value in values or ()]
    found = dict.fromkeys(test.value for test in tests if isinstance(test, Comparison))
    return OneOf(column, type_, tuple(found)) if found else MatchesNothing()


def _out_of_range(test: Comparison, *, above: bool) -> Test:
    """A comparison with a number that is above, or below, everything the column can hold."""
    passes = test.op == "!=" or test.op in (("<", "<=") if above else (">", ">="))
    return Presence(test.column) if passes else MatchesNothing()


def _compare_out_of_range(test: Comparison, below: float) -> Test:
    """A comparison with a number that the column cannot hold, right above one that it can."""
    match test.op:
        case "=":
            return MatchesNothing()
        case "!=":
            return Presence(test.column)
        case "<" | "<=":
            return Comparison(test.column, test.type, "<=", below)
        case ">" | ">=":
            return Comparison(test.column, test.type, ">", below)


def _bind_to_integer(test: Comparison) -> Test:
    value: Any = test.value
    if math.isnan(value):
        return MatchesNothing()
    low, high = integer_bounds(test.type.scalar)
    if value > high or value < low:
        return _out_of_range(test, above=value > high)
    whole = math.floor(value)
    return (
        Comparison(test.column, test.type, test.op, whole)
        if whole == value
        else _compare_out_of_range(test, whole)
    )


def _bind_to_float(test: Comparison) -> Test:
    """A float is rounded to the column's width first; an integer counts with all its digits."""
    width = np.float32 if test.type.scalar is Scalar.F32 else np.float64
    exact: Any = test.value
    if math.isnan(exact):
        return MatchesNothing()
    with np.errstate(over="ignore"):
        nearest = width(exact)
    if not np.isfinite(nearest):
        return _out_of_range(test, above=exact > 0)
    if isinstance(exact, float) or int(nearest) == exact:
        return Comparison(test.column, test.type, test.op, float(nearest))
    below = nearest if int(nearest) < exact else np.nextafter(nearest, width(-math.inf))
    return _compare_out_of_range(test, float(below))


# --- asking Arrow --------------------------------------------------------------------------------

_AFFIXES: dict[AffixOp, Callable[[Any, str], Any]] = {
    "contains": pc.match_substring,
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
}
_RELATIONS: dict[RelationOp, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate_rows(rows: pa.Table, test: Test) -> pa.ChunkedArray | pa.Array:
    """For each row whether it passes; never null."""
    if isinstance(test, MatchesNothing):
        return pa.repeat(False, rows.num_rows)
    return pc.fill_null(evaluate_column(rows.column(test.column), test), False)


def filter_rows(rows: pa.Table, predicate: Predicate, bindings: Bindings) -> pa.Table:
    """The rows that satisfy a predicate."""
    return rows.filter(evaluate_rows(rows, bind_predicate(predicate, bindings)))


def evaluate_column(
    column: pa.ChunkedArray | pa.Array, test: Presence | Comparison | OneOf | TextMatch
) -> Any:
    """For each value whether it passes; null where that is not known."""
    match test:
        case Presence(present=present):
            return column.is_valid() if present else column.is_null()
        case TextMatch(part=part, op=affix):
            return _AFFIXES[affix](column, part)
        case Comparison(type=type_, op=op, value=value):
            constant = build_column([value], type_)[0]
            if type_.scalar is Scalar.BOOL:  # Arrow orders no Booleans
                column, constant = column.cast(pa.int8()), constant.cast(pa.int8())
            return _RELATIONS[op](column, constant)
        case OneOf(type=type_) if type_.is_list:
            return _list_contains(column, test)
    return pc.is_in(column, value_set=_value_set(test))


def _value_set(test: OneOf) -> pa.Array:
    return build_column(with_both_zeros(test.values, test.type), test.type.item)


def with_both_zeros(values: Sequence[Atom], type_: ValueType) -> tuple[Atom, ...]:
    """The two zeros of floats are equal, but value sets distinguish them."""
    zeros = (0.0, -0.0) if type_.scalar in FLOATS and 0 in values else ()
    return (*values, *zeros)


def _list_contains(column: pa.ChunkedArray | pa.Array, test: OneOf) -> pa.Array:
    evaluate_column = np.zeros(len(column), np.bool_)
    start = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        found = pc.is_in(chunk.flatten(), value_set=_value_set(test))
        evaluate_column[
            start + pc.list_parent_indices(chunk).filter(found).to_numpy(zero_copy_only=False)
        ] = True
        start += len(chunk)
    return pa.array(evaluate_column)


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
    return render_test(_use_id_index(test) if len(key) == 1 and _column_of_test(test) == key[0] else test)


def _column_of_test(test: Test) -> str | None:
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
        case TextMatch(column=column, part=part, op=affix):
            return f"{affix}({quoted(column)}, {render_literal(part, STRING)})"


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
