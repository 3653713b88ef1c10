"""What the page in the browser asks for: sessions, rights, types, findings, parts of a graph, health."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.server.wire.base import Sparse, Wire
from omnigraph.server.wire.stored_queries import StoredQueryOutput


class SessionRequest(Wire, frozen=True, kw_only=True):
    """A token to exchange: a bearer token, or the one-time token of `omnigraph ui`."""

    token: str


class SessionOutput(Wire, frozen=True, kw_only=True):
    """The actor of a session; the session itself is a cookie that scripts cannot read."""

    actor_id: str | None


class PermissionsOutput(Wire, frozen=True, kw_only=True):
    """What an actor may do, by action; `mode` says who decides."""

    graph_id: str
    actor_id: str | None
    mode: str
    branch: str
    target: str
    can_apply_schema: bool
    actions: dict[str, bool]


class SchemaTypesOutput(Wire, frozen=True, kw_only=True):
    """The types of a graph at one moment; `rows` has the number of entities by `node:Name` or `edge:Name`."""

    graph_commit_id: str | None
    interfaces: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    rows: dict[str, int]


class LintRequest(Wire, frozen=True, kw_only=True):
    """The text of a query file."""

    query: str


class LintOutput(Wire, frozen=True, kw_only=True):
    """What lint finds in a query file, and what its queries take; spans count bytes of UTF-8."""

    status: str
    errors: int
    warnings: int
    infos: int
    results: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    queries: list[StoredQueryOutput]


class NodeOutput(Wire, frozen=True, kw_only=True):
    """A node; `blobs` names the properties whose bytes another route has."""

    type: str
    id: str
    properties: dict[str, Any]
    blobs: list[str]


class EdgeOutput(Wire, frozen=True, kw_only=True):
    """An edge, with the types and ids of its ends."""

    type: str
    id: str
    from_: str = msgspec.field(name="from")
    from_type: str
    to: str
    to_type: str
    properties: dict[str, Any]


class SubgraphRequest(Sparse, frozen=True, kw_only=True):
    """Nodes by type and id, how many edges to go from them, and the moment it is about."""

    nodes: dict[str, list[str]]
    hops: int = 0
    edges: list[str] | None = None
    limit: int = 300
    branch: str | None = None
    commit: str | None = None


class SubgraphOutput(Wire, frozen=True, kw_only=True):
    """Nodes and the edges between them; `complete` is false when there are more."""

    graph_commit_id: str | None
    nodes: list[NodeOutput]
    edges: list[EdgeOutput]
    complete: bool


class FindOutput(Wire, frozen=True, kw_only=True):
    """Nodes that a text was found in."""

    graph_commit_id: str | None
    nodes: list[NodeOutput]


class HealthFinding(Wire, frozen=True, kw_only=True):
    """Something the doctor found; `severity` is `problem` or `note`."""

    severity: str
    what: str
    detail: str
    remedy: str | None = None


class DoctorOutput(Wire, frozen=True, kw_only=True):
    """Whether a graph is in order, and how many versions of each table are stored."""

    ok: bool
    findings: list[HealthFinding]
    versions: dict[str, int]
    past_versions: dict[str, int]
