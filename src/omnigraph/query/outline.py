"""What the parts of a plan say by themselves, before any value or row: found once, used by every run."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from omnigraph.lang.query import plan as p

Part = TypeVar("Part", bound=p.Plan)
Told = TypeVar("Told")


class Outline:
    """What was found out about the parts of one plan; threads may share it.

    A part is known by its place in memory: comparing plans would take longer than looking at them. So the
    parts that were asked about are kept.
    """

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[p.Plan, Any]] = {}

    def of(self, tell: Callable[[Part], Told], part: Part) -> Told:
        """What `tell` says of a part; it is asked once."""
        key = (tell, id(part))
        found = self._told.get(key)
        if found is None:
            found = self._told[key] = (part, tell(part))
        told: Told = found[1]
        return told
