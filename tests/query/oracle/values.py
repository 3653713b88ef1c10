"""What terms are worth and whether predicates hold, for one row of bound variables."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from omnigraph.lang import dates
from omnigraph.lang.query.terms import (
    AllOf,
    AnyOf,
    Calc,
    CaseFold,
    CaseWhen,
    Coalesce,
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
)
from omnigraph.lang.schema.catalog import Metric
from omnigraph.lang.types import FLOATS, Scalar, ValueType
from omnigraph.lang.values import Stored
from tests.query.oracle import moments
from tests.query.oracle.graph import Entity, Graph
from tests.query.oracle.paths import shortest
from tests.query.oracle.text import bm25_scores, matches

Row = Mapping[str, Entity | None]
Totals = Mapping[Total, Stored] | None
SMALLEST, LARGEST = -(2**63), 2**63 - 1
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
AFFIXES: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
}
CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass
class Values:
    """Everything besides the row that a value may depend on."""

    graph: Graph
    params: Mapping[str, Stored]
    now: int
    types: Mapping[str, str]
    """The node type of each variable: relevance depends on all texts of the type."""
    fused: dict[str, float] = field(default_factory=dict)
    """The score of a fused ranking by the id of its first variable, once the rows are ranked."""

    # --- predicates ------------------------------------------------------------------------------

    def holds(self, test: Predicate, row: Row) -> bool:
        return self.truth(test, row) is True

    def truth(self, test: Predicate, row: Row, totals: Totals = None) -> bool | None:
        """True, false, or None where it is unknown."""
        match test:
            case AllOf(tests):
                found = [self.truth(each, row, totals) for each in tests]
                return False if False in found else None if None in found else True
            case AnyOf(tests):
                found = [self.truth(each, row, totals) for each in tests]
                return True if True in found else None if None in found else False
            case Not(inner):
                opposite = self.truth(inner, row, totals)
                return None if opposite is None else not opposite
        return self._truth_of_test(test, row, totals)

    def _truth_of_test(self, test: Predicate, row: Row, totals: Totals) -> bool | None:
        match test:
            case Compare(op, left, right):
                return self._compare(op, left, right, row, totals)
            case TextTest(op, text, part):
                whole, piece = self.value(text, row, totals), self.value(part, row, totals)
                if whole is None or piece is None:
                    return None
                return AFFIXES[op](whole, piece)
            case PatternTest(op, text, pattern):
                whole, wanted = self.value(text, row, totals), self.value(pattern, row, totals)
                return None if whole is None or wanted is None else fits(op, whole, wanted)
            case Has(items, item):
                return self._among(items, self.value(items, row, totals), item, self.value(item, row, totals))
            case InList(argument, items):
                return self._among(
                    items, self.value(items, row, totals), argument, self.value(argument, row, totals)
                )
            case NullCheck(argument, negated):
                return (self.value(argument, row, totals) is None) != negated
            case Holds(call):
                return self.value(call, row, totals)  # type: ignore[no-any-return]  # a Bool or null
        raise TypeError(test)

    def _compare(self, op: str, left: Term, right: Term, row: Row, totals: Totals) -> bool | None:
        one, other = self.value(left, row, totals), self.value(right, row, totals)
        if one is None or other is None:
            return None
        return COMPARE[op](narrow(one, left, right.type), narrow(other, right, left.type))

    def _among(self, list_term: Term, items: Any, item_term: Term, item: Any) -> bool | None:
        if items is None or item is None:
            return None
        wanted = narrow(item, item_term, list_term.type)
        return any(narrow(each, list_term, item_term.type) == wanted for each in items if each is not None)

    # --- terms -----------------------------------------------------------------------------------

    def value(self, term: Term, row: Row, totals: Totals = None) -> Any:
        match term:
            case Const(value, type_):
                return constant(value, type_)
            case ParamRef(name):
                return self.params[name]
            case Instant():
                return self.now
            case Prop(var, name):
                entity = row[var]
                return None if entity is None else entity.props[name]
            case EntityId(var):
                entity = row[var]
                return None if entity is None else entity.id
            case Calc(op, left, right, type_):
                return calculate(op, self.value(left, row, totals), self.value(right, row, totals), type_)
            case Minus(argument, type_):
                return calculate("*", self.value(argument, row, totals), -1, type_)
            case CaseFold(fn, argument):
                return fold_case(fn, self.value(argument, row, totals))
            case Total():
                assert totals is not None, "an aggregate has no value in one row"
                return totals[term]
        return self._choice(term, row, totals)

    def _choice(self, term: Term, row: Row, totals: Totals) -> Any:
        match term:
            case Coalesce(arguments, type_):
                every = (self.value(argument, row, totals) for argument in arguments)
                return in_type(next((each for each in every if each is not None), None), type_)
            case CaseWhen():
                return self._case(term, row, totals)
            case DatePart() | DateCast() | Shift() | Elapsed():
                return self._moment(term, row, totals)
            case PathPart(fn, path):
                return self._path(fn, path, row)
        return self._score(term, row)

    def _path(self, fn: str, path: ShortestPath, row: Row) -> Any:
        start, end = row[path.start.var], row[path.end.var]
        found = None if start is None or end is None else shortest(self.graph, path, start.id, end.id)
        if found is None:
            return None
        nodes, edges = found
        return {"length": len(edges), "nodes": tuple(nodes), "edges": tuple(edges)}[fn]

    def _case(self, term: CaseWhen, row: Row, totals: Totals) -> Any:
        for test, value in zip(term.tests, term.values, strict=True):
            if self.truth(test, row, totals) is True:
                return in_type(self.value(value, row, totals), term.type)
        return None if term.otherwise is None else in_type(self.value(term.otherwise, row, totals), term.type)

    def _moment(self, term: DatePart | DateCast | Shift | Elapsed, row: Row, totals: Totals) -> Any:
        match term:
            case Elapsed(left, right, type_):
                one, other = self.value(left, row, totals), self.value(right, row, totals)
                found = None if one is None or other is None else one - other
                if type_.scalar is Scalar.I64 or found is None:
                    return found
                return float(found) / 1000 if SMALLEST <= found <= LARGEST else None
            case Shift(argument, amount, unit, backward, type_):
                start, steps = self.value(argument, row, totals), self.value(amount, row, totals)
                if start is None or steps is None:
                    return None
                return moments.shift(start, -steps if backward else steps, unit, type_.scalar)
        found = self.value(term.argument, row, totals)
        if found is None:
            return None
        of_date = term.argument.type.scalar is Scalar.DATE
        if isinstance(term, DateCast):
            return moments.cast(found, of_date, term.type.scalar)
        return moments.part(term.part, found * (moments.DAY if of_date else 1))

    def _score(self, term: Term, row: Row) -> Any:
        match term:
            case Distance(target, query, metric=metric):
                return distance(self.value(target, row), self.value(query, row), metric)
            case Relevance(field, query, language=language):
                return self._relevance(field, self.value(query, row), row, language)
            case Fusion(first=arm):
                entity = row[ranked_variable(arm)]
                assert entity is not None
                return self.fused[entity.id]
            case TextMatch(fn, field, query, max_edits, language=language):
                edits = 0 if fn != "fuzzy" or max_edits is None else self.value(max_edits, row)
                return matches(self.value(field, row), self.value(query, row), edits, language)
        raise TypeError(term)

    def _relevance(self, field: Prop, query: str | None, row: Row, language: str) -> float | None:
        entity = row[field.var]
        if entity is None or query is None:
            return None
        texts: dict[str, Any] = {
            each.id: each.props[field.name] for each in self.graph.all_of(self.types[field.var])
        }
        return bm25_scores(texts, query, language).get(entity.id)


def ranked_variable(by: Distance | Relevance) -> str:
    return by.target.var if isinstance(by, Distance) else by.field.var


# --- constants and numbers -----------------------------------------------------------------------


def constant(value: Any, type_: ValueType) -> Any:
    """A constant as it would be stored: moments as numbers, the numbers of a vector in 32 bits."""
    if isinstance(value, tuple):
        item = ValueType(type_.scalar)
        return tuple(constant(each, item) for each in value)
    if value is None:
        return None
    if type_.scalar is Scalar.DATE:
        return dates.parse_date(value)
    if type_.scalar is Scalar.DATETIME:
        return dates.parse_datetime(value)
    if type_.scalar is Scalar.VECTOR:
        return as_f32(value)
    return float(value) if type_.scalar in FLOATS else value


def narrow(value: Any, term: Term, opposite: ValueType) -> Any:
    """A constant float meets a 32-bit float as the 32-bit float nearest to it."""
    is_constant = isinstance(term, Const | ParamRef)
    if is_constant and opposite.scalar is Scalar.F32 and isinstance(value, float):
        return as_f32(value)
    return value


def as_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def calculate(op: str, left: Any, right: Any, type_: ValueType) -> int | float | None:
    """Arithmetic that never fails: what has no value in 64 bits is null."""
    if left is None or right is None:
        return None
    if type_.scalar not in FLOATS:
        whole = CALCULATE[op](left, right)
        return whole if SMALLEST <= whole <= LARGEST else None
    try:
        found = CALCULATE[op](float(left), float(right))
    except (ZeroDivisionError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def in_type(value: Any, type_: ValueType) -> Any:
    return float(value) if type_.scalar in FLOATS and not type_.is_list and value is not None else value


def fold_case(fn: str, text: str | None) -> str | None:
    """Letter by letter, as Arrow maps single code points."""
    if text is None:
        return None
    change = pc.utf8_lower if fn == "lower" else pc.utf8_upper
    return "".join(change(letter).as_py() for letter in text)


def fits(op: str, text: str, pattern: str) -> bool:
    """Whether a text fits a pattern; those that tests use mean the same to Python and to RE2."""
    if op == "matches":
        return re.search(pattern, text) is not None
    marks = re.finditer(r"\\(.)|([%_])|(.)", pattern, re.DOTALL)
    wild = {"%": ".*", "_": ".", None: ""}
    parts = (wild[each[2]] or re.escape(each[1] or each[3]) for each in marks)
    flags = re.DOTALL | (re.IGNORECASE if op == "ilike" else 0)
    return re.fullmatch("".join(parts), text, flags) is not None


def distance(
    vector: tuple[float, ...] | None, query: tuple[float, ...] | None, metric: Metric
) -> float | None:
    if vector is None or query is None:
        return None
    wanted = [as_f32(number) for number in query]
    if metric == "l2":
        return math.dist(vector, wanted)
    product = float(sum(map(operator.mul, vector, wanted)))
    if metric == "dot":
        return -product
    lengths = math.hypot(*vector) * math.hypot(*wanted)
    # Rounded, because 1 - product / lengths is not 0 for some equal vectors.
    return round(1 - product / lengths, 12) if lengths else math.inf
