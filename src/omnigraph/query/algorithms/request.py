"""What is asked of an algorithm besides its own numbers: which part of the graph, when, and what then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from omnigraph.engine.branches import branch_name
from omnigraph.engine.load.engines import EngineName
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import AtBranch, Target
from omnigraph.engine.targets import read_target
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import FLOATS, INTEGERS, Type
from omnigraph.lang.values import legible
from omnigraph.query.algorithms.selection import Names


class How(TypedDict, total=False):
    """What every algorithm takes: types of nodes and edges, the moment, and where to write the values."""

    nodes: Names | None
    edges: Names | None
    branch: str | None
    commit: str | None
    version: int | None
    time: datetime | str | None
    write_to: str | None
    onto: str | None
    from_: str | None
    actor: str | None
    engine: EngineName


@dataclass(frozen=True, slots=True)
class Destination:
    """A property that is to get the values, on a branch."""

    type: str
    property: str
    branch: str
    from_: str | None
    """The branch that a missing one is made from."""
    actor: str | None


@dataclass(frozen=True, slots=True)
class AlgorithmRequest:
    """The same, as values."""

    nodes: Names | None = None
    edges: Names | None = None
    branch: str | None = None
    commit: str | None = None
    version: int | None = None
    time: datetime | str | None = None
    write_to: str | None = None
    onto: str | None = None
    from_: str | None = None
    actor: str | None = None
    engine: EngineName = "auto"

    @property
    def target(self) -> Target:
        """The moment that is looked at."""
        return read_target(self.commit, self.version, self.time, self.branch)

    def destination(self, catalog: Catalog, found: Type) -> Destination | None:
        """Where the values go, if anywhere; `found` is their type."""
        if self.write_to is None:
            if self.onto is not None or self.from_ is not None:
                raise BadRequest(
                    "a branch to write to needs a property", remedy='name it, as in `write_to="Person.rank"`'
                )
            return None
        type_name, dot, name = self.write_to.partition(".")
        if not dot or not type_name or not name:
            raise BadRequest(
                f"'{legible(self.write_to)}' is not a property of a type",
                remedy="write it as TYPE.PROPERTY, such as Person.rank",
            )
        _require_property(catalog, type_name, name, found)
        return Destination(type_name, name, self._branch(), self.from_, self.actor)

    def _branch(self) -> str:
        if self.onto is not None:
            return branch_name(self.onto)
        if not isinstance(self.target, AtBranch):
            raise BadRequest(
                "what a past moment tells is written to a branch of today",
                remedy="name the branch with `onto` (--onto)",
            )
        return branch_name(MAIN if self.branch is None else self.branch)


def _require_property(catalog: Catalog, type_name: str, name: str, found: Type) -> None:
    owner = catalog.nodes.get(type_name)
    if owner is None:
        raise BadRequest(
            f"there is no node type '{legible(type_name)}' to write to",
            remedy=f"it may be: {', '.join(sorted(catalog.nodes))}",
        )
    declared = owner.properties.get(name)
    fitting = sorted(
        each.name
        for each in owner.properties.values()
        if each.name not in owner.key and _takes(each.type, found)
    )
    remedy = (
        f"it may be: {', '.join(fitting)}" if fitting else f"add a property like `{name}: {found.scalar}?`"
    )
    if declared is None:
        raise BadRequest(f"'{type_name}' has no property '{legible(name)}'", remedy=remedy)
    if name in owner.key:
        raise BadRequest(f"'{name}' is the key of '{type_name}' and tells nodes apart", remedy=remedy)
    if not _takes(declared.type, found):
        raise BadRequest(
            f"'{type_name}.{name}' is {declared.type} and cannot hold values of type {found}", remedy=remedy
        )


def _takes(declared: Type, found: Type) -> bool:
    """Whether a property can hold the values: with a fraction where they have one, null where any is."""
    if not declared.is_numeric or (found.nullable and not declared.nullable):
        return False
    return declared.scalar in FLOATS or found.scalar in INTEGERS
