"""Where two branches parted, and what a merge of them amounts to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.engine import lineage
from omnigraph.engine.branches import list_branches
from omnigraph.engine.lineage import Commit
from omnigraph.engine.opened import AtVersion, OpenGraph
from omnigraph.engine.snapshot import Snapshot, snapshot_of
from omnigraph.errors import BranchNotFound, InternalError, NoCommonCommit

Histories = dict[str, Mapping[str, Commit]]
"""The commits that branches show, by branch."""

_log = logging.getLogger(__name__)


class MergeOutcome(StrEnum):
    """What a merge came to."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    """The target has all of the source; there is no commit."""
    FAST_FORWARD = "fast_forward"
    """Only the source had changed."""
    MERGED = "merged"
    """Both had changed."""

    @property
    def is_commit(self) -> bool:
        """Whether such a merge makes a commit."""
        return self is not MergeOutcome.ALREADY_UP_TO_DATE


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The branch that is taken in, as it was when the merge began; what it does later is left out."""

    snapshot: Snapshot
    commits: Mapping[str, Commit]

    @property
    def branch(self) -> str:
        """Its name."""
        return self.snapshot.branch


@dataclass(frozen=True, slots=True)
class Parting:
    """The three states that a merge looks at."""

    base: Snapshot
    source: Snapshot
    target: Snapshot
    outcome: MergeOutcome


def captured(graph: OpenGraph, branch: str) -> MergeSource:
    """A branch as it is now."""
    loaded = graph.load(branch)
    return MergeSource(snapshot_of(branch, loaded.state, loaded.identity), loaded.state.commits)


def parting_of(graph: OpenGraph, source: MergeSource, target: Snapshot) -> Parting:
    """Where the source and a state of the target parted."""
    histories = {target.branch: graph.load(target.branch).state.commits, source.branch: source.commits}
    base = common_commit(source, target, histories)
    if source.snapshot.commit is not None and base.id == source.snapshot.commit.id:
        return Parting(source.snapshot, source.snapshot, target, MergeOutcome.ALREADY_UP_TO_DATE)
    if target.commit is not None and base.id == target.commit.id:
        return Parting(target, source.snapshot, target, MergeOutcome.FAST_FORWARD)
    if _has_gaps(histories, base):
        more = {**histories, **_other_histories(graph, histories)}
        nearer = common_commit(source, target, more)
        if nearer.id != base.id:
            return _parting(graph, source, target, nearer, more)
    return _parting(graph, source, target, base, histories)


def _parting(
    graph: OpenGraph, source: MergeSource, target: Snapshot, base: Commit, histories: Histories
) -> Parting:
    outcome = MergeOutcome.MERGED
    if source.snapshot.commit is not None and base.id == source.snapshot.commit.id:
        outcome = MergeOutcome.ALREADY_UP_TO_DATE
    # The commits of a branch that was merged are shown by that branch alone.
    shown_by = next(branch for branch in reversed(histories) if base.id in histories[branch])
    return Parting(graph.snapshot(AtVersion(shown_by, base.version)), source.snapshot, target, outcome)


def common_commit(source: MergeSource, target: Snapshot, histories: Histories) -> Commit:
    """The nearest commit that both branches have, as far as these histories tell."""
    ours, theirs = target.commit, source.snapshot.commit
    known = _together(histories)
    if ours is not None and theirs is not None:
        found = lineage.merge_base(known, ours.id, theirs.id)
        if found is not None:
            return found
    raise NoCommonCommit(source.branch, target.branch)


def _has_gaps(histories: Histories, base: Commit) -> bool:
    """Whether a third branch was merged since the base: what came with it, only that branch can tell."""
    known = _together(histories)
    return any(
        commit.merged_parent is not None
        and commit.merged_parent not in known
        and commit.created_at > base.created_at
        for commit in known.values()
    )


def _other_histories(graph: OpenGraph, known: Histories) -> Histories:
    found: Histories = {}
    for branch in list_branches(graph):
        if branch.name not in known:
            try:
                found[branch.name] = graph.load(branch.name).state.commits
            except (BranchNotFound, InternalError) as error:
                _log.warning("a merge goes on without the history of branch '%s': %s", branch.name, error)
    return found


def _together(histories: Histories) -> dict[str, Commit]:
    return {name: commit for commits in histories.values() for name, commit in commits.items()}
