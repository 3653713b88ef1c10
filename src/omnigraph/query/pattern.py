"""What a plan matches, apart from the order the plan does it in.

Clauses are a conjunction of relations: an edge of a single hop relates its two ends the same way from
either side. A pattern holds the walks and tests of a stretch of plan so that they can be carried out
from the end where there is least to do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from omnigraph.engine.layout import table_key
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Predicate, variables
from omnigraph.query.keyed import KeyTest, key_tests

Found = TypeVar("Found")


@dataclass(frozen=True)
class Pattern:
    """Walks and tests over what `base` gives; in the order of the plan, innermost first.

    What is found out about it is kept: a pattern is that of a plan, which is run again and again.
    """

    base: p.Plan
    walks: tuple[p.Expand, ...]
    tests: tuple[Predicate, ...]

    @cached_property
    def is_free(self) -> bool:
        """Whether the match may start at any of its variables.

        A walk of two hops or more at least depends on the side it starts from: a self-loop on the way
        counts at the hop it is met.
        """
        return isinstance(self.base, p.Scan) and all(walk.minimum == 1 for walk in self.walks)

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The variables at both ends of every walk."""
        return tuple(end for step in self.walks for end in (step.source, step.target))

    @cached_property
    def _met(self) -> dict[int, frozenset[str]]:
        return {id(test): variables(test) for test in self.tests}

    def met(self, test: Predicate) -> frozenset[str]:
        """The variables that one of its tests is about."""
        return self._met[id(test)]

    @cached_property
    def _own(self) -> dict[str, tuple[Predicate, ...]]:
        own: dict[str, tuple[Predicate, ...]] = {}
        for test in self.tests:
            if len(self.met(test)) == 1:
                (var,) = self.met(test)
                own[var] = (*own.get(var, ()), test)
        return own

    def own_tests(self, var: str) -> tuple[Predicate, ...]:
        """The tests of one variable alone."""
        return self._own.get(var, ())

    def key_tests(self, var: str, key: tuple[str, ...]) -> tuple[KeyTest, ...]:
        """Those of them that may name a node by its key."""
        return self.once(("key", var, key), lambda: key_tests(self.own_tests(var), var, key))

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What follows from the pattern and from what the key names; it is found once."""
        known: Found | None = self._kept.get(key)
        if known is None:
            known = self._kept[key] = find()
        return known


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
