"""What an algorithm is asked: which nodes and edges, of which moment, and where to write the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, TypedDict, TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit, require_actor, require_message
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, ReadTarget
from omnigraph.engine.graph.targets import parse_target
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.types import FLOATS, INTEGERS, ValueType
from omnigraph.lang.values import shorten_legibly
from omnigraph.query.expressions.pushdown import compile_filter
from omnigraph.query.result import Result

TypeNames = str | Sequence[str]
RowFilters = Mapping[str, str | Sequence[str]]
"""Comparisons by type, as after `where` in a mutation: `{"Person": "age >= 30"}`."""
Declared = TypeVar("Declared")


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a graph that counts, each kind by name."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table key, the comparisons that its rows must pass."""


def selection_of(
    catalog: Catalog, nodes: TypeNames | None, edges: TypeNames | None, where: RowFilters | None = None
) -> Selection:
    """The types that are named.

    Without nodes they are those at the ends of the edges, or all of them; without edges they are all that
    join two of the nodes. `where` has comparisons by type.
    """
    chosen = None if edges is None else [_require_edge_type(catalog, name) for name in _to_list(edges)]
    if nodes is not None:
        names = {_require_node_type(catalog, name) for name in _to_list(nodes)}
    elif chosen is not None:
        names = {end for edge in chosen for end in (edge.source, edge.target)}
    else:
        names = set(catalog.nodes)
    if chosen is None:
        chosen = [edge for edge in catalog.edges.values() if {edge.source, edge.target} <= names]
    for edge in chosen:
        _require_ends(edge, names)
    by_name = {edge.name: edge for edge in chosen}
    found = Selection(tuple(sorted(names)), tuple(by_name[name] for name in sorted(by_name)))
    return found if not where else replace(found, where=_check_filters(catalog, found, where))


def _check_filters(catalog: Catalog, selection: Selection, where: RowFilters) -> dict[str, tuple[str, ...]]:
    """The comparisons by table key; each is compiled once, so that mistakes are reported before the work."""
    if not isinstance(where, Mapping):
        raise BadRequest(
            f"where must be a mapping of types to comparisons, got {where!r}",
            remedy='write it as in `where={"Knows": "since > 2020"}`',
        )
    found = {}
    for name, given in where.items():
        key = _find_key(selection, name)
        found[key] = tuple(given.splitlines() if isinstance(given, str) else given)
        compile_filter(catalog, key, found[key])
    return found


