"""The tools of a graph on standard input and output: one in a folder or bucket, or one behind a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mcp.server.stdio import stdio_server
from starlette.types import Message

from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.calls import JSON, Call
from omnigraph.client.transport import DEFAULT_TIMEOUT, Address
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import OmnigraphError
from omnigraph.graph import open as open_graph
from omnigraph.server.app import Application
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import ServedGraph, serve_alone
from omnigraph.server.errors import error_body, status_of
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.logs import set_up_logs
from omnigraph.server.mcp.exchange import Failed, Send, WireRequest, send_inside
from omnigraph.server.mcp.protocol import build_server
from omnigraph.server.mcp.surface import GraphSurface
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Limits
from omnigraph.server.sources import DEFAULT_GRAPH, read_query_files
from omnigraph.server.stored_queries import load_stored_queries
from omnigraph.server.wire.base import encode


@dataclass(frozen=True, slots=True)
class StdioOptions:
    """The options of `omnigraph mcp`."""

    uri: str
    """A folder, a bucket, or the address of a graph behind a server."""
    branch: str = MAIN
    token: str | None = None
    actor: str | None = None
    queries: Sequence[Path] = ()
    read_only: bool = False


def serve_stdio(options: StdioOptions, *, is_served: bool) -> None:
    """Answer messages until standard input ends."""
    set_up_logs({"OMNIGRAPH_LOG": "warning"})
    asyncio.run(_serve(options, is_served=is_served))


async def _serve(options: StdioOptions, *, is_served: bool) -> None:
    opened = _through_server(options) if is_served else _in_process(options)
    async with opened as send:
        server = build_server(GraphSurface(send, options.branch))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def _through_server(options: StdioOptions) -> AsyncIterator[Send]:
    transport = AsyncTransport(Address.parse(options.uri, options.token, DEFAULT_TIMEOUT))

    async def send(request: WireRequest) -> bytes:
        has_body = request.body is not None
        call = Call(
            request.method,
            request.raw_path(),
            lambda reply: reply.content,
            query=request.query,
            headers={"Content-Type": JSON} if has_body else {},
            body=request.content() if has_body else None,
            is_safe=request.is_safe,
        )
        try:
            return await transport.send(call)
        except OmnigraphError as error:
            status = status_of(error)
            raise Failed(status, encode(error_body(error, status))) from error

    try:
        yield send
    finally:
        await transport.close()


@asynccontextmanager
async def _in_process(options: StdioOptions) -> AsyncIterator[Send]:
    """Serve the graph to its owner, without a socket: nothing is refused that a command would do."""
    graph = open_graph(options.uri, read_only=options.read_only)
    queries = load_stored_queries(read_query_files(options.queries), graph)
    served = ServedGraph(DEFAULT_GRAPH, graph, queries=queries)
    service = Service(serve_alone(served), Tokens(), Limits.from_environment())
    service.sessions.make_personal(options.actor)
    try:
        yield send_inside(
            Application(service, ROUTES, HANDLERS), f"/graphs/{DEFAULT_GRAPH}", options.actor, _never_gone
        )
    finally:
        service.close()


async def _never_gone() -> Message:
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}
