"""Start a server for one person on this machine, and show its page."""

from __future__ import annotations

import logging
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.graph import open as open_graph
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import ServedGraph, serve_alone
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import listen
from omnigraph.server.logs import set_up_logs
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Bind, Limits, ServeOptions
from omnigraph.server.sources import DEFAULT_GRAPH, read_query_files
from omnigraph.server.stored_queries import load_stored_queries
from omnigraph.server.ui_page import INDEX, read_page_file

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """The options of `omnigraph ui`."""

    store: str
    port: int = 0
    actor: str | None = None
    queries: Sequence[Path] = ()
    opens_browser: bool = True
    read_only: bool = False


def explore(options: ExploreOptions) -> None:
    """Serve one graph to its owner until a signal; the link is printed, and opened where that is wanted."""
    read_page_file(INDEX)
    set_up_logs({"OMNIGRAPH_LOG": "warning"})
    graph = open_graph(options.store, read_only=options.read_only)
    texts = read_query_files(options.queries)
    served = ServedGraph(DEFAULT_GRAPH, graph, queries=load_stored_queries(texts, graph))
    limits = Limits.from_environment()
    service = Service(serve_alone(served), Tokens(), limits)
    token = service.sessions.make_personal(options.actor)

    def show(bound: socket.socket) -> None:
        port = bound.getsockname()[1]
        service.sessions.bind(port)
        link = f"http://{LOOPBACK}:{port}/ui#token={token}"
        sys.stdout.write(f"{link}\n")
        sys.stdout.flush()
        if options.opens_browser and not webbrowser.open(link):
            logging.getLogger(__name__).warning("no browser could be opened: open the link yourself")

    try:
        where = ServeOptions(store=options.store, bind=Bind(LOOPBACK, options.port), limits=limits)
        listen(build_app(service, ROUTES, HANDLERS), where, announce=show)
    finally:
        service.close()