def _find_key(selection: Selection, name: str) -> str:
    nodes = [table_key("node", each) for each in selection.nodes]
    edges = [table_key("edge", each.name) for each in selection.edges]
    found = [key for key in (*nodes, *edges) if name in (key, key.partition(":")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(f"'{name}' is a node type and an edge type", remedy=f"name {found[0]} or {found[1]}")
    raise BadRequest(
        f"'{shorten_legibly(name)}' is none of the types that are looked at",
        remedy=f"filter one of: {', '.join(key.partition(':')[2] for key in (*nodes, *edges))}",
    )


def require_weight(edges: Iterable[EdgeType], name: str) -> None:
    """Refuse a weight that is not a number of every edge."""
    for edge in edges:
        declared = edge.properties.get(name)
        if declared is None:
            numbers = [each.name for each in edge.properties.values() if each.type.is_numeric]
            raise BadRequest(
                f"edge type '{edge.name}' has no property '{shorten_legibly(name)}' to weigh its edges by",
                remedy=f"it has: {', '.join(numbers)}" if numbers else "choose other edges, or no weight",
            )
        if not declared.type.is_numeric:
            raise BadRequest(
                f"property '{name}' of edge type '{edge.name}' is {declared.type}; a weight is a number",
                remedy="choose a property with numbers, or no weight",
            )


def _to_list(names: TypeNames) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _require_node_type(catalog: Catalog, name: str) -> str:
    if name in catalog.nodes:
        return name
    kind = "an edge type, not a node type" if name in catalog.edges else "not a node type"
    raise BadRequest(f"'{shorten_legibly(name)}' is {kind}", remedy=_describe_choices(catalog.nodes))


def _require_edge_type(catalog: Catalog, name: str) -> EdgeType:
    found = catalog.find_edge(name)
    if found is not None:
        return found
    kind = "a node type, not an edge type" if name in catalog.nodes else "not an edge type"
    raise BadRequest(f"'{shorten_legibly(name)}' is {kind}", remedy=_describe_choices(catalog.edges))


def _describe_choices(known: Mapping[str, Declared]) -> str:
    return f"it may be: {', '.join(sorted(known))}" if known else "the schema has none"


def _require_ends(edge: EdgeType, nodes: set[str]) -> None:
    for end in (edge.source, edge.target):
        if end not in nodes:
            raise BadRequest(
                f"edges '{edge.name}' have '{end}' at an end, which is not among the nodes",
                remedy=f"add '{end}', or leave the node types out",
            )


class AlgorithmOptions(TypedDict, total=False):
    """What every algorithm takes: types of nodes and edges, the moment, and where to write the values."""

    nodes: TypeNames | None
    edges: TypeNames | None
    where: RowFilters | None
    branch: str | None
    commit: str | None
    version: int | None
    time: datetime | str | None
    write_to: str | None
    onto: str | None
    from_: str | None
    actor: str | None
    message: str | None
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
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlgorithmRequest:
    """The same, as values."""

    nodes: TypeNames | None = None
    edges: TypeNames | None = None
    where: RowFilters | None = None
    branch: str | None = None
    commit: str | None = None
    version: int | None = None
    time: datetime | str | None = None
    write_to: str | None = None
    onto: str | None = None
    from_: str | None = None
    actor: str | None = None
    message: str | None = None
    engine: EngineName = "auto"

    def __post_init__(self) -> None:
        if self.actor is not None:
            require_actor(self.actor)
        if self.message is not None:
            require_message(self.message)

    @property
    def target(self) -> ReadTarget:
        """The moment that is looked at."""
        return parse_target(self.commit, self.version, self.time, self.branch)

    def destination(self, catalog: Catalog, found: ValueType) -> Destination | None:
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
                f"'{shorten_legibly(self.write_to)}' is not a property of a type",
                remedy="write it as TYPE.PROPERTY, such as Person.rank",
            )
        _require_property(catalog, type_name, name, found)
        return Destination(type_name, name, self._destination_branch(), self.from_, self.actor, self.message)

    def _destination_branch(self) -> str:
        if self.onto is not None:
            return parse_branch_name(self.onto)
        if not isinstance(self.target, AtBranch):
            raise BadRequest(
                "what a past moment tells is written to a branch of today",
                remedy="name the branch with `onto` (--onto)",
            )
        return parse_branch_name(MAIN if self.branch is None else self.branch)


def _require_property(catalog: Catalog, type_name: str, name: str, found: ValueType) -> None:
    owner = catalog.nodes.get(type_name)
    if owner is None:
        raise BadRequest(
            f"there is no node type '{shorten_legibly(type_name)}' to write to",
            remedy=f"it may be: {', '.join(sorted(catalog.nodes))}",
        )
    declared = owner.properties.get(name)
    fitting = sorted(
        each.name
        for each in owner.properties.values()
        if each.name not in owner.key and _can_hold(each.type, found)
    )
    remedy = (
        f"it may be: {', '.join(fitting)}" if fitting else f"add a property like `{name}: {found.scalar}?`"
    )
    if declared is None:
        raise BadRequest(f"'{type_name}' has no property '{shorten_legibly(name)}'", remedy=remedy)
    if name in owner.key:
        raise BadRequest(f"'{name}' is the key of '{type_name}' and tells nodes apart", remedy=remedy)
    if not _can_hold(declared.type, found):
        raise BadRequest(
            f"'{type_name}.{name}' is {declared.type} and cannot hold values of type {found}", remedy=remedy
        )


def _can_hold(declared: ValueType, found: ValueType) -> bool:
    """Whether a property can hold the values: with a fraction where they have one, null where any is."""
    if not declared.is_numeric or (found.nullable and not declared.nullable):
        return False
    return declared.scalar in FLOATS or found.scalar in INTEGERS


@dataclass(frozen=True, slots=True)
class WrittenProperty:
    """Values that were written to a property."""

    type: str
    property: str
    branch: str
    rows: int
    """How many nodes got another value than they had."""
    commit: Commit | None
    """None when all of them had their values already."""
    branch_created: bool = False


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AlgorithmResult(Result):
    """A value for each node, ordered by type and id: the columns `id`, `type` and `value`."""

    rounds: int = 0
    """How often all edges were looked at."""
    converged: bool = True
    """Whether another round would have changed nothing, or less than what counts."""
    engine: str = "local"
    why: str = ""
    """Why that engine."""
    written: WrittenProperty | None = None
    """The write that was asked for with `write_to`."""

    def about(self) -> dict[str, Any]:
        """What was asked, of what, and how it went."""
        # Not `super()`: a class with slots is made twice, and that would mean the first.
        return {
            **Result.about(self),
            "rounds": self.rounds,
            "converged": self.converged,
            "engine": self.engine,
        }
