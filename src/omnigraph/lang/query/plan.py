"""Logical plans: what a read does, as a tree of values.

A plan says what rows mean, not how they are fetched; both read engines run the same plan.
Rows are bindings of variables to nodes and edges until `Project` or `Aggregate` turns them into
result columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import Count, EdgeDirection
from omnigraph.lang.query.terms import (
    PARTS,
    Distance,
    Fusion,
    Part,
    Predicate,
    Relevance,
    ShortestPath,
    Term,
    Total,
)


@dataclass(frozen=True, slots=True)
class Scan:
    """All nodes of a type that pass the tests, bound to a variable."""

    var: str
    type_name: str
    where: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Outer:
    """Inside a block: the row of the plan around it."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cross:
    """Every row of one side with every row of the other."""

    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class Expand:
    """Walk edges from a bound variable.

    `direction` is seen from `source`. Without `edge_var` each row reaches a target at most once,
    with it there is a row for each stored edge. When `closes` is set the target is bound already
    and the walk only tests that it is reached.
    """

    input: Plan
    source: str
    target: str
    target_type: str
    edge_type: str
    direction: EdgeDirection
    minimum: int
    maximum: int
    edge_var: str | None
    closes: bool
    path: ShortestPath | None = None
    """Of which something may be asked: one that leads from `source` to `target`, or the other way."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which all tests are true; unknown is not true."""

    input: Plan
    where: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Rows for which the block, started from the row, has no solution."""

    input: Plan
    block: Plan


@dataclass(frozen=True, slots=True)
class OptionalJoin:
    """Rows extended by the solutions of the block, or by nulls when it has none."""

    input: Plan
    block: Plan
    adds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """Keep the best nodes of the ranked variable among the rows: `limit` + `offset` of the nearest,
    or every match of a text ranking."""

    input: Plan
    by: Distance | Relevance
    limit: Count | None
    offset: Count | None


@dataclass(frozen=True, slots=True)
class Fuse:
    """Two rankings of the same rows, combined by reciprocal rank of the first ranking's variable."""

    first: Plan
    second: Plan
    by: Fusion
    limit: Count | None
    offset: Count | None


@dataclass(frozen=True, slots=True)
class Key:
    """A sort key; nulls come first ascending and last descending."""

    term: Term
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Sort rows; ties are broken by the ids of the variables in `ties`."""

    input: Plan
    keys: tuple[Key, ...]
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """A result column; without an alias its name is made from the term."""

    name: str
    term: Term
    aliased: bool = True


@dataclass(frozen=True, slots=True)
class Project:
    input: Plan
    columns: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group by the key columns and total the rest; `columns` puts the result together.

    In `columns` a key stands as it is written and a `Total` stands for its value in the group.
    """

    input: Plan
    keys: tuple[Term, ...]
    totals: tuple[Total, ...]
    columns: tuple[Output, ...]
    having: tuple[Predicate, ...] = ()
    """What the rows of groups must pass."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """The first of equal rows."""

    input: Plan


@dataclass(frozen=True, slots=True)
class Sort:
    """Sort result rows by columns; ties are broken by all columns, left to right."""

    input: Plan
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    input: Plan
    limit: Count | None
    offset: Count | None


Plan = (
    Scan
    | Outer
    | Cross
    | Expand
    | Filter
    | AntiJoin
    | OptionalJoin
    | Search
    | Fuse
    | Order
    | Project
    | Aggregate
    | Distinct
    | Sort
    | Limit
)


def inputs(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The plans directly below, with the role each plays."""
    for field in fields(plan):
        below = getattr(plan, field.name)
        if isinstance(below, Plan):
            yield field.name, below


def plans_within(plan: Plan) -> Iterator[Plan]:
    """A plan and all that it is made of."""
    yield plan
    for _, below in inputs(plan):
        yield from plans_within(below)


def expressions(plan: Plan) -> Iterator[Part]:
    """The terms and predicates that a plan, and all that it is made of, evaluates."""
    for below in plans_within(plan):
        for field in fields(below):
            held = getattr(below, field.name)
            for one in held if isinstance(held, tuple) else (held,):
                if isinstance(one, Key | Output):
                    yield one.term
                elif isinstance(one, PARTS):
                    yield one
