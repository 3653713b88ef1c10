"""Lists and calls tools, lists and reads resources; knows routes, and nothing of how messages travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.server.invocations import UNKNOWN
from omnigraph.server.mcp.bounds import HINT, bound_json, bound_text
from omnigraph.server.mcp.exchange import Failed, Send, TooLarge, WireRequest
from omnigraph.server.mcp.graph_tools import GRAPH_TOOLS, SERVER_TOOLS
from omnigraph.server.mcp.query_tools import make_query_tools
from omnigraph.server.mcp.tools import Arguments, Context, Text, Tool, WrongArguments, check_arguments
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.stored_queries import StoredQueryListOutput

NEW_BRANCH = "new-branch"
"""Stands for a branch that an agent would create, where policy is asked what it may do."""

GRAPH_INSTRUCTIONS = """\
Tools of an omnigraph graph: typed nodes and edges with branches and commits. Call `describe` first: it shows
the types, and examples of valid queries. To change something, start a branch with `branch_start`, use
`mutate` or `ingest` with that `branch`, look at `diff` and `merge_preview`, then `merge`.
An error has a `remedy`."""
SERVER_INSTRUCTIONS = (
    "Tools of an omnigraph server. Each graph has tools of its own at /graphs/{graph_id}/mcp."
)

_decode_queries = msgspec.json.Decoder(StoredQueryListOutput).decode


class UnknownTool(Exception):
    """There is no such tool, or the actor may not use it like this; callers cannot tell which."""


class UnknownResource(Exception):
    """There is no such resource, or the actor may not read it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The text that a call returns, and whether it is an error."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """Something a client can read without a call."""

    uri: str
    name: str
    description: str
    media: str
    path: tuple[str, ...]
    member: str
    action: str

    def render(self, body: bytes) -> str:
        """Return the text of the resource from the answer of its route."""
        found = msgspec.json.decode(body)[self.member]
        return bound_text(found) if self.media == "text/plain" else bound_json(encode(found))


SCHEMA = Resource(
    "omnigraph://schema",
    "schema",
    "The schema.",
    "text/plain",
    ("schema",),
    "schema_source",
    "read",
)
BRANCHES = Resource(
    "omnigraph://branches", "branches", "All branches.", "application/json", ("branches",), "branches", "read"
)
GRAPHS = Resource(
    "omnigraph://graphs", "graphs", "All graphs.", "application/json", ("graphs",), "graphs", "graph_list"
)


class GraphSurface:
    """Tools and resources of one graph."""

    resources = (SCHEMA, BRANCHES)
    instructions = GRAPH_INSTRUCTIONS

    def __init__(self, send: Send, branch: str = MAIN) -> None:
        self._context = Context(send, branch)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that policy allows with default arguments."""
        allowed = await self._permissions()
        listed = [tool for tool in GRAPH_TOOLS if tool.action is None or allowed.get(tool.action)]
        if allowed.get("invoke_query"):
            listed += await self._query_tools()
        return listed

    async def find_tool(self, name: str) -> Tool:
        """Return a tool; one of a stored query only to those who may invoke some."""
        for tool in GRAPH_TOOLS:
            if tool.name == name:
                return tool
        if (await self._allowed(self._context.branch, MAIN)).get("invoke_query"):
            for tool in await self._query_tools():
                if tool.name == name:
                    return tool
        raise UnknownTool(name)

    async def call(self, name: str, arguments: Arguments) -> Outcome:
        """Run a tool."""
        return await run_tool(self._context, await self.find_tool(name), arguments)

    async def list_resources(self) -> list[Resource]:
        """Return what may be read."""
        allowed = await self._allowed(self._context.branch, MAIN)
        return [one for one in self.resources if allowed.get(one.action)]

    async def read(self, uri: str) -> tuple[Resource, str]:
        """Return a resource and its text."""
        return await read_resource(self._context.send, self.resources, uri)

    async def _query_tools(self) -> list[Tool]:
        taken = {tool.name for tool in GRAPH_TOOLS}
        try:
            body = await self._context.send(WireRequest("GET", ["queries"]))
        except Failed as failed:
            if failed.status != 403:
                raise
            return []  # listing them needs the right to read main
        return make_query_tools(_decode_queries(body).queries, taken)

    async def _permissions(self) -> dict[str, bool]:
        """Return what policy allows on the default branch, and with a branch of one's own."""
        branch = self._context.branch
        own = NEW_BRANCH if branch == MAIN else branch
        now = await self._allowed(branch, MAIN)
        created = await self._allowed(MAIN, own)
        finished = now if own == branch else await self._allowed(own, MAIN)
        return {
            **now,
            "branch_create": created["branch_create"],
            "branch_delete": finished["branch_delete"],
            "branch_merge": finished["branch_merge"],
        }

    async def _allowed(self, branch: str, target: str) -> dict[str, bool]:
        request = WireRequest("GET", ["permissions"], [("branch", branch), ("target", target)])
        found: dict[str, bool] = msgspec.json.decode(await self._context.send(request))["actions"]
        return found


