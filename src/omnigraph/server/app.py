"""The ASGI application: route, authenticate, find the graph, decode, call the handler, answer, log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.errors import Conflict, InternalError, OmnigraphError, RecoveryRequired
from omnigraph.server.boot import Booted
from omnigraph.server.errors import ClientGone, error_response
from omnigraph.server.logs import REQUESTS
from omnigraph.server.requests import REQUEST_ID, Call, request_id_of
from omnigraph.server.route import MIB, Route
from omnigraph.server.route_tree import GRAPH_ID, RouteTree
from omnigraph.server.service import Service

Handler = Callable[[Call], Awaitable[Response]]

EXPOSED = (
    "etag",
    "content-range",
    "omnigraph-snapshot-id",
    "deprecation",
    "link",
    "retry-after",
    REQUEST_ID,
)
ACCEPTED = (
    "authorization",
    "content-type",
    "omnigraph-if-graph-commit",
    "if-match",
    "if-none-match",
    "range",
    "if-range",
    REQUEST_ID,
)
INNER_ACTOR = "omnigraph.actor"
"""The member of a scope by which this process names the actor of a request it makes itself."""
FAILED = 500
"""From here on the server is to blame, and a trace has an error."""
DISCARDED_BYTES = 32 * MIB
DISCARDING_SECONDS = 5
SILENT_SECONDS = 0.25
"""How much of a body that nothing reads is taken before the answer is sent, and how long that may last."""
CLOSED = 499
"""What logs say of a request whose client went away; it is never sent."""

_log = logging.getLogger(REQUESTS)


class Application:
    """Answers requests; every failure has a JSON body, and every answer an id."""

    def __init__(self, service: Service, routes: tuple[Route, ...], handlers: Mapping[str, Handler]) -> None:
        self.service = service
        self.routes = routes
        self._handlers = handlers
        self._tree = RouteTree(routes, service.revisions.current.plan.flat)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            scope["app"] = self
            await _Exchange(self, Request(scope, receive)).answer(scope, receive, send)

    async def dispatch(self, exchange: _Exchange, booted: Booted) -> Response:
        """Return the answer of the handler; the order of the checks is the contract."""
        request, service = exchange.request, self.service
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        match = self._tree.find(request.method, raw_path)
        exchange.route = match.route
        actor = self._authenticate(request, match.route, booted)
        exchange.call = call = Call(service, booted, request, match.route, match.path, actor, exchange.span)
        if match.route.is_per_graph and not match.route.is_public:
            call.served = booted.find_graph(match.path[GRAPH_ID])
        await call.receive_body()
        response = await self._handlers[match.route.operation](call)
        if not match.route.is_public and not call.was_authorized:
            raise InternalError(f"operation '{match.route.operation}' asked no policy")
        return response

    def _authenticate(self, request: Request, route: Route, booted: Booted) -> str | None:
        if INNER_ACTOR in request.scope:
            inner: str | None = request.scope[INNER_ACTOR]
            return inner
        self.service.sessions.check_host(request)
        if route.is_public or not self.service.needs_token(booted):
            return None
        raw = [value for name, value in request.scope["headers"] if name == b"authorization"]
        session = None if raw else self.service.sessions.find(request)
        return self.service.tokens.identify(raw) if session is None else session.actor


class _Exchange:
    """One request and its answer, for headers, logs and counters."""

    def __init__(self, app: Application, request: Request) -> None:
        self.app = app
        self.request = request
        self.route: Route | None = None
        self.call: Call | None = None
        self._id = request_id_of(request)
        self._begun = time.perf_counter()
        self._status = CLOSED
        tracing = app.service.tracing
        self.span = None if tracing is None else tracing.begin_request(request.headers)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, count and log; a client that went away gets nothing."""
        service = self.app.service
        service.in_flight += 1
        service.metrics.share()
        try:
            with service.revisions.use() as booted:
                response = await self._respond(booted)
                if self._leaves_body():
                    await self._discard_body()
                self._add_headers(response)
                self._status = response.status_code
                await response(scope, receive, send)
        except ClientGone:
            self._status = CLOSED
            service.metrics.disconnects.add()
        except asyncio.CancelledError:
            self._status = CLOSED
            raise
        finally:
            service.in_flight -= 1
            self._report()
            service.metrics.share()

    async def _respond(self, booted: Booted) -> Response:
        try:
            return await self.app.dispatch(self, booted)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - any failure is answered, and described only if typed
            self._count_failure(error)
            return error_response(error, self._id)

    def _add_headers(self, response: Response) -> None:
        headers = response.headers
        headers["X-Request-Id"] = self._id
        if self._leaves_body():
            # What was not read of a body would be taken for the next request.
            headers["Connection"] = "close"
        if self.call is not None and not self.call.route.is_public:
            headers["Server-Timing"] = self._timing(self.call)
        if self.route is not None and self.route.successor is not None:
            headers["Deprecation"] = "true"
            headers["Link"] = f'<{self.route.successor}>; rel="successor-version"'

    async def _discard_body(self) -> None:
        """Read what a client is still sending, within limits.

        A connection that is closed with unread bytes is reset, and the client loses the answer.
        """
        if "expect" in self.request.headers:
            return  # it waits for the answer before it sends anything
        left, has_more = DISCARDED_BYTES, True
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARDING_SECONDS):
                while has_more and left > 0:
                    message = await asyncio.wait_for(self.request.receive(), SILENT_SECONDS)
                    left -= len(message.get("body", b""))
                    has_more = message.get("more_body", False)

    def _leaves_body(self) -> bool:
        sent = self.request.headers
        has_body = "transfer-encoding" in sent or sent.get("content-length", "0") != "0"
        return has_body and (self.call is None or not self.call.has_read_body)

    def _timing(self, call: Call) -> str:
        phases = {**call.phases, "total": time.perf_counter() - self._begun}
        return ", ".join(f"{name};dur={seconds * 1000:.2f}" for name, seconds in phases.items())

    def _count_failure(self, error: Exception) -> None:
        metrics = self.app.service.metrics
        if isinstance(error, Conflict):
            metrics.conflicts.add(code=error.code)
        if isinstance(error, RecoveryRequired):
            metrics.blocked.add()
        if self.call is not None and isinstance(error, OmnigraphError):
            self.call.facts["error_code"] = error.code

    def _report(self) -> None:
        seconds = time.perf_counter() - self._begun
        operation = "none" if self.route is None else self.route.operation
        metrics = self.app.service.metrics
        metrics.requests.add(operation=operation, status=str(self._status))
        metrics.seconds.observe(seconds, operation=operation)
        call = self.call
        if call is not None:
            for phase, spent in call.phases.items():
                metrics.phases.add(spent, operation=operation, phase=phase)
            for phase, spent in call.listener.seconds.items():
                metrics.engine_phases.add(spent, phase=phase)
            metrics.recoveries.add(call.listener.recoveries)
            if call.facts.get("commit"):
                metrics.commits.add(operation=operation)
            metrics.rows.add(call.facts.get("rows", 0), operation=operation)
        self._trace(operation)
        if _log.isEnabledFor(logging.INFO):
            _log.info("request", extra={"facts": self._line(operation, seconds)})

    def _trace(self, operation: str) -> None:
        if self.span is None:
            return
        call, route = self.call, self.route
        facts = {
            "http.request.method": self.request.method,
            "http.response.status_code": self._status,
            "http.route": None if route is None else route.path,
            "omnigraph.request_id": self._id,
            "omnigraph.graph": None if call is None else call.path.get(GRAPH_ID),
            "omnigraph.actor": None if call is None else call.actor,
            **({} if call is None else {f"omnigraph.{name}": value for name, value in call.facts.items()}),
        }
        self.span.end(operation, facts, failed=self._status >= FAILED)

    def _line(self, operation: str, seconds: float) -> dict[str, Any]:
        call = self.call
        line = {
            "request_id": self._id,
            "method": self.request.method,
            "operation": operation,
            "graph": None if call is None else call.path.get(GRAPH_ID),
            "actor": None if call is None else call.actor,
            "status": self._status,
            "duration_ms": round(seconds * 1000, 3),
        }
        return line if call is None else {**line, **call.facts}


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer the start and the end of the server; graphs are opened before it binds."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def build_app(
    service: Service,
    routes: tuple[Route, ...],
    handlers: Mapping[str, Handler],
    cors_origins: tuple[str, ...] = (),
) -> ASGIApp:
    """Return the application, for browsers of other origins too where that is wanted."""
    app = Application(service, routes, handlers)
    if not cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(cors_origins),
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=list(ACCEPTED),
        expose_headers=list(EXPOSED),
    )
