"""Mutations."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.engine.write.mutate import MutationResult
from omnigraph.server.wire.base import Wire, require_pair, resolve_pair
from omnigraph.server.wire.commits import CommitOutput


class ChangeRequest(Wire, frozen=True, kw_only=True):
    """A mutation query; `query_source` and `query_name` are former names of `query` and `name`.

    `retry` and `message` are those of the library's `Graph.mutate`.
    """

    query: str | None = None
    query_source: str | None = None
    name: str | None = None
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    retry: int = 0
    message: str | None = None

    @property
    def source(self) -> str:
        """The text of the query."""
        return require_pair("query", self.query, "query_source", self.query_source)

    @property
    def selected(self) -> str | None:
        """The name of the query that is meant."""
        return resolve_pair("name", self.name, "query_name", self.query_name)


class TableChangeOutput(Wire, frozen=True, kw_only=True):
    """What a mutation did to the rows of one type."""

    table_key: str
    inserted: int
    updated: int
    deleted: int


class ChangeOutput(Wire, frozen=True, kw_only=True):
    """What a mutation did; `commit` is null when nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitOutput | None
    tables: list[TableChangeOutput] = msgspec.field(default_factory=list)


def change_output(done: MutationResult, branch: str, actor: str | None) -> ChangeOutput:
    """Return the body of a mutation's result."""
    return ChangeOutput(
        branch=branch,
        query_name=done.query,
        affected_nodes=done.affected_nodes,
        affected_edges=done.affected_edges,
        actor_id=actor,
        commit=CommitOutput.of_optional(done.commit),
        tables=[
            TableChangeOutput(
                table_key=key, inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted
            )
            for key, counts in sorted(done.tables.items())
        ],
    )