class ServerSurface:
    """Tools and resources of a server."""

    resources = (GRAPHS,)
    instructions = SERVER_INSTRUCTIONS

    def __init__(self, send: Send) -> None:
        self._context = Context(send)

    async def list_tools(self) -> list[Tool]:
        """Return the tools that policy allows."""
        may_list = await self._may_list_graphs()
        return [tool for tool in SERVER_TOOLS if tool.action is None or may_list]

    async def call(self, name: str, arguments: Arguments) -> Outcome:
        """Run a tool."""
        for tool in SERVER_TOOLS:
            if tool.name == name:
                return await run_tool(self._context, tool, arguments)
        raise UnknownTool(name)

    async def list_resources(self) -> list[Resource]:
        """Return what may be read."""
        return list(self.resources) if await self._may_list_graphs() else []

    async def read(self, uri: str) -> tuple[Resource, str]:
        """Return a resource and its text."""
        return await read_resource(self._context.send, self.resources, uri)

    async def _may_list_graphs(self) -> bool:
        try:
            await self._context.send(WireRequest("GET", ["graphs"]))
        except Failed as failed:
            if failed.status != 403:
                raise
            return False
        return True


Surface = GraphSurface | ServerSurface


async def run_tool(context: Context, tool: Tool, arguments: Arguments) -> Outcome:
    """Return the result of a tool; a failure is a result as well, except a denial."""
    try:
        check_arguments(tool, arguments)
        found = await tool.run(context, arguments)
    except WrongArguments as wrong:
        remedy = "see the input schema of the tool in tools/list"
        return _report({"error": str(wrong), "code": "bad_request", "remedy": remedy})
    except TooLarge:
        return _report({"error": "the result is too large to read", "code": "bad_request", "remedy": HINT})
    except Failed as failed:
        if _is_denied(failed):
            raise UnknownTool(tool.name) from None
        return Outcome(bound_json(failed.body), is_error=True)
    return Outcome(bound_text(found.text) if isinstance(found, Text) else bound_json(found))


def _report(error: Mapping[str, Any]) -> Outcome:
    return Outcome(encode(error).decode(), is_error=True)


def _is_denied(failed: Failed) -> bool:
    """Whether policy said no; a stored query that may not be invoked is reported as one that is not there."""
    if failed.status != 404:
        return failed.status == 403
    return bool(msgspec.json.decode(failed.body).get("error") == UNKNOWN)


async def read_resource(send: Send, resources: Iterable[Resource], uri: str) -> tuple[Resource, str]:
    """Return a resource and its text; raises `UnknownResource` for one that is not there or denied."""
    for one in resources:
        if one.uri == uri:
            try:
                return one, one.render(await send(WireRequest("GET", one.path)))
            except Failed as failed:
                if failed.status != 403:
                    raise
    raise UnknownResource(uri)
