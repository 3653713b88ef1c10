"""The syntax tree of a schema file. Two trees are equal when they read alike; positions do not count."""

from __future__ import annotations

from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.source import NOWHERE, Span
from omnigraph.lang.types import ValueType


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written, with its place."""

    text: str
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Argument:
    """An annotation argument; `@embed(src)` and `@embed("src")` say the same."""

    text: str
    quoted: bool = field(default=True, compare=False)
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name`, `@name(value)` or `@name(value, option=value)`."""

    name: str
    value: Argument | None = None
    options: tuple[tuple[str, Argument], ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Property:
    """`name: Type` and its annotations."""

    name: Name
    type: ValueType
    annotations: tuple[Annotation, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnConstraint:
    """`@key(a, b)`, `@unique(a, b)` or `@index(a, b)`."""

    name: str
    columns: tuple[Name, ...]
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """`@range(column, minimum..maximum)`; a missing bound is open."""

    column: Name
    minimum: int | float | None
    maximum: int | float | None
    at: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The word after the `@`."""
        return "range"


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`@check(column, "pattern")`."""

    column: Name
    pattern: str
    at: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The word after the `@`."""
        return "check"


Constraint = ColumnConstraint | RangeConstraint | CheckConstraint


@dataclass(frozen=True, slots=True)
class Card:
    """`@card(minimum..maximum)`."""

    minimum: int
    maximum: int | None
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Interface:
    """`interface Name { ... }`."""

    name: Name
    properties: tuple[Property, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Node:
    """`node Name @annotation implements A, B { ... }`."""

    name: Name
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[Name, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """`edge Name: Source -> Target @card(0..1) @annotation { ... }`."""

    name: Name
    source: Name
    target: Name
    card: Card | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


Declaration = Interface | Node | Edge


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """Everything a schema text declares, in its order."""

    declarations: tuple[Declaration, ...] = ()

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces, in order."""
        return [found for found in self.declarations if isinstance(found, Interface)]

    @property
    def nodes(self) -> list[Node]:
        """The node types, in order."""
        return [found for found in self.declarations if isinstance(found, Node)]

    @property
    def edges(self) -> list[Edge]:
        """The edge types, in order."""
        return [found for found in self.declarations if isinstance(found, Edge)]
