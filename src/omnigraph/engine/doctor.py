"""What is out of order in a graph, found by looking and without touching anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.engine.cleanup.collect import old_versions
from omnigraph.engine.cleanup.needed import needed_versions
from omnigraph.engine.cleanup.policy import Policy
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN, Entry, State
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.drift import judge_drift
from omnigraph.engine.recovery.sweep import Prospect, prospects
from omnigraph.errors import BranchNotFound, StorageFailure
from omnigraph.storage.indexes import IndexCoverage, coverage
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Drift:
    """A table that stands elsewhere than its branch says."""

    key: str
    branch: str
    pinned: int
    head: int
    cause: str
    """What made the versions in between."""


@dataclass(frozen=True, slots=True)
class StrayFork:
    """A fork of a table that no branch shows."""

    key: str
    branch: str
    reason: str


@dataclass(frozen=True, slots=True)
class LastWriter:
    """Who took the lock of a branch last; it may be held still or be free."""

    branch: str
    owner: str
    operation_id: str | None


@dataclass(frozen=True, slots=True)
class Indexed:
    """An index of a table on main, and how far it reaches."""

    key: str
    index: IndexCoverage


@dataclass(frozen=True, slots=True)
class Past:
    """The versions of a table that are stored, and those that only the past needs."""

    key: str
    branch: str
    versions: int
    past: int
    """What a cleanup could remove that keeps one commit of each branch."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What reads keep to be fast; it may be deleted at any time."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that was found."""

    records: tuple[Prospect, ...]
    """Writes on record: under way at this moment, or interrupted."""
    drift: tuple[Drift, ...]
    forks: tuple[StrayFork, ...]
    writers: tuple[LastWriter, ...]
    indexes: tuple[Indexed, ...]
    history: tuple[Past, ...]
    derived: Derived

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend; an index that lags is none."""
        return not (self.records or self.drift or self.forks)


def examine(graph: OpenGraph) -> Health:
    """Look at every branch and table of a graph."""
    records = tuple(prospects(graph))
    branches = _branches(graph)
    states = {branch: loaded.state for branch, loaded in branches.items()}
    return Health(
        records,
        tuple(found for branch, state in states.items() for found in _drift(graph, branch, state, records)),
        tuple(_stray_forks(graph, states)),
        tuple(_writers(graph, states)),
        tuple(_indexes(graph, states[MAIN])),
        tuple(_history(graph, branches)),
        _derived(graph),
    )


def _branches(graph: OpenGraph) -> dict[str, Loaded]:
    branches = {}
    for branch in graph.branch_names():
        # It may be deleted while the others are looked at.
        with suppress(BranchNotFound):
            branches[branch] = graph.load(branch)
    return branches


def _history(graph: OpenGraph, branches: Mapping[str, Loaded]) -> list[Past]:
    """Told by lists alone: how many bytes would go is only known to whoever reads every version."""
    needed = needed_versions(branches, {}, Policy(1, None, 0.0), graph.root.clock())
    try:
        olds = old_versions(graph, branches, needed)
    except StorageFailure:
        return []  # a table that cannot be read is told of as drift
    return [Past(old.key, old.place.branch, old.stored, len(old.versions)) for old in olds]


def _derived(graph: OpenGraph) -> Derived:
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    return Derived(len(sizes), sum(sizes.values()))


def _tip(graph: OpenGraph, entry: Entry) -> Table:
    return graph.root.tables.tip(graph.root.layout.table(entry.path), branch=entry.owner)


def _drift(graph: OpenGraph, branch: str, state: State, records: tuple[Prospect, ...]) -> list[Drift]:
    """Of the tables that are the branch's own; what it inherits is its source's business."""
    recorded = {key for record in records if record.branch == branch for key in record.classes}
    found = []
    for entry in state.entries().values():
        if (entry.owner or MAIN) != branch:
            continue
        tip = _tip(graph, entry)
        if tip.version != entry.version:
            cause = "a write on record" if entry.key in recorded else judge_drift(tip, entry.version).cause
            found.append(Drift(entry.key, branch, entry.version, tip.version, cause))
    return found


def _stray_forks(graph: OpenGraph, states: Mapping[str, State]) -> list[StrayFork]:
    live = graph.branch_names()
    found = []
    for entry in states[MAIN].entries().values():
        for name in graph.root.forks.list(graph.root.layout.table(entry.path)):
            if name not in live:
                found.append(StrayFork(entry.key, name, "its branch is gone"))
            elif name in states and not _shows(states[name], entry.key, name):
                found.append(StrayFork(entry.key, name, "its branch does not show it"))
    return found


def _shows(state: State, key: str, branch: str) -> bool:
    pinned = state.versions.get(key)
    return pinned is not None and pinned.owner == branch


def _writers(graph: OpenGraph, states: Mapping[str, State]) -> list[LastWriter]:
    holders = ((branch, graph.root.locks.last_holder(branch)) for branch in states)
    return [
        LastWriter(branch, str(holder.owner), holder.operation_id)
        for branch, holder in holders
        if holder is not None
    ]


def _indexes(graph: OpenGraph, state: State) -> list[Indexed]:
    root = graph.root
    found = []
    for entry in state.entries().values():
        table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
        found += [Indexed(entry.key, index) for index in coverage(table).values()]
    return found
