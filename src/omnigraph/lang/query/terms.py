"""Checked expressions and predicates: every name resolved, every value typed.

These trees are what plans hold. Each read engine renders them for itself (Lance SQL, Arrow compute,
Spark columns); they never travel as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.ast import AggregateFn, ArithmeticOp, CaseFn, TextFn
from omnigraph.lang.types import BOOL, DATETIME, F64, STRING, ValueType

ConstantValue = str | int | float | bool | None
RelationOp = OneOf["=", "!=", "<", "<=", ">", ">="]

ROW = "row"
"""The variable that stands for the stored row in a mutation's `where`."""


@dataclass(frozen=True, slots=True)
class Const:
    """A constant; a list or vector is a tuple."""

    value: ConstantValue | tuple[ConstantValue, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class ParamRef:
    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Instant:
    """`now()`: one moment for the whole request."""

    type: ValueType = DATETIME


@dataclass(frozen=True, slots=True)
class Prop:
    """A property of a bound node or edge; null when an optional variable has no match."""

    var: str
    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class EntityId:
    """The id of a bound node or edge."""

    var: str
    type: ValueType = STRING


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result, by name."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Calc:
    """Arithmetic; a null operand, an overflow or a division by zero gives null."""

    op: ArithmeticOp
    left: Term
    right: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class Minus:
    argument: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class CaseFold:
    fn: CaseFn
    argument: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class Total:
    """An aggregate over the rows of a group."""

    fn: AggregateFn
    argument: Term
    distinct: bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class Distance:
    """`nearest`: Euclidean distance of a vector property to a query; a String query is embedded first."""

    target: Prop
    query: Const | ParamRef
    type: ValueType = F64


@dataclass(frozen=True, slots=True)
class Relevance:
    """`bm25`."""

    field: Prop
    query: Const | ParamRef
    type: ValueType = F64


@dataclass(frozen=True, slots=True)
class Fusion:
    """`rrf`: reciprocal ranks of two rankings added up."""

    first: Distance | Relevance
    second: Distance | Relevance
    k: Const | ParamRef
    type: ValueType = F64


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`search`, `match_text` or `fuzzy`: whether a text matches a query."""

    fn: TextFn
    field: Prop
    query: Const | ParamRef
    max_edits: Const | ParamRef | None
    type: ValueType = BOOL


Ranking = Distance | Relevance | Fusion
Term = (
    Const
    | ParamRef
    | Instant
    | Prop
    | EntityId
    | Column
    | Calc
    | Minus
    | CaseFold
    | Total
    | Distance
    | Relevance
    | Fusion
    | TextMatch
)


@dataclass(frozen=True, slots=True)
class Compare:
    """Comparison by value; never true when a side is null."""

    op: RelationOp
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class TextTest:
    """Exact, case-sensitive substring or prefix test."""

    op: OneOf["contains", "starts_with"]
    text: Term
    part: Term


@dataclass(frozen=True, slots=True)
class Has:
    """A list holds an item."""

    items: Term
    item: Term


@dataclass(frozen=True, slots=True)
class NullCheck:
    argument: Term
    negated: bool


@dataclass(frozen=True, slots=True)
class InList:
    argument: Term
    items: Const | ParamRef


@dataclass(frozen=True, slots=True)
class Holds:
    """A text call standing as a filter."""

    match: TextMatch


Predicate = Compare | TextTest | Has | NullCheck | InList | Holds


def children(term: Term | Predicate) -> tuple[Term, ...]:
    """The terms directly inside a term or predicate."""
    match term:
        case Compare(left=left, right=right) | Calc(left=left, right=right):
            return (left, right)
        case TextTest(text=text, part=part):
            return (text, part)
        case Has(items=items, item=item):
            return (items, item)
        case NullCheck(argument=argument) | Minus(argument=argument):
            return (argument,)
        case CaseFold(argument=argument) | Total(argument=argument):
            return (argument,)
        case InList(argument=argument, items=values):
            return (argument, values)
        case Holds(match=match):
            return (match,)
        case Distance(target=target, query=query):
            return (target, query)
        case Relevance(field=field, query=query):
            return (field, query)
        case Fusion(first=first, second=second, k=k):
            return (first, second, k)
        case TextMatch(field=field, query=query, max_edits=edits):
            return (field, query) if edits is None else (field, query, edits)
    return ()


def walk(term: Term | Predicate) -> Iterator[Term | Predicate]:
    """The term and everything inside it, outermost first."""
    yield term
    for child in children(term):
        yield from walk(child)


def variables(term: Term | Predicate) -> frozenset[str]:
    """The bound variables a term needs."""
    return frozenset(part.var for part in walk(term) if isinstance(part, Prop | EntityId))


def has_total(term: Term) -> bool:
    """Whether an aggregate is part of the term."""
    return any(isinstance(part, Total) for part in walk(term))
