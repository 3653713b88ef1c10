"""A checked query before planning: clauses with every name, type and direction resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal as OneOf

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.ast import Direction
from omnigraph.lang.query.terms import ParamRef, Predicate, Ranking, ShortestPath, Term
from omnigraph.lang.types import ValueType

EdgeDirection = OneOf["out", "in", "both"]
Count = int | ParamRef


@dataclass(frozen=True, slots=True)
class Bind:
    """A variable stands for nodes of a type that pass all tests."""

    var: str
    type_name: str
    tests: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Traverse:
    """`left` reaches `right` over edges of a type; `direction` is seen from `left`."""

    left: str
    left_type: str
    right: str
    right_type: str
    edge_type: str
    direction: EdgeDirection
    minimum: int
    maximum: int
    edge_var: str | None
    path: ShortestPath | None = None
    """By which `left` reaches `right`, where that has a name."""


@dataclass(frozen=True, slots=True)
class Where:
    test: Predicate


@dataclass(frozen=True, slots=True)
class NotBlock:
    """A negated block and the variables around it that it can see: those bound before it."""

    clauses: tuple[Step, ...]
    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional block and the variables it adds."""

    clauses: tuple[Step, ...]
    adds: tuple[str, ...]


Step = Bind | Traverse | Where | NotBlock | Maybe


@dataclass(frozen=True, slots=True)
class Output:
    """One returned column."""

    name: str
    """The name at run time."""
    label: str
    """The name in the operation descriptor."""
    term: Term
    aliased: bool


@dataclass(frozen=True, slots=True)
class OrderBy:
    """An order term; `source` is how the user wrote it, for messages."""

    term: Term
    direction: Direction | None
    source: str


@dataclass(frozen=True, slots=True)
class ResolvedRead:
    steps: tuple[Step, ...]
    variables: Mapping[str, str]
    """Named variables that results may depend on, and whether each is a node or an edge."""
    outputs: tuple[Output, ...]
    distinct: bool
    having: tuple[Predicate, ...]
    """What groups must pass; the terms of columns stand in it, not their names."""
    ranking: Ranking | None
    order: tuple[OrderBy, ...]
    limit: Count | None
    offset: Count | None
    parameters: Mapping[str, ValueType]
    read_nodes: tuple[str, ...]
    read_edges: tuple[str, ...]


# --- mutations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertNode:
    type_name: str
    values: tuple[tuple[str, Term], ...]
    strict: bool = False
    """Whether a row with its id is a conflict, as for `create`; else it is replaced."""


@dataclass(frozen=True, slots=True)
class InsertEdge:
    type_name: str
    source: Term
    target: Term
    values: tuple[tuple[str, Term], ...]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class UpdateNodes:
    type_name: str
    values: tuple[tuple[str, Term], ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class UpdateEdges:
    type_name: str
    values: tuple[tuple[str, Term], ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    type_name: str
    where: Predicate


@dataclass(frozen=True, slots=True)
class DeleteEdges:
    type_name: str
    where: Predicate


Statement = InsertNode | InsertEdge | UpdateNodes | UpdateEdges | DeleteNodes | DeleteEdges


@dataclass(frozen=True, slots=True)
class ResolvedMutation:
    statements: tuple[Statement, ...]
    parameters: Mapping[str, ValueType]
