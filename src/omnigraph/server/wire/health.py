"""The server itself: its health, and the graphs it serves."""

from __future__ import annotations

from omnigraph.server.wire.base import Sparse, Wire


class HealthOutput(Sparse, frozen=True, kw_only=True):
    """A server that answers."""

    status: str
    version: str
    internal_schema_version: int
    source_version: str | None = None


class GraphInfo(Wire, frozen=True, kw_only=True):
    """A graph that is served, and where it is."""

    graph_id: str
    uri: str


class GraphListOutput(Wire, frozen=True, kw_only=True):
    """The graphs that are served, by id."""

    graphs: list[GraphInfo]
