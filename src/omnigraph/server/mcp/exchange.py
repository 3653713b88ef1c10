"""A request to a route as a value, its answer, and how it is answered inside this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp, Message, Receive

from omnigraph.deferred_dataclass import dataclass
from omnigraph.server.app import INNER_ACTOR
from omnigraph.server.errors import ClientGone
from omnigraph.server.route import JSON, MIB, Method
from omnigraph.server.wire.base import encode

MOST_BYTES = 16 * MIB
"""The largest answer that is worth reading: a model sees a small part of it."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request to a route, below the address of a graph or of the server."""

    method: Method
    path: Sequence[str]
    """Segments, not encoded."""
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = None

    @property
    def is_safe(self) -> bool:
        """Whether it may be sent again when no answer came."""
        return self.method == "GET"

    def raw_path(self) -> str:
        """Return the path with every segment encoded."""
        return "/".join(quote(segment, safe="") for segment in self.path)

    def content(self) -> bytes:
        """Return the body as JSON."""
        return b"" if self.body is None else encode(self.body)


class Failed(Exception):
    """An answer that is an error: its status, and its body as JSON."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body


class TooLarge(Exception):
    """An answer with more bytes than are read."""


Send = Callable[[WireRequest], Awaitable[bytes]]
"""Sends a request and returns the JSON of its answer; raises `Failed` or `TooLarge`."""


def send_inside(app: ASGIApp, prefix: str, actor: str | None, gone: Receive) -> Send:
    """Return what answers requests by the application of this process.

    `prefix` is the path of the graph or of the server. `gone` returns when the client went away.
    """

    async def send(request: WireRequest) -> bytes:
        answer = _Collected()
        content = [request.content()]

        async def receive() -> Message:
            if content:
                return {"type": "http.request", "body": content.pop(), "more_body": False}
            return await gone()

        await app(_scope(request, prefix, actor), receive, answer.take)
        return answer.body()

    return send


def _scope(request: WireRequest, prefix: str, actor: str | None) -> dict[str, Any]:
    path = f"{prefix}/{request.raw_path()}"
    return {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(request.query).encode(),
        "headers": [(b"content-type", JSON.encode())],
        INNER_ACTOR: actor,
    }


class _Collected:
    """The messages of an answer."""

    def __init__(self) -> None:
        self._status: int | None = None
        self._chunks: list[bytes] = []
        self._size = 0

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        chunk = message.get("body", b"")
        self._size += len(chunk)
        if self._size > MOST_BYTES:
            raise TooLarge
        self._chunks.append(chunk)

    def body(self) -> bytes:
        if self._status is None:
            raise ClientGone
        body = b"".join(self._chunks)
        if self._status >= 400:
            raise Failed(self._status, body)
        return body
