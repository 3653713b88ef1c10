"""Which columns of its variables a plan needs, and which searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import (
    Distance,
    EntityId,
    Fusion,
    Part,
    PathPart,
    Prop,
    Relevance,
    ShortestPath,
    TextMatch,
    children,
)
from omnigraph.pipeline.query.scope import Search


def properties_of(plan: p.Plan) -> dict[str, set[str]]:
    """The properties of each variable that expressions anywhere in a plan look at."""
    found: dict[str, set[str]] = {}
    for part in _parts_within(p.expressions(plan)):
        if isinstance(part, Prop):
            found.setdefault(part.var, set()).add(part.name)
    return found


def searches_in(parts: Iterable[Part]) -> list[Search]:
    """The searches whose values expressions need."""
    found = (part for part in _parts_within(parts) if isinstance(part, Distance | Relevance | TextMatch))
    return list(dict.fromkeys(found))


def paths_of(plan: p.Plan) -> frozenset[ShortestPath]:
    """The paths of which something is asked anywhere in a plan."""
    found = (part for part in _parts_within(p.expressions(plan)) if isinstance(part, PathPart))
    return frozenset(part.path for part in found)


def variables_of(plan: p.Plan) -> set[str]:
    """The variables that a plan looks at or walks from, wherever they are bound."""
    found = {var for part in _parts_within(p.expressions(plan)) for var in _seen(part)}
    for below in p.plans_within(plan):
        if isinstance(below, p.Expand):
            found |= {below.source, below.target}
    return found


def outer_variables(block: p.Plan) -> set[str]:
    """The variables around a block that it may look at; what it calls the same is another variable else."""
    if isinstance(block, p.Outer):
        return set(block.variables)
    found = (outer_variables(below) for role, below in p.inputs(block) if role != "block")
    return set().union(*found)


def _seen(part: Part) -> Iterator[str]:
    match part:
        case Prop(var=var) | EntityId(var=var):
            yield var
        case Distance(target=searched) | Relevance(field=searched) | TextMatch(field=searched):
            yield searched.var


def _parts_within(parts: Iterable[Part]) -> Iterator[Part]:
    """All parts of expressions; a search brings its values along, so its property is none of them."""
    for part in parts:
        yield part
        if not isinstance(part, Distance | Relevance | Fusion | TextMatch):
            yield from _parts_within(children(part))
