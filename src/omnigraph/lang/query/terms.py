"""Checked expressions and predicates: every name resolved, every value typed.

These trees are what plans hold. Each read engine renders them for itself (Lance SQL, Arrow compute,
Spark columns); they never travel as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from functools import cache
from typing import Any, cast, get_args
from typing import Literal as OneOf

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.ast import (
    AffixOp,
    AggregateFn,
    ArithmeticOp,
    CaseFn,
    DatePartFn,
    IntervalFn,
    PathFn,
    PatternOp,
    TextFn,
)
from omnigraph.lang.schema.catalog import Language, Metric
from omnigraph.lang.types import BOOL, DATETIME, F64, STRING, Scalar, ValueType

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
class ShortestPath:
    """The shortest path of at least one edge from one bound node to another; never a value by itself.

    Of equally short ones it is the one whose ids of nodes come first, from the start; of parallel edges
    the one whose id comes first.
    """

    name: str = field(compare=False)
    start: EntityId
    end: EntityId
    edge_type: str
    direction: OneOf["out", "in", "both"]
    """Seen from the start."""
    maximum: int
    type: ValueType = ValueType(Scalar.STRING, is_list=True)


@dataclass(frozen=True, slots=True)
class PathPart:
    """How many edges a path has, or the ids of its nodes or edges in order; null where there is no path."""

    fn: PathFn
    path: ShortestPath
    type: ValueType


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
class DatePart:
    """A part of a date or, in UTC, of a moment; weeks and weekdays are those of ISO 8601."""

    part: DatePartFn
    argument: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class DateCast:
    """The date of a moment, or the first moment of a date, as the type says."""

    argument: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class Shift:
    """A date or moment moved by so many units; null where that cannot be stored."""

    argument: Term
    amount: Term
    unit: IntervalFn
    backward: bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Days from one date to another, or seconds from one moment to another: `left - right`."""

    left: Term
    right: Term
    type: ValueType


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first value that is not null."""

    arguments: tuple[Term, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """The value behind the first test that is true, else `otherwise`, else null."""

    tests: tuple[Predicate, ...]
    values: tuple[Term, ...]
    otherwise: Term | None
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
    """`nearest`: the distance of a vector property to a query; a String query is embedded first."""

    target: Prop
    query: Const | ParamRef
    type: ValueType = F64
    metric: Metric = "l2"
    """What the property declares."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """`bm25`."""

    field: Prop
    query: Const | ParamRef
    type: ValueType = F64
    language: Language = "english"
    """How the property's texts become tokens, as it declares."""


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
    language: Language = "english"


Ranking = Distance | Relevance | Fusion
Term = (
    Const
    | ParamRef
    | Instant
    | Prop
    | EntityId
    | ShortestPath
    | PathPart
    | Column
    | Calc
    | Minus
    | CaseFold
    | DatePart
    | DateCast
    | Shift
    | Elapsed
    | Coalesce
    | CaseWhen
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
    """Exact, case-sensitive test for a substring, prefix or suffix."""

    op: AffixOp
    text: Term
    part: Term


@dataclass(frozen=True, slots=True)
class PatternTest:
    """A text fits a pattern: one of SQL as a whole (`like`), or a regular expression anywhere in it."""

    op: PatternOp
    text: Term
    pattern: Const | ParamRef


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


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every one of the tests is true."""

    tests: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of the tests is true."""

    tests: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The test is false; where it is unknown, because an operand is null, this is unknown too."""

    test: Predicate


Predicate = Compare | TextTest | PatternTest | Has | NullCheck | InList | Holds | AllOf | AnyOf | Not
Part = Term | Predicate

_OPPOSITES: dict[RelationOp, RelationOp] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def negate_test(test: Predicate) -> Predicate:
    """The opposite of a test in three-valued logic; `Not` is left only around tests without an opposite."""
    match test:
        case AllOf(tests=tests):
            return AnyOf(tuple(map(negate_test, tests)))
        case AnyOf(tests=tests):
            return AllOf(tuple(map(negate_test, tests)))
        case Not(test=inner):
            return inner
        case Compare(op=op, left=left, right=right):
            return Compare(_OPPOSITES[op], left, right)
        case NullCheck(argument=argument, negated=negated):
            return NullCheck(argument, not negated)
        case Holds(match=match):
            return Compare("=", match, Const(False, BOOL))
    return Not(test)


PARTS = get_args(Part)


def children(part: Part) -> tuple[Part, ...]:
    """The terms and predicates directly inside a term or predicate, in the order of its fields."""
    found: list[Part] = []
    for name in _list_fields(cast(Any, type(part))):
        held = getattr(part, name)
        if isinstance(held, PARTS):
            found.append(held)
        elif isinstance(held, tuple) and held and isinstance(held[0], PARTS):
            found.extend(held)
    return tuple(found)


@cache
def _list_fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def walk(term: Part) -> Iterator[Part]:
    """The term and everything inside it, outermost first."""
    yield term
    for child in children(term):
        yield from walk(child)


def variables(term: Part) -> frozenset[str]:
    """The bound variables a term needs."""
    return frozenset(part.var for part in walk(term) if isinstance(part, Prop | EntityId))


def paths(part: Part) -> frozenset[ShortestPath]:
    """The paths of which something is asked."""
    return frozenset(found for found in walk(part) if isinstance(found, ShortestPath))


def has_total(term: Term) -> bool:
    """Whether an aggregate is part of the term."""
    return any(isinstance(part, Total) for part in walk(term))
