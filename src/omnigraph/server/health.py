"""Handlers about the server itself."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph import __version__
from omnigraph.engine.graph.format_stamp import CURRENT
from omnigraph.policy.actions import Action
from omnigraph.server.openapi import render_openapi
from omnigraph.server.requests import Call
from omnigraph.server.wire.health import GraphInfo, GraphListOutput, HealthOutput

HEALTH = HealthOutput(status="ok", version=__version__, internal_schema_version=CURRENT)


async def health(call: Call) -> Response:
    """Answer at once, without a thread."""
    return call.reply(HEALTH)


async def openapi(call: Call) -> Response:
    """Return the document of the routes that this server has."""
    return call.reply(render_openapi(authenticated=call.service.needs_token(call.booted)))


async def metrics(call: Call) -> Response:
    """Return all counters; a token is enough, since they name no graph."""
    call.was_authorized = True
    return Response(call.service.metrics.render(), media_type=call.route.media)


async def list_graphs(call: Call) -> Response:
    """Return the graphs by id; only the server policy lets an actor see which there are."""
    call.authorize(Action.GRAPH_LIST)
    served = sorted(call.booted.graphs.items())
    return call.reply(
        GraphListOutput(graphs=[GraphInfo(graph_id=name, uri=one.graph.uri) for name, one in served])
    )
