"""What a plan matches, apart from the order the plan does it in.

Clauses are a conjunction of relations: an edge of a single hop relates its two ends the same way from
either side. A pattern holds the walks and tests of a stretch of plan so that they can be carried out
from the end where there is least to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.engine.layout import table_key
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Predicate, variables


@dataclass(frozen=True, slots=True)
class Pattern:
    """Walks and tests over what `base` gives; in the order of the plan, innermost first."""

    base: p.Plan
    walks: tuple[p.Expand, ...]
    tests: tuple[Predicate, ...]

    @property
    def is_free(self) -> bool:
        """Whether the match may start at any of its variables.

        A walk of two hops or more at least depends on the side it starts from: a self-loop on the way
        counts at the hop it is met.
        """
        return isinstance(self.base, p.Scan) and all(walk.minimum == 1 for walk in self.walks)

    def own_tests(self, var: str) -> tuple[Predicate, ...]:
        """The tests of one variable alone."""
        return tuple(test for test in self.tests if variables(test) == {var})


def pattern_of(plan: p.Plan) -> Pattern:
    """The stretch of walks and tests on top of a plan."""
    walks: list[p.Expand] = []
    tests: list[Predicate] = []
    while isinstance(plan, p.Expand | p.Filter):
        if isinstance(plan, p.Expand):
            walks.append(plan)
        else:
            tests.extend(plan.where)
        plan = plan.input
    if isinstance(plan, p.Scan):
        tests.extend(plan.where)
    return Pattern(plan, tuple(reversed(walks)), tuple(tests))


def tables_of(plan: p.Plan) -> dict[str, str]:
    """The table of each variable that a plan binds; what a negated block binds stays inside of it."""
    return dict(_tables(plan))


def _tables(plan: p.Plan) -> Iterator[tuple[str, str]]:
    match plan:
        case p.Scan(var=var, type_name=type_name):
            yield var, table_key("node", type_name)
        case p.Expand(target=target, target_type=target_type, edge_var=edge_var, edge_type=edge_type):
            yield target, table_key("node", target_type)
            if edge_var is not None:
                yield edge_var, table_key("edge", edge_type)
    for role, below in p.inputs(plan):
        if not (role == "block" and isinstance(plan, p.AntiJoin)):
            yield from _tables(below)
