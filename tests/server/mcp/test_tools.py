"""The official client drives every tool: over HTTP in both eras of the protocol, and over standard input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from omnigraph.server.mcp.graph_tools import GRAPH_TOOLS
from tests.server.mcp.connections import Connect, call, call_json, over_http, over_stdio, refusal
from tests.server.mcp.tool_cases import CALLS, HOSTILE
from tests.server.running import TOKENS, RunningServer, start_server, with_tokens

STORED = {"older_than", "add_person"}
NAMES = {tool.name for tool in GRAPH_TOOLS} | STORED
WRITES = {"mutate", "change", "ingest", "branches_create", "branch_start", "branches_delete"} | {
    "branches_merge",
    "merge",
    "schema_apply",
    "add_person",
}
WAYS = ("http", "legacy", "stdio", "bridged")


@pytest.fixture(scope="module")
def written_server(
    copied: Callable[[], Path],
    policies: list[str],
    stored_queries: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningServer]:
    """A server that tests of this file may write to."""
    log = tmp_path_factory.mktemp("written") / "server.log"
    with start_server(copied(), log, *policies, *stored_queries, env=with_tokens()) as server:
        yield server


@pytest.fixture
def connect(request: pytest.FixtureRequest, copied: Callable[[], Path], stored_queries: list[str]) -> Connect:
    """A way to a graph that may be written to."""
    way: str = request.param
    if way == "stdio":
        return lambda: over_stdio("--as", "root", str(copied()), *stored_queries)
    server: RunningServer = request.getfixturevalue("written_server")
    if way == "bridged":
        token = {"OMNIGRAPH_BEARER_TOKEN": TOKENS["root"]}
        return lambda: over_stdio("--server", server.url, "--graph", "default", env=token)
    return lambda: over_http(server, "root", mode="legacy" if way == "legacy" else "auto")


@pytest.mark.parametrize(("connect", "way"), [(way, way) for way in WAYS], indirect=["connect"], ids=WAYS)
def test_every_tool_works_and_refuses_hostile_arguments(connect: Connect, way: str) -> None:
    assert {tool for tool, _, _ in CALLS} == NAMES
    assert {tool for tool, _ in HOSTILE} == NAMES

    async def run() -> None:
        async with connect() as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed) == NAMES
            assert {name for name, tool in listed.items() if not tool.annotations.read_only_hint} == WRITES
            await _call_all(client, way)
            before = await call_json(client, "commits_list")
            for tool, arguments in HOSTILE:
                await _require_refusal(client, tool, arguments)
            assert await call_json(client, "commits_list") == before

    asyncio.run(run())


async def _call_all(client: Client, way: str) -> None:
    head = (await call_json(client, "commits_list"))["commits"][0]["graph_commit_id"]
    for tool, arguments, expected in CALLS:
        written = json.dumps([arguments, expected]).replace("HEAD", head).replace("WAY", way)
        filled, wanted = json.loads(written)
        failed, text = await call(client, tool, filled)
        assert not failed, (tool, text)
        assert wanted in text, (tool, text)


async def _require_refusal(client: Client, tool: str, arguments: dict[str, Any]) -> None:
    failed, text = await call(client, tool, arguments)
    assert failed, (tool, arguments, text)
    error = json.loads(text)
    assert error["error"], (tool, text)
    assert error.get("code") != "internal", (tool, arguments, text)
    assert len(text) < 5_000, (tool, "an error must not repeat its argument")


def test_resources_and_prompts(policy_server: RunningServer) -> None:
    async def run() -> None:
        async with over_http(policy_server, "root") as client:
            listed = (await client.list_resources()).resources
            assert [one.uri for one in listed] == ["omnigraph://schema", "omnigraph://branches"]
            [schema] = (await client.read_resource("omnigraph://schema")).contents
            assert "edge Knows: Person -> Person" in schema.text  # type: ignore[union-attr]
            [branches] = (await client.read_resource("omnigraph://branches")).contents
            assert "main" in json.loads(branches.text)  # type: ignore[union-attr]
            assert (await refusal(client.read_resource("omnigraph://graphs"))).code == -32002
            assert (await client.list_prompts()).prompts == []

    asyncio.run(run())


def test_server_itself_has_tools_of_its_own(policy_server: RunningServer) -> None:
    async def run() -> None:
        async with over_http(policy_server, "root", "/mcp") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"health", "graphs_list"}
            graphs = await call_json(client, "graphs_list")
            assert [one["graph_id"] for one in graphs["graphs"]] == ["default"]
            [resource] = (await client.list_resources()).resources
            assert resource.uri == "omnigraph://graphs"
        async with over_http(policy_server, "reader", "/mcp") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"health"}
            assert (await refusal(client.call_tool("graphs_list", {}))).message == "unknown tool"
            assert (await client.list_resources()).resources == []

    asyncio.run(run())


def test_denied_tool_looks_like_one_that_is_not_there(policy_server: RunningServer) -> None:
    async def run() -> None:
        async with over_http(policy_server, "reader") as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert listed == NAMES - WRITES - STORED
            unknown = await refusal(client.call_tool("no_such_tool", {}))
            assert (unknown.code, unknown.message) == (-32602, "unknown tool")
            insert = {"query": 'query q() { insert Person { name: "No" } }'}
            assert await refusal(client.call_tool("mutate", insert)) == unknown
            assert await refusal(client.call_tool("older_than", {"age": 1})) == unknown
            assert await refusal(client.call_tool("branches_delete", {"name": "main"})) == unknown
            assert (await call_json(client, "query", CALLS[3][1]))["row_count"] >= 4
        async with over_http(policy_server, "stranger") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"health"}
            assert await refusal(client.call_tool("describe", {})) == unknown

    asyncio.run(run())


def test_default_branch_is_that_of_the_connection(written_server: RunningServer) -> None:
    async def run() -> None:
        async with over_http(written_server, "root") as client:
            await call_json(client, "branch_start", {"name": "agent/own"})
        async with over_http(written_server, "root", "/graphs/default/mcp?branch=agent/own") as client:
            await call_json(client, "mutate", {"query": 'query q() { insert Person { name: "Own" } }'})
            await call_json(client, "add_person", {"name": "Stored"})
            found = await call_json(client, "diff")
            assert sorted(one["id"] for one in found["changes"]) == ["Own", "Stored"]
            assert (await call_json(client, "merge_preview"))["outcome"] == "fast_forward"
            assert (await call_json(client, "merge"))["outcome"] == "fast_forward"

    asyncio.run(run())


def test_conflict_is_shown_and_decided(written_server: RunningServer) -> None:
    def age(of: int, branch: str) -> dict[str, Any]:
        text = f'query q() {{ update Person set {{ age: {of} }} where name = "Ada" }}'
        return {"query": text, "branch": branch}

    async def run() -> None:
        async with over_http(written_server, "root") as client:
            await call_json(client, "branch_start", {"name": "side"})
            await call_json(client, "mutate", age(50, "side"))
            await call_json(client, "mutate", age(60, "main"))
            failed, text = await call(client, "merge", {"source": "side"})
            assert failed
            assert json.loads(text)["merge_conflicts"][0]["entity_id"] == "Ada"
            preview = await call_json(client, "merge_preview", {"source": "side", "strategy": "theirs"})
            assert preview["resolved"] == 1
            merged = await call_json(client, "merge", {"source": "side", "strategy": "theirs"})
            assert merged["outcome"] == "merged"

    asyncio.run(run())


def test_endpoint_keeps_no_session_and_opens_no_stream(policy_server: RunningServer) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with policy_server.client("root") as client:
        answer = client.post("/graphs/default/mcp", json=ping)
        assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert "mcp-session-id" not in answer.headers
        assert client.get("/graphs/default/mcp").status_code == 405
        notified = client.post(
            "/graphs/default/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        assert (notified.status_code, notified.content) == (202, b"")
        wrong = client.post("/graphs/default/mcp", content=b"{", headers={"Content-Type": "application/json"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -32700)
        version = {"MCP-Protocol-Version": "1999-01-01"}
        assert client.post("/graphs/default/mcp", json=ping, headers=version).status_code == 400
        assert client.post("/graphs/default/mcp", content=b"x" * (5 << 20)).status_code == 413
        assert client.post("/graphs/nowhere/mcp", json=ping).status_code == 404
    with policy_server.client() as anonymous:
        assert anonymous.post("/mcp", json=ping).status_code == 401
