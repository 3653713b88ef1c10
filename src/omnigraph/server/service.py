"""What all requests of a server share."""

from __future__ import annotations

from omnigraph.query.read_cache import shared_cache
from omnigraph.server.admission import Admission
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.board import Board
from omnigraph.server.boot import Booted
from omnigraph.server.metrics import Metrics
from omnigraph.server.revisions import Revisions
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
        self.revisions = Revisions(booted)
        """The graphs that are open; a request keeps to the revision it began with."""
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

    def needs_token(self, booted: Booted) -> bool:
        """Whether requests to a revision need a token."""
        return booted.state is not RuntimeState.OPEN or self.sessions.is_personal

    def close(self) -> None:
        """Wait for running calls, and close all graphs."""
        self.workers.close()
        self.revisions.close()
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
