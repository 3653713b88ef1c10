"""Files below `__staging/`: those of loads in progress, and of loads that were interrupted.

Nothing shows which of them it is, so an age decides: longer than any load takes, or what the caller says.
"""

from __future__ import annotations

import math

from ulid import ULID

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import OpenGraph

LONGEST_LOAD = 7 * 86_400.0
"""Longer than any load takes; until its commit, its files are all there is of it."""


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """The staged files of a load that is in progress, or was interrupted."""

    load: str
    age: float
    """Seconds since it began."""
    files: int
    bytes: int

    @property
    def removable(self) -> bool:
        """Whether a cleanup removes it without being asked to."""
        return self.age > LONGEST_LOAD


def find_staged_loads(graph: OpenGraph, older_than: float = 0.0) -> list[StagedLoad]:
    """Return the loads that began so many seconds ago or earlier and have staged files, oldest first."""
    now = graph.root.clock() / 1_000_000
    folders = sorted(graph.root.objects.list_folders(graph.root.layout.staging))
    ages = {name: now - _start_time(name) for name in folders}
    return [_measure(graph, name, age) for name, age in ages.items() if age > older_than]


def remove_staged_loads(graph: OpenGraph, loads: list[StagedLoad]) -> None:
    """Remove the files of loads."""
    for one in loads:
        graph.root.objects.delete_prefix(graph.root.layout.staging / one.load)


def _measure(graph: OpenGraph, load: str, age: float) -> StagedLoad:
    sizes = graph.root.objects.list_all(graph.root.layout.staging / load)
    return StagedLoad(load, age, len(sizes), sum(sizes.values()))


def _start_time(load: str) -> float:
    """Return when a load began, in seconds since 1970; infinity for a folder that is not ours."""
    try:
        return ULID.from_str(load).timestamp
    except ValueError:
        return math.inf
