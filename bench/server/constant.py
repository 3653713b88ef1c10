"""`python -m bench.server.constant STORE BYTES`: the same stack, with queries that return a constant."""

from __future__ import annotations

import sys

from starlette.responses import Response

import omnigraph as og
from omnigraph.policy.actions import Action
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import ServedGraph, serve_alone
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import listen
from omnigraph.server.logs import set_up_logs
from omnigraph.server.requests import Call
from omnigraph.server.route import JSON
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Bind, ServeOptions
from omnigraph.server.sources import DEFAULT_GRAPH
from omnigraph.server.streams import PiecesReply


def main() -> None:
    """Serve until a signal."""
    body = b'"' + b"x" * (int(sys.argv[2]) - 2) + b'"'

    async def answer(call: Call) -> Response:
        call.authorize(Action.READ, branch="main")
        return PiecesReply([body], JSON)

    set_up_logs()
    options = ServeOptions(store=sys.argv[1], bind=Bind("127.0.0.1", 0), unauthenticated=True)
    served = ServedGraph(DEFAULT_GRAPH, og.open(sys.argv[1]))
    booted = serve_alone(served)
    service = Service(booted, Tokens(), options.limits)
    listen(build_app(service, ROUTES, {**HANDLERS, "query": answer}), options)
    service.close()


if __name__ == "__main__":
    main()
