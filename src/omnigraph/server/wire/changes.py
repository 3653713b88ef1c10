"""Changes of commits and branches."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omnigraph.engine.changes.entity_history import EntityHistory
from omnigraph.server.wire.base import Sparse, Wire
from omnigraph.server.wire.commits import CommitOutput


class ChangeCause(Sparse, frozen=True, kw_only=True):
    """The commit behind changes; `authored_at` is in microseconds since 1970."""

    graph_commit_id: str
    authored_branch: str
    authored_at: int
    graph_manifest_version: int
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    actor_id: str | None = None
    message: str | None = None
    operation: str | None = None


class ChangeEndpoints(Wire, frozen=True, kw_only=True):
    """The nodes that an edge connects."""

    from_: str = msgspec.field(name="from")
    to: str


class ChangeImage(Sparse, frozen=True, kw_only=True):
    """An entity at one moment."""

    properties: dict[str, Any]
    endpoints: ChangeEndpoints | None = None


class ChangeType(Wire, frozen=True, kw_only=True):
    """A type; its id is opaque."""

    id: str
    name: str


class EntityChange(Sparse, frozen=True, kw_only=True):
    """One entity that changed; an insert has no `before`, a delete no `after`."""

    kind: Literal["node", "edge"]
    type: ChangeType
    id: str
    op: Literal["insert", "update", "delete"]
    before: ChangeImage | None = None
    after: ChangeImage | None = None
    changed: list[str] = msgspec.field(default_factory=list)


class ChangeBlockOutput(Wire, frozen=True, kw_only=True):
    """A commit and changes of it."""

    cause: ChangeCause
    changes: list[EntityChange]


class CommitChangesOutput(Sparse, frozen=True, kw_only=True):
    """What one commit changed, or a page of it."""

    cause: ChangeCause
    changes: list[EntityChange]
    next_page_token: str | None = None


class ChangeFeedOutput(Sparse, frozen=True, kw_only=True):
    """The next changes of a branch; the last page has the cursor for the next time."""

    blocks: list[ChangeBlockOutput]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class EntityHistoryEntry(Wire, frozen=True, kw_only=True):
    """A commit, and what it did to the entity."""

    commit: CommitOutput
    change: EntityChange


class EntityHistoryOutput(Wire, frozen=True, kw_only=True):
    """The commits that changed one entity; `reclaimed` says that a cleanup removed what older ones need."""

    changes: list[EntityHistoryEntry]
    reclaimed: bool

    @classmethod
    def of(cls, found: EntityHistory) -> EntityHistoryOutput:
        """Return the body of a history."""
        return cls(
            changes=[
                EntityHistoryEntry(
                    commit=CommitOutput.of(one.commit),
                    change=msgspec.convert(one.change.to_json(), EntityChange),
                )
                for one in found
            ],
            reclaimed=found.reclaimed,
        )
