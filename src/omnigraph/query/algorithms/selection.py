"""Which nodes and edges of a graph an algorithm looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.values import shorten_legibly

TypeNames = str | Sequence[str]
Declared = TypeVar("Declared")


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a graph that counts, each kind by name."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]


def selection_of(catalog: Catalog, nodes: TypeNames | None, edges: TypeNames | None) -> Selection:
    """The types that are named.

    Without nodes they are those at the ends of the edges, or all of them; without edges they are all that
    join two of the nodes.
    """
    chosen = None if edges is None else [_edge(catalog, name) for name in _listed(edges)]
    if nodes is not None:
        names = {_node(catalog, name) for name in _listed(nodes)}
    elif chosen is not None:
        names = {end for edge in chosen for end in (edge.source, edge.target)}
    else:
        names = set(catalog.nodes)
    if chosen is None:
        chosen = [edge for edge in catalog.edges.values() if {edge.source, edge.target} <= names]
    for edge in chosen:
        _require_ends(edge, names)
    by_name = {edge.name: edge for edge in chosen}
    return Selection(tuple(sorted(names)), tuple(by_name[name] for name in sorted(by_name)))


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


def _listed(names: TypeNames) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _node(catalog: Catalog, name: str) -> str:
    if name in catalog.nodes:
        return name
    kind = "an edge type, not a node type" if name in catalog.edges else "not a node type"
    raise BadRequest(f"'{shorten_legibly(name)}' is {kind}", remedy=_choices(catalog.nodes))


def _edge(catalog: Catalog, name: str) -> EdgeType:
    found = catalog.find_edge(name)
    if found is not None:
        return found
    kind = "a node type, not an edge type" if name in catalog.nodes else "not an edge type"
    raise BadRequest(f"'{shorten_legibly(name)}' is {kind}", remedy=_choices(catalog.edges))


def _choices(known: Mapping[str, Declared]) -> str:
    return f"it may be: {', '.join(sorted(known))}" if known else "the schema has none"


def _require_ends(edge: EdgeType, nodes: set[str]) -> None:
    for end in (edge.source, edge.target):
        if end not in nodes:
            raise BadRequest(
                f"edges '{edge.name}' have '{end}' at an end, which is not among the nodes",
                remedy=f"add '{end}', or leave the node types out",
            )
