"""`python -m tests.server.waiting_server STORE`: a server whose queries wait until they are cancelled.

Each prints a line when it begins and when it was cancelled, so that a test can follow them.
"""

from __future__ import annotations

import sys

from starlette.responses import Response

import omnigraph as og
from omnigraph.policy.actions import Action
from omnigraph.server import listen as listening
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import ServedGraph, serve_alone
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.listen import listen
from omnigraph.server.logs import set_up_logs
from omnigraph.server.requests import Call
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Bind, ServeOptions
from omnigraph.server.sources import DEFAULT_GRAPH

HEAD_MILLISECONDS = 300
"""How long a client may take here to send the head of a request."""


def report(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def wait(call: Call) -> Response:
    call.authorize(Action.READ, branch="main")

    def work() -> None:
        report("begun")
        call.cancel.wait()
        report("cancelled")

    await call.read(work)
    return call.reply({})


def main() -> None:
    set_up_logs()
    listening.HEADER_MILLISECONDS = HEAD_MILLISECONDS
    options = ServeOptions(store=sys.argv[1], bind=Bind("127.0.0.1", 0), unauthenticated=True)
    served = ServedGraph(DEFAULT_GRAPH, og.open(sys.argv[1]))
    booted = serve_alone(served)
    service = Service(booted, Tokens(), options.limits)
    listen(build_app(service, ROUTES, {**HANDLERS, "query": wait}), options)
    service.close()


if __name__ == "__main__":
    main()
