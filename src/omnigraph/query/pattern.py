"""What a plan matches, independent of the order of its steps.

Clauses are a conjunction of relations: an edge of a single hop relates its two ends the same way from
either side. A pattern holds the walks and tests of a part of the plan, so that the matcher can start from the
end with the least work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Predicate, variables
from omnigraph.query.key_lookup import KeyTest, find_key_tests

Found = TypeVar("Found")


@dataclass(frozen=True)
class Pattern:
    """Walks and tests over the rows of `base`; in the order of the plan, innermost first.

    It caches what is derived from it, because a plan runs many times.
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
    def _variables_by_test(self) -> dict[int, frozenset[str]]:
        return {id(test): variables(test) for test in self.tests}

    def variables_of(self, test: Predicate) -> frozenset[str]:
        """Return the variables that one of its tests reads."""
        return self._variables_by_test[id(test)]

    @cached_property
    def _own(self) -> dict[str, tuple[Predicate, ...]]:
        own: dict[str, tuple[Predicate, ...]] = {}
        for test in self.tests:
            if len(self.variables_of(test)) == 1:
                (var,) = self.variables_of(test)
                own[var] = (*own.get(var, ()), test)
        return own

    def own_tests(self, var: str) -> tuple[Predicate, ...]:
        """Return the tests of one variable alone."""
        return self._own.get(var, ())

    def find_key_tests(self, var: str, key: tuple[str, ...]) -> tuple[KeyTest, ...]:
        """Return the tests of one variable that may name a node by its key."""
        return self.once(("key", var, key), lambda: find_key_tests(self.own_tests(var), var, key))

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Return what `find` returns; it is called once for each key."""
        known: Found | None = self._kept.get(key)
        if known is None:
            known = self._kept[key] = find()
        return known


def find_pattern(plan: p.Plan) -> Pattern:
    """Return the walks and tests on top of a plan as a pattern."""
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


def find_tables(plan: p.Plan) -> dict[str, str]:
    """Return the table of each variable that a plan binds; those of negated blocks stay inside."""
    return dict(_find_tables(plan))


def _find_tables(plan: p.Plan) -> Iterator[tuple[str, str]]:
    match plan:
        case p.Scan(var=var, type_name=type_name):
            yield var, table_key("node", type_name)
        case p.Expand(target=target, target_type=target_type, edge_var=edge_var, edge_type=edge_type):
            yield target, table_key("node", target_type)
            if edge_var is not None:
                yield edge_var, table_key("edge", edge_type)
    for role, below in p.inputs(plan):
        if not (role == "block" and isinstance(plan, p.AntiJoin)):
            yield from _find_tables(below)


Part = TypeVar("Part", bound=p.Plan)
Fact = TypeVar("Fact")


class PlanFacts:
    """A memo of facts about the parts of one plan; safe to share between threads.

    A part is identified by its address, because comparing plans takes longer than deriving a fact. So the
    memo keeps its parts alive.
    """

    def __init__(self) -> None:
        self._facts: dict[Hashable, tuple[p.Plan, Any]] = {}

    def get(self, derive: Callable[[Part], Fact], part: Part) -> Fact:
        """Return what `derive` makes of a part; it is called once for each part."""
        key = (derive, id(part))
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = (part, derive(part))
        fact: Fact = found[1]
        return fact
