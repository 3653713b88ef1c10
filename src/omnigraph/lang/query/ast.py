"""The syntax tree of a `.gq` file.

Nodes compare by meaning: `at`, the place in the text, takes no part in equality.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal as OneOf

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.source import NOWHERE, Span
from omnigraph.lang.types import ValueType

AffixOp = OneOf["contains", "starts_with", "ends_with"]
PatternOp = OneOf["like", "ilike", "matches"]
CompareOp = OneOf["=", "!=", "<", "<=", ">", ">=", AffixOp, PatternOp]
ArithmeticOp = OneOf["+", "-", "*", "/"]
AggregateFn = OneOf["count", "sum", "avg", "min", "max", "collect"]
TextFn = OneOf["search", "fuzzy", "match_text"]
CaseFn = OneOf["lower", "upper"]
DatePartFn = OneOf["year", "quarter", "month", "week", "day", "weekday", "hour", "minute", "second"]
DateCastFn = OneOf["date", "datetime"]
PathFn = OneOf["length", "nodes", "edges"]
IntervalFn = OneOf["years", "months", "weeks", "days", "hours", "minutes", "seconds"]
Direction = OneOf["asc", "desc"]
JunctionWord = OneOf["and", "or"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """A piece of the tree and where it was written."""

    at: Span = field(default=NOWHERE, compare=False, repr=False)


# --- expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal(Syntax):
    """A constant. The type is part of it: `1`, `1.0` and `true` are three different constants."""

    value: str | int | float | bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class ListLiteral(Syntax):
    items: tuple[Literal | ListLiteral, ...]


@dataclass(frozen=True, slots=True)
class Null(Syntax):
    pass


@dataclass(frozen=True, slots=True)
class Now(Syntax):
    pass


@dataclass(frozen=True, slots=True)
class VarRef(Syntax):
    """`$x`: a parameter or a bound variable."""

    name: str


@dataclass(frozen=True, slots=True)
class PropRef(Syntax):
    """`$x.p`."""

    var: str
    name: str


@dataclass(frozen=True, slots=True)
class AliasRef(Syntax):
    """A bare lower-case word: the name of a result column."""

    name: str


@dataclass(frozen=True, slots=True)
class Nearest(Syntax):
    target: PropRef
    query: Expr


@dataclass(frozen=True, slots=True)
class Bm25(Syntax):
    field: Expr
    query: Expr


@dataclass(frozen=True, slots=True)
class Rrf(Syntax):
    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr | None = None


@dataclass(frozen=True, slots=True)
class TextCall(Syntax):
    fn: TextFn
    field: Expr
    query: Expr
    max_edits: Expr | None = None


@dataclass(frozen=True, slots=True)
class Aggregate(Syntax):
    fn: AggregateFn
    argument: Expr
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class CaseCall(Syntax):
    fn: CaseFn
    argument: Expr


@dataclass(frozen=True, slots=True)
class DateCall(Syntax):
    """A part of a date, or a date made of a moment and the other way round."""

    fn: DatePartFn | DateCastFn
    argument: Expr


@dataclass(frozen=True, slots=True)
class Interval(Syntax):
    """`days(3)`: what is added to a date."""

    unit: IntervalFn
    amount: Expr


@dataclass(frozen=True, slots=True)
class PathCall(Syntax):
    """`length($path)`: what is asked of a path."""

    fn: PathFn
    argument: Expr


@dataclass(frozen=True, slots=True)
class Coalesce(Syntax):
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class CaseBranch(Syntax):
    condition: Condition
    value: Expr


@dataclass(frozen=True, slots=True)
class CaseWhen(Syntax):
    """`case when condition then value else value end`."""

    branches: tuple[CaseBranch, ...]
    otherwise: Expr | None = None


@dataclass(frozen=True, slots=True)
class Arithmetic(Syntax):
    op: ArithmeticOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(Syntax):
    argument: Expr


Expr = (
    Literal
    | ListLiteral
    | Null
    | Now
    | VarRef
    | PropRef
    | AliasRef
    | Nearest
    | Bm25
    | Rrf
    | TextCall
    | Aggregate
    | CaseCall
    | DateCall
    | Interval
    | PathCall
    | Coalesce
    | CaseWhen
    | Arithmetic
    | Negate
)
Value = Literal | ListLiteral | Null | Now | VarRef


# --- clauses -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PropertyMatch(Syntax):
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Binding(Syntax):
    """`$p: Person { handle: "ada" }`."""

    var: str
    type_name: str
    matches: tuple[PropertyMatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Hops:
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Traversal(Syntax):
    """`$a $w:knows $b`, `$a <knows> $b`, `$a knows{1,3} $b`, `$path = shortest $a knows{1,3} $b`."""

    left: str
    edge: str
    right: str
    edge_var: str | None = None
    undirected: bool = False
    hops: Hops | None = None
    path: str | None = None
    """The variable of the path by which the right end is reached."""


@dataclass(frozen=True, slots=True)
class Comparison(Syntax):
    left: Expr
    op: CompareOp
    right: Expr


@dataclass(frozen=True, slots=True)
class NullTest(Syntax):
    argument: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InTest(Syntax):
    argument: Expr
    items: ListLiteral | VarRef


@dataclass(frozen=True, slots=True)
class TextFilter(Syntax):
    """A text call standing alone as a clause."""

    call: TextCall


@dataclass(frozen=True, slots=True)
class Junction(Syntax):
    """Conditions joined by one word: all of them hold, or one of them."""

    word: JunctionWord
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class NotTest(Syntax):
    """`not (condition)`."""

    condition: Condition


Condition = Comparison | NullTest | InTest | TextFilter | Junction | NotTest
CONDITIONS = (Comparison, NullTest, InTest, TextFilter, Junction, NotTest)


@dataclass(frozen=True, slots=True)
class Negation(Syntax):
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class OptionalBlock(Syntax):
    clauses: tuple[Clause, ...]


Clause = Binding | Traversal | Condition | Negation | OptionalBlock


# --- queries -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllProperties(Syntax):
    """`$x.*` in `return`: a column for each property."""

    var: str


@dataclass(frozen=True, slots=True)
class Projection(Syntax):
    expr: Expr | AllProperties
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class OrderTerm(Syntax):
    expr: Expr
    direction: Direction | None = None


@dataclass(frozen=True, slots=True)
class Read(Syntax):
    match: tuple[Clause, ...]
    returns: tuple[Projection, ...]
    distinct: bool = False
    having: tuple[Condition, ...] = ()
    order: tuple[OrderTerm, ...] = ()
    limit: int | VarRef | None = None
    offset: int | VarRef | None = None


@dataclass(frozen=True, slots=True)
class Assignment(Syntax):
    name: str
    value: Value
    quoted: bool = False
    """Whether the name is in backquotes and so is that of a property, never an end of an edge."""


@dataclass(frozen=True, slots=True)
class ComparePredicate(Syntax):
    """`age >= 3` after `where`."""

    name: str
    op: CompareOp
    value: Value
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class NullPredicate(Syntax):
    name: str
    negated: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class InPredicate(Syntax):
    name: str
    items: ListLiteral | VarRef
    quoted: bool = False


Predicate = ComparePredicate | NullPredicate | InPredicate


InsertVerb = OneOf["insert", "upsert", "create"]


@dataclass(frozen=True, slots=True)
class Insert(Syntax):
    type_name: str
    assignments: tuple[Assignment, ...]
    verb: InsertVerb = "insert"


@dataclass(frozen=True, slots=True)
class Update(Syntax):
    type_name: str
    assignments: tuple[Assignment, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class Delete(Syntax):
    type_name: str
    where: Predicate


Mutation = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Parameter(Syntax):
    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Query(Syntax):
    name: str
    parameters: tuple[Parameter, ...]
    body: Read | tuple[Mutation, ...]
    description: str | None = None
    instruction: str | None = None

    @property
    def is_mutation(self) -> bool:
        """Whether it writes."""
        return isinstance(self.body, tuple)


@dataclass(frozen=True, slots=True)
class QueryFile:
    queries: tuple[Query, ...]
