"""What all requests of a server share."""

from __future__ import annotations

from omnigraph.errors import GraphNotFound
from omnigraph.query.read_cache import shared_cache
from omnigraph.server.admission import Admission
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.board import Board
from omnigraph.server.boot import Booted, ServedGraph, check_graph_id
from omnigraph.server.metrics import Metrics
from omnigraph.server.settings import Limits
from omnigraph.server.slots import StreamSlots
from omnigraph.server.tracing import Tracing
from omnigraph.server.ui_sessions import Sessions
from omnigraph.server.workers import Workers


class Service:
    """Graphs, tokens, limits, worker threads and counters."""

    def __init__(
        self,
        booted: Booted,
        tokens: Tokens,
        limits: Limits,
        board: Board | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        board = Board.create() if board is None else board
        self.booted = booted
        self.tokens = tokens
        self.limits = limits
        self.board = board
        """What the worker processes of the server share."""
        self.admission = Admission(limits, board, [actor for actor, _ in tokens.digests])
        self.slots = StreamSlots(board.folder)
        self.metrics = Metrics(board)
        self.workers = Workers(board.count, self.metrics.share)
        self.sessions = Sessions(board.sessions)
        self.tracing = tracing
        """Where traces go; None when there are none."""
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
        self.admission.close()
        if self.tracing is not None:
            self.tracing.close()
        self.metrics.close()

    def _watch(self) -> None:
        watch = self.metrics.watch
        watch("omnigraph_http_in_flight", "Requests under way.", lambda: {"": self.in_flight})
        watch("omnigraph_admitted", "Admitted writes.", lambda: {"": self.admission.in_flight()})
        watch("omnigraph_work", "Calls that run or wait for a thread.", self.workers.in_progress, "pool")
        watch("omnigraph_cache_bytes", "Memory that reads keep.", lambda: {"": shared_cache().used})
        watch("omnigraph_workers", "Processes that serve.", lambda: {"": 1})
        self.metrics.share()
