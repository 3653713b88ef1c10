"""Tags."""

from __future__ import annotations

from omnigraph.engine.graph.tags import Tag
from omnigraph.server.wire.base import Wire


class TagOutput(Wire, frozen=True, kw_only=True):
    """A name of a commit; `created_at` is in microseconds since 1970."""

    name: str
    graph_commit_id: str
    created_at: int
    actor_id: str | None
    message: str | None

    @classmethod
    def of(cls, tag: Tag) -> TagOutput:
        """Return the body of a tag."""
        return cls(**tag.to_json())


class TagListOutput(Wire, frozen=True, kw_only=True):
    """All tags, by name."""

    tags: list[TagOutput]


class TagCreateRequest(Wire, frozen=True, kw_only=True):
    """A new tag; `at` is a branch, commit, tag or time, main if not given, and `force` moves an old tag."""

    name: str
    at: str | None = None
    message: str | None = None
    force: bool = False


class TagDeleteOutput(Wire, frozen=True, kw_only=True):
    """The tag that was deleted."""

    uri: str
    name: str
    actor_id: str | None
