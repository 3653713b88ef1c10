"""A surface as a server of the MCP package, which knows the protocol and its versions."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from omnigraph import __version__
from omnigraph.server.mcp.exchange import Failed
from omnigraph.server.mcp.surface import Resource, Surface, UnknownResource, UnknownTool
from omnigraph.server.mcp.tools import Effect, Tool

NAME = "omnigraph"
RESOURCE_NOT_FOUND = -32002
REMEDY = "see tools/list; what is denied on one branch may be allowed on another"

_HINTS = {
    Effect.READ: types.ToolAnnotations(read_only_hint=True),
    Effect.ADD: types.ToolAnnotations(read_only_hint=False, destructive_hint=False),
    Effect.CHANGE: types.ToolAnnotations(read_only_hint=False, destructive_hint=True),
    Effect.REPEATABLE_CHANGE: types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True
    ),
}


def build_server(surface: Surface) -> Server[Any]:
    """Return a server whose tools and resources are those of a surface."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        with _Reported():
            return types.ListToolsResult(tools=[_describe_tool(tool) for tool in await surface.list_tools()])

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        with _Reported():
            done = await surface.call(asked.name, asked.arguments or {})
        text = types.TextContent(type="text", text=done.text)
        return types.CallToolResult(content=[text], is_error=done.is_error)

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        with _Reported():
            found = await surface.list_resources()
        return types.ListResourcesResult(resources=[_describe_resource(one) for one in found])

    async def read_resource(_: Any, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        with _Reported():
            found, text = await surface.read(str(asked.uri))
        content = types.TextResourceContents(uri=found.uri, mime_type=found.media, text=text)
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    return Server(
        NAME,
        version=__version__,
        instructions=surface.instructions,
        get_tool_input_schema=lambda _: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
    )


class _Reported:
    """Turns what a surface raises into errors of the protocol."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case UnknownTool():
                raise MCPError(types.INVALID_PARAMS, "unknown tool", {"remedy": REMEDY}) from None
            case UnknownResource():
                raise MCPError(RESOURCE_NOT_FOUND, "unknown resource", {"uri": str(error)}) from None
            case Failed():
                body = msgspec.json.decode(error.body)
                raise MCPError(types.INTERNAL_ERROR, str(body.get("error", error)), body) from None


def _describe_tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=_HINTS[tool.effect],
    )


def _describe_resource(found: Resource) -> types.Resource:
    return types.Resource(
        uri=found.uri, name=found.name, description=found.description, mime_type=found.media
    )
