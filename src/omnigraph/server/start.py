"""Start a server: tokens, graphs, policies, then the socket."""

from __future__ import annotations

import logging
from pathlib import Path

from omnigraph.policy.actions import Kind
from omnigraph.policy.policy import Policy
from omnigraph.server.app import build_app
from omnigraph.server.auth import load_tokens
from omnigraph.server.boot import Loaders, StoreSource, boot
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import check_certificate, listen
from omnigraph.server.logs import set_up_logs
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import ServeOptions
from omnigraph.server.stored_queries import load_stored_queries

_log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> None:
    """Serve one store until a signal."""
    check_certificate(options)
    set_up_logs()
    tokens = load_tokens()
    source = StoreSource(options)
    booted = boot(source, tokens, options, Loaders(load_policy, load_stored_queries))
    service = Service(booted, tokens, options.limits)
    facts = {
        "tokens": tokens.source,
        "bind": f"{options.bind.host}:{options.bind.port}",
        "mode": booted.state.value,
        "source": source.name,
        "graphs": len(booted.graphs),
    }
    _log.info("starting", extra={"facts": facts})
    try:
        listen(build_app(service, ROUTES, HANDLERS, options.cors_origins), options)
    finally:
        service.close()
    _log.info("stopped")


def load_policy(path: Path, graph_id: str | None) -> Policy:
    """Parse the bundle of a graph, or of the server."""
    if graph_id is None:
        return Policy.read(path, kind=Kind.SERVER)
    return Policy.read(path, kind=Kind.GRAPH, graph=graph_id)
