"""The log of a graph: commits, newest first, with what each of them changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.engine.changes.change import ChangeCounts, ChangeFilter
from omnigraph.engine.changes.feed import BranchHistory
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.lineage import Commit, newest_first, sort_children_first
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import BranchNotFound, ChangeDiffRefused, HistoricalVersionReclaimed


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit in a log."""

    commit: Commit
    changes: Mapping[str, ChangeCounts] | None = field(default=None, hash=False)
    """How many entities of each type it changed against its first parent, by `node:Name` and `edge:Name`.

    None when that is unknown: for the first commit, for a change of the schema, after a cleanup, for commits
    of deleted branches, and when it was not asked for.
    """
    branches: tuple[str, ...] = ()
    """The branches, among those that were read, whose newest commit it is."""

    @property
    def is_upkeep(self) -> bool:
        """Whether it changed no entity: compaction, indexes, recovery."""
        known = self.commit
        is_silent = self.changes is not None and not self.changes and known.merged_parent is None
        return known.is_upkeep or (is_silent and known.operation is None)

    def to_json(self) -> dict[str, Any]:
        """Return what a log adds to the commit, as scripts read it."""
        counts = self.changes
        return {
            "changes": None if counts is None else {key: one.to_json() for key, one in counts.items()},
            "upkeep": self.is_upkeep,
            "branches": list(self.branches),
        }


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which commits a log has."""

    branches: tuple[str, ...]
    """One branch, with the commits it shows; or several, with all their ancestors."""
    actor: str | None = None
    limit: int | None = DEFAULT_ENTRIES
    stat: bool = True
    """Whether changes are counted."""


def read_log(graph: OpenGraph, request: LogRequest) -> list[LogEntry]:
    """Return the commits, newest first; of several branches every commit comes before its parents."""
    states = _load_states(graph, request.branches)
    if len(request.branches) == 1:
        commits = newest_first(next(iter(states.values())).commits.values())
    else:
        commits = sort_children_first(Ancestry(states).commits)
    wanted = [one for one in commits if request.actor in (None, one.actor)][: request.limit]
    heads = {branch: state.head.id for branch, state in states.items() if state.head is not None}
    counted = _CommitCounts(graph, states).count_all(wanted) if request.stat else {}
    return [
        LogEntry(one, counted.get(one.id), tuple(name for name, head in heads.items() if head == one.id))
        for one in wanted
    ]


def _load_states(graph: OpenGraph, branches: Sequence[str]) -> dict[str, ManifestState]:
    if len(branches) == 1:
        return {branches[0]: graph.load(branches[0]).state}
    found = {}
    for branch in branches:
        try:
            found[branch] = graph.load(branch).state
        except BranchNotFound:
            continue  # deleted since it was listed
    return found


class _CommitCounts:
    """Counts what commits changed."""

    def __init__(self, graph: OpenGraph, states: Mapping[str, ManifestState]) -> None:
        self._graph = graph
        self._states = states
        self._histories: dict[str, BranchHistory] = {}

    def count_all(self, commits: Iterable[Commit]) -> dict[str, Mapping[str, ChangeCounts]]:
        """Return the counts that are known, by commit."""
        # Oldest first, because a commit and its child share a snapshot.
        found = {one.id: self._count(one) for one in reversed(list(commits))}
        return {name: counts for name, counts in found.items() if counts is not None}

    def _count(self, commit: Commit) -> Mapping[str, ChangeCounts] | None:
        branch = next((name for name, state in self._states.items() if commit.id in state.commits), None)
        if branch is None:
            return None
        try:
            if branch not in self._histories:
                self._histories[branch] = BranchHistory(self._graph, branch, ChangeFilter())
            return self._histories[branch].changes(commit, feed=False).stats()
        except (ChangeDiffRefused, HistoricalVersionReclaimed, BranchNotFound):
            return None
