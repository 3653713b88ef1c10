"""Terms and predicates evaluated on Arrow columns.

What does not depend on the row stays a single value for as long as possible: comparing a column with
it is then bound once, by the rules every test on one column shares, and costs one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.engine.rows.predicate import (
    Bindings,
    Comparison,
    MatchesNothing,
    OneOf,
    Presence,
    bind_predicate,
    evaluate_column,
)
from omnigraph.engine.rows.predicate import TextMatch as BoundTextMatch
from omnigraph.errors import InternalError
from omnigraph.lang.query.patterns import to_regex
from omnigraph.lang.query.terms import (
    ROW,
    AllOf,
    AnyOf,
    Calc,
    CaseFold,
    CaseWhen,
    Coalesce,
    Column,
    Compare,
    Const,
    DateCast,
    DatePart,
    Distance,
    Elapsed,
    EntityId,
    Fusion,
    Has,
    Holds,
    InList,
    Instant,
    Minus,
    Not,
    NullCheck,
    ParamRef,
    PathPart,
    PatternTest,
    Predicate,
    Prop,
    Relevance,
    Shift,
    ShortestPath,
    Term,
    TextMatch,
    TextTest,
    Total,
    children,
    negate_test,
    walk,
)
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Stored, arrow_type, convert
from omnigraph.query.expressions.date_operators import cast_date, date_part, shift_dates, subtract_dates
from omnigraph.query.expressions.operators import (
    FLIPPED,
    Flags,
    any_within,
    calculate,
    compare_columns,
    flatten_lists,
    is_present,
    list_contains,
    negate,
    one_text_contains,
    text_contains,
    true_rows,
)


class Scope(Protocol):
    """The rows that terms are evaluated on, and the request they belong to."""

    @property
    def length(self) -> int: ...
    def prop(self, var: str, name: str) -> pa.Array: ...
    def entity_id(self, var: str) -> pa.Array: ...
    def parameter(self, name: str) -> Stored: ...
    def now(self) -> int: ...
    def score(self, term: Distance | Relevance | Fusion | TextMatch) -> pa.Array: ...
    def path(self, term: PathPart) -> pa.Array: ...
    def column(self, name: str) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Known:
    """A value that is the same in every row."""

    value: Stored
    type: ValueType
    written: bool = True
    """A constant or parameter, not a result of a calculation."""


Operand: TypeAlias = Known | pa.Array
Replaced = Mapping[Term, pa.Array]

_NONE_REPLACED: Replaced = {}
_NOTHING_BOUND = Bindings()
_VALUES = "values"
_FEW = 4
"""So many values are found faster one after the other than in a set."""
_OF_ROWS = (Prop, EntityId, PathPart, Column, Total, Distance, Relevance, Fusion, TextMatch)


# --- terms ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Substituted:
    """A scope in which the values of some terms are known, or in which one row stands for all."""

    scope: Scope
    replaced: Replaced
    length: int

    def prop(self, var: str, name: str) -> pa.Array:
        return self.scope.prop(var, name)

    def entity_id(self, var: str) -> pa.Array:
        return self.scope.entity_id(var)

    def parameter(self, name: str) -> Stored:
        return self.scope.parameter(name)

    def now(self) -> int:
        return self.scope.now()

    def score(self, term: Distance | Relevance | Fusion | TextMatch) -> pa.Array:
        return self.scope.score(term)

    def path(self, term: PathPart) -> pa.Array:
        return self.scope.path(term)

    def column(self, name: str) -> pa.Array:
        return self.scope.column(name)


def substitute(scope: Scope, replaced: Replaced) -> Scope:
    """A scope in which the values of the terms in `replaced` are taken from there."""
    return _Substituted(scope, replaced, scope.length) if replaced else scope


def evaluate_term(term: Term, scope: Scope, replaced: Replaced = _NONE_REPLACED) -> pa.Array:
    """The values of a term in all rows; what is found in `replaced` is taken from there."""
    found = evaluate_operand(term, substitute(scope, replaced))
    return _repeat_value(found, scope.length) if isinstance(found, Known) else found


def evaluate_operand(term: Term, scope: Scope) -> Operand:
    """The values of a term in all rows, or the one value they all have."""
    if isinstance(scope, _Substituted) and term in scope.replaced:
        return scope.replaced[term]
    match term:
        case Const(value=constant, type=type_):
            return Known(constant, type_)  # type: ignore[arg-type]  # items of lists are never null
        case ParamRef(name=name, type=type_):
            return Known(scope.parameter(name), type_)
        case Instant(type=type_):
            return Known(scope.now(), type_)
        case Prop(var=var, name=name):
            return scope.prop(var, name)
        case EntityId(var=var):
            return scope.entity_id(var)
        case Column(name=name):
            return scope.column(name)
        case Coalesce() | CaseWhen():
            return _choose_operand(term, scope)
        case Distance() | Relevance() | Fusion() | TextMatch():
            return scope.score(term)
        case PathPart():
            return scope.path(term)
        case Total() | ShortestPath():
            raise InternalError(f"{term!r} has no value in rows")
        case _:
            return _compute_operand(term, scope)


Computed: TypeAlias = Calc | Minus | CaseFold | DatePart | DateCast | Shift | Elapsed


def _compute_operand(term: Computed, scope: Scope) -> Operand:
    operands = [evaluate_operand(cast(Term, child), scope) for child in children(term)]
    result = _compute_result(term, [_shorten_column(found) for found in operands])
    if all(isinstance(found, Known) for found in operands):
        return Known(_stored_value(result), term.type, written=False)
    return result


def _stored_value(column: pa.Array) -> Stored:
    """The only value of a column, as it is stored: dates and moments as numbers."""
    kind = column.type.value_type if pa.types.is_list(column.type) else column.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        column = column.cast(pa.list_(number) if pa.types.is_list(column.type) else number)
    found = column[0].as_py()
    return tuple(found) if isinstance(found, list) else cast(Stored, found)


def _compute_result(term: Computed, columns: Sequence[pa.Array]) -> pa.Array:
    match term:
        case Calc(op=op, type=type_):
            return calculate(op, columns[0], columns[1], type_)
        case Minus(type=type_):
            return negate(columns[0], type_)
        case CaseFold(fn=fn):
            return pc.utf8_lower(columns[0]) if fn == "lower" else pc.utf8_upper(columns[0])
        case DatePart(part=part):
            return date_part(part, columns[0])
        case DateCast(type=type_):
            return cast_date(columns[0], type_)
        case Shift(unit=unit, backward=backward):
            return shift_dates(columns[0], columns[1], unit, backward=backward)
        case Elapsed():
            return subtract_dates(columns[0], columns[1])


def _choose_operand(term: Coalesce | CaseWhen, scope: Scope) -> Operand:
    if not _is_constant(term):
        return _choose(term, scope)
    replaced = scope.replaced if isinstance(scope, _Substituted) else _NONE_REPLACED
    return Known(_stored_value(_choose(term, _Substituted(scope, replaced, 1))), term.type, written=False)


def _choose(term: Coalesce | CaseWhen, scope: Scope) -> pa.Array:
    wanted = arrow_type(term.type)

    def values(found: Term) -> pa.Array:
        # A whole number may lose digits where it shares a column with floats.
        return evaluate_term(found, scope).cast(wanted, safe=False)

    if isinstance(term, Coalesce):
        return pc.coalesce(*map(values, term.arguments))
    chosen = pa.nulls(scope.length, wanted) if term.otherwise is None else values(term.otherwise)
    for test, value in zip(term.tests[::-1], term.values[::-1], strict=True):
        chosen = pc.if_else(pa.array(evaluate_predicate(test, scope)), values(value), chosen)
    return chosen


def _shorten_column(found: Operand) -> pa.Array:
    """A column; of one row when all are the same."""
    return _repeat_value(found, 1) if isinstance(found, Known) else found


def _repeat_value(known: Known, length: int) -> pa.Array:
    if known.value is None:
        return pa.nulls(length, arrow_type(known.type))
    one = build_column([convert(known.value, known.type)], known.type)
    # A list cannot be repeated 0 times.
    return one.slice(0, length) if length <= 1 else pa.repeat(one[0], length)


# --- predicates ----------------------------------------------------------------------------------


def evaluate_predicate(predicate: Predicate, scope: Scope) -> Flags:
    """For each row whether the predicate is true; unknown is not true."""
    match predicate:
        case Compare():
            return _test_comparison(predicate, scope)
        case InList(argument=argument, items=items):
            return _test_membership(argument, items, scope)
        case Has():
            return _test_possession(predicate, scope)
        case TextTest():
            return _text_test(predicate, scope)
        case PatternTest():
            return _pattern_test(predicate, scope)
        case NullCheck(argument=argument, negated=is_negated):
            found = _shorten_column(evaluate_operand(argument, scope))
            return _widen_flags(true_rows(found.is_valid() if is_negated else found.is_null()), scope)
        case Holds(match=match):
            return true_rows(scope.score(match))
        case AllOf(tests=tests):
            return _combine(np.logical_and, tests, scope)
        case AnyOf(tests=tests):
            return _combine(np.logical_or, tests, scope)
        case Not(test=inner):
            opposite = negate_test(inner)
            if not isinstance(opposite, Not):
                return evaluate_predicate(opposite, scope)
            return _operands_present(inner, scope) & ~evaluate_predicate(inner, scope)


def _combine(join: np.ufunc, tests: Sequence[Predicate], scope: Scope) -> Flags:
    found: Flags = join.reduce([evaluate_predicate(test, scope) for test in tests])
    return found


def _operands_present(test: Predicate, scope: Scope) -> Flags:
    """Where a test is true or false: it is unknown where an operand is null."""
    found = np.ones(scope.length, np.bool_)
    for operand in children(test):
        column = _shorten_column(evaluate_operand(cast(Term, operand), scope))
        found &= _widen_flags(is_present(column), scope)
    return found


def _widen_flags(evaluate_column: Flags, scope: Scope) -> Flags:
    """Flags of all rows; a single one stands for all."""
    return (
        evaluate_column if len(evaluate_column) == scope.length else np.full(scope.length, evaluate_column[0])
    )


def _is_constant(term: Term) -> bool:
    """Whether a term has the same value in every row."""
    return not any(isinstance(part, _OF_ROWS) for part in walk(term))


def _test_comparison(test: Compare, scope: Scope) -> Flags:
    op, left, right = test.op, test.left, test.right
    # Of two known values an F32 takes the column's part: the other one is rounded to its width.
    if _is_constant(left) and (right.type.scalar is Scalar.F32 or not _is_constant(right)):
        op, left, right = FLIPPED[op], right, left
    if not _is_constant(right):
        return compare_columns(op, evaluate_term(left, scope), evaluate_term(right, scope))
    known = _evaluate_known(right, scope)
    asked = _asked_of(left.type, known)
    return _test_values(Compare(op, _column_of_type(asked), _to_constant(known)), left, asked, scope)


def _test_membership(argument: Term, items: Term, scope: Scope) -> Flags:
    given = _to_constant(_evaluate_known(items, scope))
    return _test_values(InList(_column_of_type(argument.type), given), argument, argument.type, scope)


def _test_possession(test: Has, scope: Scope) -> Flags:
    items, item = test.items, test.item
    if _is_constant(items) and (item.type.scalar is Scalar.F32 or not _is_constant(item)):
        return _test_membership(item, items, scope)
    if not _is_constant(item):
        return list_contains(evaluate_term(items, scope), evaluate_term(item, scope))
    known = _evaluate_known(item, scope)
    asked = _asked_of(items.type, known)
    return _test_values(Has(_column_of_type(asked), _to_constant(known)), items, asked, scope)


def _text_test(test: TextTest, scope: Scope) -> Flags:
    if _is_constant(test.part):
        given = _to_constant(_evaluate_known(test.part, scope))
        return _test_values(
            TextTest(test.op, _column_of_type(test.text.type), given), test.text, test.text.type, scope
        )
    if not _is_constant(test.text):
        return text_contains(test.op, evaluate_term(test.text, scope), evaluate_term(test.part, scope))
    text = _evaluate_known(test.text, scope).value
    if not isinstance(text, str):
        return np.zeros(scope.length, np.bool_)
    return one_text_contains(test.op, text, evaluate_term(test.part, scope))


def _pattern_test(test: PatternTest, scope: Scope) -> Flags:
    pattern = _evaluate_known(test.pattern, scope).value
    if not isinstance(pattern, str):
        return np.zeros(scope.length, np.bool_)
    texts = _shorten_column(evaluate_operand(test.text, scope))
    return _widen_flags(true_rows(pc.match_substring_regex(texts, to_regex(test.op, pattern))), scope)


# --- tests of one column against a known value ---------------------------------------------------


def _evaluate_known(term: Term, scope: Scope) -> Known:
    found = evaluate_operand(term, scope)
    assert isinstance(found, Known)
    return found


def _column_of_type(type_: ValueType) -> Prop:
    """Return the column that stands for the values of a term in a bound test."""
    return Prop(ROW, _VALUES, type_)


def _to_constant(known: Known) -> Const:
    return Const(known.value, known.type)


def _asked_of(type_: ValueType, known: Known) -> ValueType:
    """The type in which values of `type_` meet a known one.

    A float that was written down is rounded to the width of what it meets; a calculated one is not, so
    that its digits count wherever it is calculated.
    """
    if type_.scalar is Scalar.F32 and known.type.scalar is Scalar.F64 and not known.written:
        return replace(type_, scalar=Scalar.F64)
    return type_


def _test_values(test: Predicate, term: Term, asked: ValueType, scope: Scope) -> Flags:
    """A test on one column, asked of the values of a term; they are not fetched when nothing can pass."""
    bound = bind_predicate(test, _NOTHING_BOUND)
    if isinstance(bound, MatchesNothing):
        return np.zeros(scope.length, np.bool_)
    found = _shorten_column(evaluate_operand(term, scope))
    if found.type != arrow_type(asked):
        found = found.cast(arrow_type(asked))
    if isinstance(bound, OneOf) and bound.type.is_list:
        values, bounds = flatten_lists(found)
        each = _test_column(values, replace(bound, type=bound.type.item))
        return _widen_flags(any_within(each, bounds) & is_present(found), scope)
    return _widen_flags(_test_column(found, bound), scope)


def _test_column(column: pa.Array, test: Presence | Comparison | OneOf | BoundTextMatch) -> Flags:
    if isinstance(test, OneOf) and len(test.values) <= _FEW:
        singles = [Comparison(test.column, test.type, "=", each) for each in test.values]
        found: Flags = np.logical_or.reduce(
            [true_rows(evaluate_column(column, single)) for single in singles]
        )
        return found
    return true_rows(evaluate_column(column, test))
