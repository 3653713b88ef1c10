"""Branches and merges."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omnigraph.engine.merge.result import MergeResult
from omnigraph.server.wire.base import Sparse, Wire
from omnigraph.server.wire.commits import ChangeCountsOutput, CommitOutput


class BranchListOutput(Wire, frozen=True, kw_only=True):
    """The names of all branches, in order."""

    branches: list[str]


class BranchCreateRequest(Wire, frozen=True, kw_only=True):
    """A new branch, and where it begins: a branch, commit, tag or time; main if not given."""

    name: str
    from_: str | None = msgspec.field(default=None, name="from")


class BranchCreateOutput(Wire, frozen=True, kw_only=True):
    """The branch that was created."""

    uri: str
    from_: str = msgspec.field(name="from")
    name: str
    actor_id: str | None


class BranchDeleteOutput(Wire, frozen=True, kw_only=True):
    """The branch that was deleted."""

    uri: str
    name: str
    actor_id: str | None


class BranchMergeRequest(Wire, frozen=True, kw_only=True):
    """The branch to take in, and the one that gets its changes.

    `strategy`, `resolutions`, `granularity` and `message` are those of the library's `Graph.merge`.
    """

    source: str
    target: str | None = None
    delete_branch: bool = False
    strategy: Literal["ours", "theirs"] | dict[str, Literal["ours", "theirs"]] | None = None
    resolutions: dict[str, Any] | None = None
    granularity: Literal["row", "property"] | None = None
    message: str | None = None


class ReplayRequest(Wire, frozen=True, kw_only=True):
    """A commit to revert or to take in, and the branch that gets the new commit.

    `strategy`, `granularity` and `message` are those of the library's `Graph.revert`.
    """

    commit: str
    branch: str | None = None
    strategy: Literal["ours", "theirs"] | dict[str, Literal["ours", "theirs"]] | None = None
    granularity: Literal["row", "property"] | None = None
    message: str | None = None


class ResetRequest(Wire, frozen=True, kw_only=True):
    """The commit whose content a branch gets."""

    to: str
    branch: str | None = None
    message: str | None = None


class BranchMergeOutput(Sparse, frozen=True, kw_only=True):
    """What a merge did; the members about deletion are there when it was asked for."""

    source: str
    target: str
    outcome: str
    actor_id: str | None
    graph_commit_id: str | None
    resolved: int
    changes: dict[str, ChangeCountsOutput]
    commit: CommitOutput | None
    by_branch: dict[str, dict[str, ChangeCountsOutput]]
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    given_up: list[dict[str, Any]] = msgspec.field(default_factory=list)
    given_up_count: int = 0


def merge_output(
    done: MergeResult, actor: str | None, *, deleted: bool | None = None, problem: str | None = None
) -> BranchMergeOutput:
    """Return the body of a merge's result."""
    return BranchMergeOutput(
        source=done.source,
        target=done.target,
        outcome=done.outcome.value,
        actor_id=actor,
        graph_commit_id=done.commit.id if done.commit else None,
        resolved=done.resolved,
        changes={
            key: ChangeCountsOutput(inserted=stat.inserted, updated=stat.updated, deleted=stat.deleted)
            for key, stat in done.changes.items()
        },
        commit=CommitOutput.of_optional(done.commit),
        branch_deleted=deleted,
        branch_delete_error=problem,
        given_up=[one.to_json() for one in done.given_up],
        given_up_count=done.given_up_count,
        by_branch={
            key: {side: ChangeCountsOutput(**counts) for side, counts in one.to_json().items()}
            for key, one in done.by_branch.items()
        },
    )
