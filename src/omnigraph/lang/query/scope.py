"""Which variables and parameters a query may use at a point, and the faults of misusing them."""

from __future__ import annotations

from typing import Literal as OneOf
from typing import NoReturn

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query import ast
from omnigraph.lang.query.terms import ShortestPath
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Span, suggest_name
from omnigraph.lang.types import ValueType

ANONYMOUS = "_"
RESERVED_PARAMETER = "__nanograph_now"
PATH_VALUES = "ask for `length($path)`, `nodes($path)` or `edges($path)`"
NULL_TEST = "write `is null` or `is not null` after the property"


class TypeFault(Exception):
    """A type error on its way to the checker's collector; never leaves `lang`."""

    def __init__(self, message: str, at: Span, *, code: str | None = None, help: str | None = None) -> None:
        super().__init__(message)
        self.message = f"{code}: {message}" if code else message
        self.at = at
        self.code = code
        self.help = help


class Poisoned(Exception):
    """A variable whose own definition was wrong; what depends on it is not worth a second report."""


def raise_fault(code: str | None, message: str, at: Span, help: str | None = None) -> NoReturn:
    """Stop checking the current construct because of a type error."""
    raise TypeFault(message, at, code=code, help=help)


@dataclass(frozen=True, slots=True)
class Bound:
    """A variable that stands for a node or an edge."""

    kind: OneOf["node", "edge"]
    type_name: str
    optional: bool = False
    """True after an optional block that may have found no match for it."""


@dataclass(frozen=True, slots=True)
class BoundPath:
    """A variable that stands for a path."""

    path: ShortestPath
    optional: bool = False


class Scope:
    """The variables bound so far. A block works on a copy, so its variables do not leak."""

    def __init__(self, catalog: Catalog, parameters: dict[str, ValueType]) -> None:
        self.catalog = catalog
        self.parameters = parameters
        self.bound: dict[str, Bound] = {}
        self.paths: dict[str, BoundPath] = {}
        self.poisoned: set[str] = set()

    def copy(self) -> Scope:
        """A scope that starts with the same variables."""
        inner = Scope(self.catalog, self.parameters)
        inner.bound = dict(self.bound)
        inner.paths = dict(self.paths)
        inner.poisoned = set(self.poisoned)
        return inner

    def find(self, var: str) -> Bound | None:
        """The variable, or None when nothing binds it here."""
        if var in self.poisoned:
            raise Poisoned
        return self.bound.get(var)

    def find_path(self, var: str) -> BoundPath | None:
        """The path of this name, or None when there is none."""
        if var in self.poisoned:
            raise Poisoned
        return self.paths.get(var)

    def bind(self, var: str, bound: Bound) -> None:
        """Make a variable known from here on."""
        self.bound[var] = bound
        self.poisoned.discard(var)

    def poison(self, *names: str | None) -> None:
        """Keep later uses of variables quiet whose definition already failed."""
        known = self.bound.keys() | self.paths.keys() | {ANONYMOUS}
        self.poisoned.update(name for name in names if name and name not in known)

    def suggest_variable(self, name: str) -> str | None:
        """A hint for a variable that nothing binds."""
        return suggest_name(f"${name}", (f"${known}" for known in self.bound))

    def property_type(self, ref: ast.PropRef, code: str = "T6") -> tuple[Bound, ValueType]:
        """The variable and type behind `$x.p`, nullable when the variable is optional."""
        if self.find_path(ref.var) is not None:
            raise_fault("T36", f"path `${ref.var}` has no properties", ref.at, PATH_VALUES)
        bound = self.find(ref.var) if ref.var != ANONYMOUS else None
        if bound is None:
            raise_fault(code, f"variable `${ref.var}` is not bound", ref.at, self.suggest_variable(ref.var))
        types = self.catalog.nodes if bound.kind == "node" else self.catalog.edges
        declared = types[bound.type_name].properties.get(ref.name)
        if declared is None:
            owner = "type" if bound.kind == "node" else "edge"
            names = ", ".join(types[bound.type_name].properties)
            raise_fault(
                code,
                f"{owner} `{bound.type_name}` has no property `{ref.name}`",
                ref.at,
                help=f"it has: {names}" if names else "it has no properties",
            )
        return bound, declared.type.with_nullable() if bound.optional else declared.type
