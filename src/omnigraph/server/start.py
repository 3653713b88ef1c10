"""Start a server: tokens, graphs, policies, then the socket.

A single worker is this process. Several are processes of their own, and this one supervises them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from starlette.types import ASGIApp

from omnigraph.errors import BadRequest
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens, load_tokens
from omnigraph.server.board import Board
from omnigraph.server.boot import boot
from omnigraph.server.engine_phases import EnginePhases
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import bind_socket, check_certificate, listen, warn_about
from omnigraph.server.logs import set_up_logs
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import ServeOptions
from omnigraph.server.sources import BootSource, FixedSource, StoreSource
from omnigraph.server.supervisor import WorkerSetup, supervise
from omnigraph.server.tracing import open_tracing

_log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> None:
    """Serve a store or a cluster until a signal."""
    check_certificate(options)
    set_up_logs()
    tokens = load_tokens()
    source = open_source(options)
    if options.workers == 1:
        run_service(source, tokens, options, Board.create(), lambda app: listen(app, options))
    else:
        _serve_with_workers(source, tokens, options)


def run_service(
    source: BootSource, tokens: Tokens, options: ServeOptions, board: Board, answer: Callable[[ASGIApp], None]
) -> None:
    """Open what a source names, and let `answer` serve it to its end."""
    tracing, opening = open_tracing(), EnginePhases()
    booted = boot(source.load(), tokens, options, opening)
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
        with _watching(service, tokens, options):
            answer(build_app(service, ROUTES, HANDLERS, options.cors_origins))
    finally:
        service.close()
    _log.info("stopped")


def _watching(service: Service, tokens: Tokens, options: ServeOptions) -> AbstractContextManager[None]:
    """Serve newer revisions of a cluster as they are applied, where that is wanted."""
    if not options.reload or options.cluster is None:
        return nullcontext()
    from omnigraph.server.cluster_source import ClusterSource
    from omnigraph.server.reload import LedgerWatch, Reload

    source = ClusterSource.pinned(options.cluster)
    how = Reload(
        source,
        lambda plan: boot(plan, tokens, options),
        service.board.folder,
        options.reload_seconds,
        lambda outcome: service.metrics.reloads.add(outcome=outcome),
    )
    return LedgerWatch(how, service.revisions)


def _serve_with_workers(source: BootSource, tokens: Tokens, options: ServeOptions) -> None:
    board = Board.create(options.workers)
    fixed = FixedSource(source.name, source.load())
    warn_about(options)
    with bind_socket(options.bind) as bound:
        supervise(bound, WorkerSetup(options, tokens, fixed, board, bound.fileno()))
    _log.info("stopped")


def open_source(options: ServeOptions) -> BootSource:
    """Return where the server learns what to serve."""
    if options.cluster is not None:
        from omnigraph.server.cluster_source import ClusterSource

        return ClusterSource(options.cluster)
    if options.store is None:
        raise BadRequest("there is nothing to serve", remedy="name a graph, or a cluster with --cluster")
    return StoreSource(options.store, options)
