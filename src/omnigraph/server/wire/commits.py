"""Commits."""

from __future__ import annotations

import msgspec

from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.server.wire.base import Wire


class CommitOutput(Wire, frozen=True, kw_only=True):
    """A commit; the branch is null on main, and `created_at` is in microseconds since 1970.

    `operation` is what made it, such as `load` or `merge`, where that is known.
    """

    graph_commit_id: str
    graph_branch: str | None
    manifest_branch: str | None
    graph_manifest_version: int
    manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str | None = None
    operation: str | None = None

    @classmethod
    def of(cls, commit: Commit) -> CommitOutput:
        """Return the body of a commit."""
        branch = None if commit.branch == MAIN else commit.branch
        return cls(
            graph_commit_id=commit.id,
            graph_branch=branch,
            manifest_branch=branch,
            graph_manifest_version=commit.version,
            manifest_version=commit.version,
            parent_commit_id=commit.parent,
            merged_parent_commit_id=commit.merged_parent,
            actor_id=commit.actor,
            created_at=commit.created_at,
            message=commit.message,
            operation=commit.operation,
        )

    @classmethod
    def of_optional(cls, commit: Commit | None) -> CommitOutput | None:
        """Return the body of a commit, if there is one."""
        return None if commit is None else cls.of(commit)


class ChangeCountsOutput(Wire, frozen=True, kw_only=True):
    """How many entities of a type came, changed and went."""

    inserted: int
    updated: int
    deleted: int


class LogEntryOutput(Wire, frozen=True, kw_only=True):
    """A commit in a log; `changes` are counts by type, and null where they are unknown or not asked for."""

    commit: CommitOutput
    changes: dict[str, ChangeCountsOutput] | None
    upkeep: bool
    branches: list[str]
    tags: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, entry: LogEntry) -> LogEntryOutput:
        """Return the body of an entry."""
        counts = entry.changes
        return cls(
            commit=CommitOutput.of(entry.commit),
            changes=None
            if counts is None
            else {key: ChangeCountsOutput(**one.to_json()) for key, one in counts.items()},
            upkeep=entry.is_upkeep,
            branches=list(entry.branches),
            tags=list(entry.tags),
        )


class LogOutput(Wire, frozen=True, kw_only=True):
    """The newest commits."""

    commits: list[LogEntryOutput]


class CommitListOutput(Wire, frozen=True, kw_only=True):
    """The history of a branch, newest first."""

    commits: list[CommitOutput]
