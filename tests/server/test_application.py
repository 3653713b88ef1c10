"""The application without a socket: what a test can hardly arrange with a real client and one store."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

import omnigraph as og
from omnigraph.policy.actions import Action
from omnigraph.server import requests
from omnigraph.server.app import Handler, build_app
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import ServedGraph, serve_alone
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.health import health
from omnigraph.server.requests import Call
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Limits
from omnigraph.server.sources import DEFAULT_GRAPH


@pytest.fixture
def service(example_graph: Path) -> Iterator[Service]:
    """A graph that a declared deployment owns."""
    served = ServedGraph(DEFAULT_GRAPH, og.open(example_graph, read_only=True), is_managed=True)
    made = Service(serve_alone(served), Tokens(), Limits())
    yield made
    made.close()


async def answer_to(
    service: Service, method: str, path: str, *parts: bytes, is_whole: bool = True, **handlers: Handler
) -> tuple[int, dict[str, Any]]:
    """Return status and body of the answer to a request; one that is not whole never ends."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if is_whole:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    await build_app(service, ROUTES, {**HANDLERS, **handlers})(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_silent_client_gets_a_timeout(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.01)
    status, body = asyncio.run(answer_to(service, "POST", "/query", b'{"query":', is_whole=False))
    assert status == 408
    assert (body["error_code"], body["retryable"]) == ("request_timeout", True)
    assert "code" not in body
    assert service.in_flight == 0


def test_body_that_arrives_during_a_slow_lookup_is_read_whole(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SHORT_SECONDS", 0)
    looked_up = threading.Event()

    async def let_others_run() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        looked_up.set()

    async def echo(call: Call) -> Response:
        call.authorize(Action.CHANGE, branch="main")
        others = asyncio.create_task(let_others_run())
        await call.look_up(looked_up.wait)
        await others
        parts = [chunk async for chunk in call.chunks(call.route.limit, "request_body_bytes")]
        return call.reply({"parts": [part.decode() for part in parts]})

    found = asyncio.run(answer_to(service, "POST", "/load/ndjson", b"one", b"two", loadNdjson=echo))
    assert found == (200, {"parts": ["one", "two"]})


def test_schema_of_a_declared_deployment_is_not_changed_over_http(service: Service) -> None:
    status, body = asyncio.run(answer_to(service, "POST", "/schema/apply", b'{"schema_source": "node X {}"}'))
    assert (status, body["code"]) == (409, "conflict")
    assert "omnigraph cluster apply" in body["remedy"]


def test_handler_that_asked_no_policy_is_an_error_of_the_server(service: Service) -> None:
    status, body = asyncio.run(answer_to(service, "GET", "/schema", getSchema=health))
    assert (status, body["code"]) == (500, "internal")
    assert "policy" not in json.dumps(body)
