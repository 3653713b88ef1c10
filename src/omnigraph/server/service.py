"""What all requests of a server share."""

from __future__ import annotations

from omnigraph.errors import GraphNotFound
from omnigraph.query.read_cache import shared_cache
from omnigraph.server.admission import Admission
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.boot import Booted, ServedGraph, check_graph_id
from omnigraph.server.metrics import Gauge, Metrics
from omnigraph.server.settings import Limits
from omnigraph.server.slots import StreamSlots
from omnigraph.server.ui_sessions import Sessions
from omnigraph.server.workers import Workers


class Service:
    """Graphs, tokens, limits, worker threads and counters."""

    def __init__(self, booted: Booted, tokens: Tokens, limits: Limits) -> None:
        self.booted = booted
        self.tokens = tokens
        self.limits = limits
        self.admission = Admission(limits)
        self.slots = StreamSlots()
        self.sessions = Sessions()
        self.workers = Workers()
        self.metrics = Metrics()
        self.in_flight = 0
        """Requests that are not answered yet; changed on the event loop only."""
        self._watch()

    @property
    def is_authenticated(self) -> bool:
        """Whether requests need a token."""
        return self.booted.state is not RuntimeState.OPEN or self.sessions.is_personal

    def find_graph(self, graph_id: str) -> ServedGraph:
        """Return a graph that is served."""
        found = self.booted.graphs.get(check_graph_id(graph_id))
        if found is None:
            raise GraphNotFound(graph_id)
        return found

    def close(self) -> None:
        """Wait for running calls, and close all graphs."""
        self.workers.close()
        for served in self.booted.graphs.values():
            served.graph.close()

    def _watch(self) -> None:
        watch = self.metrics.watch
        watch(Gauge("omnigraph_http_in_flight", "Requests under way.", lambda: {"": self.in_flight}))
        watch(
            Gauge("omnigraph_admitted", "Admitted writes.", lambda: {"": self.admission.in_flight()}),
        )
        watch(
            Gauge("omnigraph_work", "Calls that run or wait for a thread.", self.workers.in_progress, "pool")
        )
        watch(Gauge("omnigraph_cache_bytes", "Memory that reads keep.", lambda: {"": shared_cache().used}))
