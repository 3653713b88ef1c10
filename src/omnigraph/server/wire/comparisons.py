"""Differences, explanations and previews of merges."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omnigraph.server.wire.base import Wire
from omnigraph.server.wire.changes import EntityChange
from omnigraph.server.wire.commits import ChangeCountsOutput
from omnigraph.server.wire.error_output import MergeConflictOutput


class DiffRequest(Wire, frozen=True, kw_only=True):
    """Two moments, each a branch, a commit, a time, BRANCH@TIME or BRANCH@vVERSION.

    `stat` leaves the changes out and only counts them.
    """

    from_: str = msgspec.field(name="from")
    to: str
    types: list[str] = msgspec.field(default_factory=list)
    kinds: list[Literal["node", "edge"]] = msgspec.field(default_factory=list)
    ops: list[Literal["insert", "update", "delete"]] = msgspec.field(default_factory=list)
    stat: bool = False


class DiffMoment(Wire, frozen=True, kw_only=True):
    """A moment that was compared."""

    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str | None


class DiffOutput(Wire, frozen=True, kw_only=True):
    """The changes that lead from one moment to the other."""

    from_: DiffMoment = msgspec.field(name="from")
    to: DiffMoment
    stats: dict[str, ChangeCountsOutput]
    changes: list[EntityChange] | msgspec.UnsetType = msgspec.UNSET


class ExplainStep(Wire, frozen=True, kw_only=True):
    """A step of a query, with its rows and milliseconds; `depth` says which steps it is inside of."""

    step: str
    detail: str
    how: str
    rows: int | None
    milliseconds: float
    depth: int


class ExplainOutput(Wire, frozen=True, kw_only=True):
    """The steps of a query that was run."""

    query_name: str
    steps: list[ExplainStep]
    rows: int
    milliseconds: float


class MergePreviewRequest(Wire, frozen=True, kw_only=True):
    """A merge that is only looked at; the members are those of a merge."""

    source: str
    target: str | None = None
    strategy: Literal["ours", "theirs"] | dict[str, Literal["ours", "theirs"]] | None = None
    resolutions: dict[str, Any] | None = None
    granularity: Literal["row", "property"] | None = None


class MergePreviewOutput(Wire, frozen=True, kw_only=True):
    """What a merge would do; `resolutions` has room for a decision about every conflict.

    `granularity` is by type where the types with conflicts differ.

    `merge_conflicts` are undecided; `met` are all conflicts, decided or not.
    """

    source: str
    target: str
    outcome: str
    granularity: str | dict[str, str]
    resolved: int
    changes: dict[str, ChangeCountsOutput]
    given_up: list[dict[str, Any]]
    given_up_count: int
    by_branch: dict[str, dict[str, ChangeCountsOutput]]
    merge_conflicts: list[MergeConflictOutput]
    met: list[MergeConflictOutput]
    resolutions: dict[str, Any]
