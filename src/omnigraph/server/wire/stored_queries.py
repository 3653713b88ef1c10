"""Stored queries."""

from __future__ import annotations

from typing import Any

from omnigraph.server.wire.base import Sparse, Wire


class QueryParameterOutput(Sparse, frozen=True, kw_only=True):
    """A parameter; a list has `item_kind`, a vector `vector_dim`."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None


class StoredQueryOutput(Sparse, frozen=True, kw_only=True):
    """A stored query, and what it takes."""

    name: str
    tool_name: str
    mutation: bool
    params: list[QueryParameterOutput]
    description: str | None = None
    instruction: str | None = None


class StoredQueryListOutput(Wire, frozen=True, kw_only=True):
    """All stored queries of a graph, by name."""

    queries: list[StoredQueryOutput]


class InvokeQueryRequest(Wire, frozen=True, kw_only=True):
    """Values of a stored query's parameters, and what it runs on."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    message: str | None = None
