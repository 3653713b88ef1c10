"""A client that stops in the middle of a body is answered, not waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.server import requests
from omnigraph.server.app import build_app
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.boot import DEFAULT_GRAPH, Booted, ServedGraph
from omnigraph.server.handlers import HANDLERS
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Limits


@pytest.fixture
def service(example_graph: Path) -> Iterator[Service]:
    served = ServedGraph(DEFAULT_GRAPH, og.open(example_graph, read_only=True))
    made = Service(
        Booted(RuntimeState.OPEN, {DEFAULT_GRAPH: served}, None, DEFAULT_GRAPH), Tokens(), Limits()
    )
    yield made
    made.close()


async def answer_to_half_a_body(service: Service) -> tuple[int, dict[str, Any]]:
    parts = [{"type": "http.request", "body": b'{"query":', "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        if parts:
            return parts.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/query",
        "raw_path": b"/query",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    await build_app(service, ROUTES, HANDLERS)(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_silent_client_gets_a_timeout(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.01)
    status, body = asyncio.run(answer_to_half_a_body(service))
    assert status == 408
    assert (body["error_code"], body["retryable"]) == ("request_timeout", True)
    assert "code" not in body
    assert service.in_flight == 0
