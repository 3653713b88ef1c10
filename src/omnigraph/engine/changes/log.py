"""The log of a graph: commits, newest first, with what each of them changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.engine.changes.change import ChangeCounts, ChangeFilter
from omnigraph.engine.changes.feed import BranchHistory
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.lineage import Commit, newest_first, sort_children_first, walk_first_parents
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.tags import read_tag, survey_tags, tags_by_commit
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
    tags: tuple[str, ...] = ()
    """The tags of the commit."""

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
            "tags": list(self.tags),
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
    tags = tags_by_commit(survey_tags(graph.root).tags)  # doctor reports those that are broken

    def build_entry(one: Commit) -> LogEntry:
        at_head = tuple(name for name, head in heads.items() if head == one.id)
        return LogEntry(one, counted.get(one.id), at_head, tags.get(one.id, ()))

    return list(map(build_entry, wanted))


def _load_states(graph: OpenGraph, branches: Sequence[str]) -> dict[str, ManifestState]:
    if len(branches) == 1:
        return _load_one(graph, branches[0])
    found = {}
    for branch in branches:
        try:
            found[branch] = graph.load(branch).state
        except BranchNotFound:
            continue  # deleted since it was listed
    return found


def _load_one(graph: OpenGraph, named: str) -> dict[str, ManifestState]:
    """Return the state of a branch, or for a tag that of a branch which shows it, without later commits."""
    try:
        return {named: graph.load(named).state}
    except BranchNotFound:
        if read_tag(graph.root, named) is None:
            raise
    branch, commit = graph.find_commit(named)
    state = graph.load(branch).state
    chain = {one.id: one for one in walk_first_parents(state.commits, commit.id)}
    return {branch: replace(state, commits=chain, head=commit if commit == state.head else None)}


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
            return self._histories[branch].changes(commit, feed=False).stat()
        except (ChangeDiffRefused, HistoricalVersionReclaimed, BranchNotFound):
            return None
