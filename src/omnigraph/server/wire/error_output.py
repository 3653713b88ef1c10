"""The body of every failure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omnigraph.server.wire.base import Sparse, Wire

ErrorCode = Literal[
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]
"""Closed: a new meaning is a new member of the body, never a new code."""

EntityKind = Literal["node", "edge"]


class MergeConflictOutput(Sparse, frozen=True, kw_only=True):
    """Two changes that contradict each other; `row_id` is the former name of `entity_id`."""

    entity_kind: str
    type_name: str
    entity_id: str | None
    table_key: str
    row_id: str | None
    kind: str
    message: str
    properties: list[str] = msgspec.field(default_factory=list)
    source_changed: list[str] = msgspec.field(default_factory=list)
    target_changed: list[str] = msgspec.field(default_factory=list)
    remedy: str | None = None
    base: Any = None
    source: Any = None
    target: Any = None


class ManifestConflict(Wire, frozen=True, kw_only=True):
    """A table that moved during a write, under its former names."""

    table_key: str
    expected: int
    actual: int


class PublishedDatasetVersionConflict(Wire, frozen=True, kw_only=True):
    """A table that moved during a write."""

    entity_kind: str
    type_name: str
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class ReadSetConflict(Wire, frozen=True, kw_only=True):
    """What a write relied on, and how it changed."""

    member: str
    expected: str | None
    actual: str | None


class KeyConflictOutput(Sparse, frozen=True, kw_only=True):
    """The stored entity that a strict insert found; `key` is the former name of `entity_id`."""

    entity_kind: str
    type_name: str
    table_key: str
    entity_id: str | None = None
    key: str | None = None


class ResourceLimit(Wire, frozen=True, kw_only=True):
    """A limit, and how much there was."""

    resource: str
    limit: int
    actual: int


class BlobRange(Wire, frozen=True, kw_only=True):
    """A half-open range of bytes, and the length of the blob."""

    start: int
    end: int
    length: int


class ExternalBlobSource(Wire, frozen=True, kw_only=True):
    """A source of bytes outside the graph that did not answer."""

    uri: str
    reason: str


class RecoveryIntent(Wire, frozen=True, kw_only=True):
    """The interrupted operation that blocks a request."""

    operation_id: str


class PreconditionFailure(Sparse, frozen=True, kw_only=True):
    """The head a conditional write was sent for, and the head there is."""

    expected: str
    actual: str | None = None


class ChangeFeedGapOutput(Sparse, frozen=True, kw_only=True):
    """The first commit of a feed whose data was cleaned up."""

    first_unreadable_commit_id: str
    cursor: str | None = None


class ChangeDiffRefusal(Sparse, frozen=True, kw_only=True):
    """Why the changes of a commit cannot be reported."""

    reason: str
    graph_commit_id: str
    type_name: str | None = None


class ErrorOutput(Sparse, frozen=True, kw_only=True):
    """A failure: what happened, and the facts of its kind.

    `error_code`, `remedy`, `retryable` and `data` are those of docs/errors.md: from them a client rebuilds
    the error that the library raises.
    """

    error: str
    code: ErrorCode | None = None
    merge_conflicts: list[MergeConflictOutput] = msgspec.field(default_factory=list)
    manifest_conflict: ManifestConflict | None = None
    published_dataset_version_conflict: PublishedDatasetVersionConflict | None = None
    read_set_conflict: ReadSetConflict | None = None
    key_conflict: KeyConflictOutput | None = None
    resource_limit: ResourceLimit | None = None
    blob_range: BlobRange | None = None
    external_blob_source: ExternalBlobSource | None = None
    recovery_required: RecoveryIntent | None = None
    precondition_failure: PreconditionFailure | None = None
    change_feed_gap: ChangeFeedGapOutput | None = None
    change_diff_refusal: ChangeDiffRefusal | None = None
    error_code: str | None = None
    remedy: str | None = None
    retryable: bool = False
    data: dict[str, Any] = msgspec.field(default_factory=dict)
