"""Start a server: tokens, graphs, policies, then the socket.

A single worker is this process. Several are processes of their own, and this one supervises them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from starlette.types import ASGIApp

from omnigraph.policy.actions import Kind
from omnigraph.policy.policy import Policy
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens, load_tokens
from omnigraph.server.board import Board
from omnigraph.server.boot import BootSource, Loaders, StoreSource, boot
from omnigraph.server.engine_phases import EnginePhases
from omnigraph.server.frozen_source import FrozenSource, freeze
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import bind_socket, check_certificate, listen, warn_about
from omnigraph.server.logs import set_up_logs
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import ServeOptions
from omnigraph.server.stored_queries import load_stored_queries
from omnigraph.server.supervisor import WorkerSetup, supervise
from omnigraph.server.tracing import open_tracing

_log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> None:
    """Serve one store until a signal."""
    check_certificate(options)
    set_up_logs()
    tokens = load_tokens()
    source = StoreSource(options)
    if options.workers == 1:
        run_service(source, tokens, options, Board.create(), lambda app: listen(app, options))
    else:
        _serve_with_workers(source, tokens, options)


def run_service(
    source: BootSource, tokens: Tokens, options: ServeOptions, board: Board, answer: Callable[[ASGIApp], None]
) -> None:
    """Open what a source names, and let `answer` serve it to its end."""
    tracing, opening = open_tracing(), EnginePhases()
    booted = boot(source, tokens, options, Loaders(load_policy, load_stored_queries), opening)
    service = Service(booted, tokens, options.limits, board, tracing)
    service.metrics.recoveries.add(opening.recoveries)
    facts = {
        "tokens": tokens.source,
        "bind": f"{options.bind.host}:{options.bind.port}",
        "mode": booted.state.value,
        "source": source.name,
        "graphs": len(booted.graphs),
        "worker": board.index,
    }
    _log.info("starting", extra={"facts": facts})
    try:
        answer(build_app(service, ROUTES, HANDLERS, options.cors_origins))
    finally:
        service.close()
    _log.info("stopped")


def _serve_with_workers(source: BootSource, tokens: Tokens, options: ServeOptions) -> None:
    board = Board.create(options.workers)
    plan = source.load()
    # A worker that replaces another one must serve what the others serve, whatever has changed on disk.
    # The first ones read the files themselves, so that mistakes are reported under the names of the files.
    now, frozen = FrozenSource(source.name, plan), FrozenSource(source.name, freeze(plan, board.folder))
    warn_about(options)
    with bind_socket(options.bind) as bound:
        setup = WorkerSetup(options, tokens, now, board, bound.fileno())
        supervise(bound, setup, replace(setup, source=frozen))
    _log.info("stopped")


def load_policy(path: Path, graph_id: str | None) -> Policy:
    """Parse the bundle of a graph, or of the server."""
    if graph_id is None:
        return Policy.read(path, kind=Kind.SERVER)
    return Policy.read(path, kind=Kind.GRAPH, graph=graph_id)
