"""Connections of the official MCP client, over HTTP and over standard input and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.server.running import TOKENS, RunningServer

Connect = Callable[[], Any]
"""Opens a connection, as an asynchronous context manager."""


@asynccontextmanager
async def over_http(
    server: RunningServer, actor: str, path: str = "/graphs/default/mcp", mode: Any = "auto"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[actor]}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(server.url + path, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "omnigraph", "mcp", *arguments],
        env={**os.environ, **(env or {})},
    )
    with open(os.devnull, "w") as errors:  # noqa: PTH123 - opened once, and never written to
        async with Client(stdio_client(command, errors)) as client:
            yield client


async def call(client: Client, tool: str, arguments: Mapping[str, Any] | None = None) -> tuple[bool, str]:
    """Return whether a call failed, and its text."""
    done = await client.call_tool(tool, dict(arguments or {}))
    [content] = done.content
    assert isinstance(content, types.TextContent)
    return bool(done.is_error), content.text


async def call_json(client: Client, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Return the JSON of a call that succeeds."""
    failed, text = await call(client, tool, arguments)
    assert not failed, (tool, text)
    return json.loads(text)


async def refusal(made: Awaitable[Any]) -> types.ErrorData:
    """Return the error of the protocol that a call ends in."""
    try:
        await made
    except MCPError as error:
        return error.error
    raise AssertionError("the call was answered")
