"""Facts that follow from a plan alone, without values or rows: derived once and used by every run."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from omnigraph.lang.query import plan as p

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
