"""One request: its body and actor, policy, admission, the work in a thread, and the answer."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from ulid import ULID

from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import (
    BadRequest,
    InternalError,
    RequestTimeout,
    ResourceLimitExceeded,
    UnsupportedMediaType,
)
from omnigraph.graph import Graph
from omnigraph.phases import report_phases_to
from omnigraph.policy.actions import Action
from omnigraph.server.authorize import authorize
from omnigraph.server.boot import Booted, ServedGraph
from omnigraph.server.engine_phases import EnginePhases
from omnigraph.server.errors import ClientGone
from omnigraph.server.route import JSON, Body, Route
from omnigraph.server.service import Service
from omnigraph.server.tracing import RequestSpan
from omnigraph.server.wire.base import encode
from omnigraph.server.workers import Pool

Made = TypeVar("Made")
Asked = TypeVar("Asked")

BODY_SECONDS = 30
"""How long a client may be silent in the middle of a body."""
SHORT_SECONDS = 0.02
"""Work that is done by then is not worth watching the connection for."""
REQUEST_ID = "x-request-id"

_INBOUND_ID = re.compile(r"[\x21-\x7e]{1,128}")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Call:
    """A request that was routed: what a handler needs, and what logs and metrics report."""

    def __init__(
        self,
        service: Service,
        booted: Booted,
        request: Request,
        route: Route,
        path: Mapping[str, str],
        actor: str | None,
        span: RequestSpan | None = None,
    ) -> None:
        self.service = service
        self.booted = booted
        """The revision that the request keeps to."""
        self.request = request
        self.route = route
        self.path = path
        self.actor = actor
        """The actor whose token the request carries; None when the server is open."""
        self.served: ServedGraph | None = None
        self.cancel = threading.Event()
        """Set when the client went away; stops a query."""
        self.phases: dict[str, float] = {}
        """Seconds by phase, for `Server-Timing`."""
        self.facts: dict[str, Any] = {}
        """What the log line of the request says beside: commit, rows and the like."""
        self.listener = EnginePhases(span)
        """Measures and traces what the engine does for the request."""
        self.was_authorized = False
        self.has_read_body = False
        self.body_size = 0
        """The bytes of the body that were read."""
        self._body: Any = None
        self._raw = b""

    # --- what was asked ------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph the request is about."""
        return self.target.graph

    @property
    def target(self) -> ServedGraph:
        """The graph the request is about, with its policy and stored queries."""
        if self.served is None:
            raise InternalError(f"operation '{self.route.operation}' has no graph")
        return self.served

    def body(self, kind: type[Asked]) -> Asked:
        """Return the decoded body of a route with `Body.JSON`."""
        if not isinstance(self._body, kind):
            raise InternalError(f"operation '{self.route.operation}' has a body of another type")
        return self._body

    @property
    def raw(self) -> bytes:
        """The bytes of the body of a route with `Body.RAW`."""
        return self._raw

    def query(self, name: str) -> str | None:
        """Return a parameter of the query; the last one when it is repeated."""
        return self.request.query_params.get(name)

    def header(self, name: str) -> list[str]:
        """Return all values of a header."""
        return self.request.headers.getlist(name)

    # --- may it, and is there room --------------------------------------------------------------------

    def authorize(self, action: Action, branch: str | None = None, target: str | None = None) -> None:
        """Let the request pass, or raise `PolicyDenied`."""
        self.was_authorized = True
        if self.service.sessions.is_personal:
            return  # the owner of the files asks: nothing is refused that a command would do
        policy = self.booted.server_policy if action is Action.GRAPH_LIST else self.target.policy
        authorize(policy, action, self.actor, branch, target)

    @contextmanager
    def admit(self, size: int) -> Iterator[None]:
        """Count the request against the limits of its actor while it runs."""
        with self.service.admission.admit(self.actor, size):
            yield

    # --- the work -------------------------------------------------------------------------------------

    async def read(self, work: Callable[[], Made]) -> Made:
        """Run a read in a thread; `work` should look at `cancel`."""
        return await self.run(Pool.READ, work)

    async def write(self, work: Callable[[], Made]) -> Made:
        """Run a write in a thread; one that has begun is finished even when its client goes away."""
        return await self.run(Pool.WRITE, work)

    async def look_up(self, work: Callable[[], Made]) -> Made:
        """Run something short in a thread, before admission."""
        return await self.run(Pool.LOOKUP, work)

    async def run(self, pool: Pool, work: Callable[[], Made]) -> Made:
        """Run work in a thread; a client that goes away cancels what has not begun, and sets `cancel`."""
        sent = time.perf_counter()

        def timed() -> Made:
            begun = time.perf_counter()
            self._spend("queue", begun - sent)
            try:
                with report_phases_to(self.listener), self.listener(f"{pool.value} work"):
                    return work()
            finally:
                self._spend("work", time.perf_counter() - begun)

        job = self.service.workers.submit(pool, timed)
        waiting = asyncio.wrap_future(job)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=SHORT_SECONDS)
            if not done and self._has_whole_body and await self._is_abandoned(waiting):
                self.cancel.set()
                if not job.cancel():
                    await asyncio.wait({waiting})
                    waiting.exception()
                raise ClientGone
            return await waiting
        finally:
            self.service.workers.finished(pool)

    @property
    def _has_whole_body(self) -> bool:
        """Whether the body was read: waiting for the end of a connection takes what is left of it."""
        return self.has_read_body or self.route.body is Body.NONE

    async def _is_abandoned(self, waiting: asyncio.Future[Any]) -> bool:
        """Wait for the work or for the end of the connection; return whether that came first."""
        watcher = asyncio.create_task(self._wait_for_disconnect())
        try:
            await asyncio.wait({waiting, watcher}, return_when=asyncio.FIRST_COMPLETED)
            return not waiting.done()
        finally:
            watcher.cancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    def _spend(self, phase: str, seconds: float) -> None:
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    # --- the answer -----------------------------------------------------------------------------------

    def encode(self, body: Any) -> bytes:
        """Return a body as JSON; in the thread of the work, where it may be large."""
        with self.encoding():
            return encode(body)

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """Count the time of the block as that of making the answer."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._spend("encode", time.perf_counter() - begun)

    def reply(self, body: Any) -> Response:
        """Return the answer with a body; bytes are JSON already."""
        return Response(body if isinstance(body, bytes) else self.encode(body), media_type=JSON)

    # --- reading the body -----------------------------------------------------------------------------

    async def receive_body(self) -> None:
        """Read and decode the body as the route says."""
        match self.route.body:
            case Body.JSON:
                require_media(self.request, JSON)
                self._body = decode_json(await self.read_all(), self.route.request)
            case Body.RAW:
                self._raw = await self.read_all()
            case Body.NONE | Body.STREAM:
                pass

    async def read_all(self) -> bytes:
        """Return the whole body; raises `ResourceLimitExceeded` beyond the limit of the route."""
        return b"".join([chunk async for chunk in self.chunks(self.route.limit, "request_body_bytes")])

    async def chunks(self, limit: int, resource: str) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, at most `limit` bytes of it."""
        declared = self.request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and len(declared) < 19 and int(declared) > limit:
            raise ResourceLimitExceeded(resource, limit=limit, actual=int(declared))
        size, has_more = 0, True
        while has_more:
            message = await self._next_message()
            chunk = message.get("body", b"")
            has_more = message.get("more_body", False)
            size += len(chunk)
            if size > limit:
                raise ResourceLimitExceeded(resource, limit=limit, actual=size)
            if chunk:
                yield chunk
        self.has_read_body, self.body_size = True, size

    async def _next_message(self) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self.request.receive()
        except TimeoutError:
            raise RequestTimeout(f"no part of the body arrived for {BODY_SECONDS} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message


def decode_json(data: bytes, kind: type[Asked]) -> Asked:
    """Return the value in a JSON body; raises `BadRequest` for wrong syntax or shape."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        found: Asked = decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body has the wrong shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return found


def require_media(request: Request, expected: str) -> None:
    """Raise `UnsupportedMediaType` unless the content type is the expected one, whatever its parameters."""
    found = request.headers.get("content-type")
    if found is None or found.partition(";")[0].strip().lower() != expected.partition(";")[0]:
        raise UnsupportedMediaType(found, expected.partition(";")[0])


def accepts_only(call: Call, media: str) -> bool:
    """Whether the client accepts one media type and no other; anything wider means JSON."""
    accepted = call.header("accept")
    return len(accepted) == 1 and accepted[0].strip().lower() == media


def branch_or_main(text: str | None) -> str:
    """Return the branch a request names, without spaces around it, or main: policy must see what is used."""
    return MAIN if text is None else parse_branch_name(text)


def request_id_of(request: Request) -> str:
    """Return the id the client sent, if it fits into a header and a log line, or a new one."""
    inbound = request.headers.get(REQUEST_ID, "")
    return inbound if _INBOUND_ID.fullmatch(inbound) else str(ULID())
