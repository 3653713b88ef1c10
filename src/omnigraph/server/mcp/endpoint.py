"""Handlers of the two routes: one JSON-RPC message in, one out; no stream and no session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any

from starlette.responses import Response
from starlette.types import Message

from omnigraph.errors import MissingExtra
from omnigraph.server.errors import ClientGone
from omnigraph.server.mcp.exchange import send_inside
from omnigraph.server.mcp.surface import GraphSurface, ServerSurface, Surface
from omnigraph.server.requests import Call, branch_or_main

_HEADERS_OF_TRANSPORT = {b"content-length", b"transfer-encoding"}


async def serve_graph(call: Call) -> Response:
    """Answer a message about one graph."""
    branch = branch_or_main(call.query("branch"))
    prefix = f"/graphs/{call.target.graph_id}"
    send = send_inside(call.request.app, prefix, call.actor, call.request.receive)
    return await _answer(call, GraphSurface(send, branch))


async def serve_server(call: Call) -> Response:
    """Answer a message about the server itself."""
    send = send_inside(call.request.app, "", call.actor, call.request.receive)
    return await _answer(call, ServerSurface(send))


async def _answer(call: Call, surface: Surface) -> Response:
    # Each tool is a request of its own, and asks the policy of its route.
    call.was_authorized = True
    require_package("the MCP endpoint")
    respond = await call.look_up(_load)
    return await respond(call, surface)


def require_package(feature: str) -> None:
    """Raise `MissingExtra` unless the MCP package is installed."""
    if find_spec("mcp") is None:
        raise MissingExtra(feature, package="mcp", extra="mcp")


def _load() -> Callable[[Call, Surface], Awaitable[Response]]:
    """Import the MCP package, in a worker thread: it takes a while the first time."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from omnigraph.server.mcp.protocol import build_server

    async def respond(call: Call, surface: Surface) -> Response:
        manager = StreamableHTTPSessionManager(
            build_server(surface), json_response=True, stateless=True, max_request_body_size=call.route.limit
        )
        answer = _Answer(call.raw)
        async with manager.run():
            await manager.handle_request(_scope(call), answer.receive, answer.send)
        return answer.response()

    return respond


def _scope(call: Call) -> dict[str, Any]:
    """Return the scope of the request, as far as the transport needs it."""
    scope = call.request.scope
    kept = [one for one in scope["headers"] if one[0] not in _HEADERS_OF_TRANSPORT]
    return {**scope, "headers": [*kept, (b"content-length", str(len(call.raw)).encode())]}


class _Answer:
    """The body for the transport, and the messages it sends."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self._chunks.append(message.get("body", b""))

    def response(self) -> Response:
        if self._status is None:
            raise ClientGone
        headers = {name: value for name, value in self._headers.items() if name != "content-length"}
        return Response(b"".join(self._chunks), self._status, headers)
