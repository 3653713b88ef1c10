"""A tool for each stored query, with an argument for each of its parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from omnigraph.server.mcp.exchange import WireRequest
from omnigraph.server.mcp.graph_tools import BRANCH
from omnigraph.server.mcp.tools import Arguments, Context, Effect, Schema, Tool, send_one
from omnigraph.server.wire.stored_queries import QueryParameterOutput, StoredQueryOutput

_KINDS: dict[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "bigint": {"type": "string", "pattern": r"^-?\d+$"},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {"type": "string", "description": "base64: and the bytes in Base64."},
}


def make_query_tools(queries: Iterable[StoredQueryOutput], taken: Collection[str]) -> list[Tool]:
    """Return the tools of stored queries; one whose name is taken gets `stored_` before it."""
    return [
        _make_tool(query, f"stored_{query.name}" if query.name in taken else query.name) for query in queries
    ]


def _make_tool(query: StoredQueryOutput, name: str) -> Tool:
    properties: dict[str, Schema] = {one.name: _schema_of(one) for one in query.params}
    takes_branch = "branch" not in properties
    if takes_branch:
        properties["branch"] = BRANCH

    def build(context: Context, arguments: Arguments) -> WireRequest:
        params = {one.name: arguments[one.name] for one in query.params if one.name in arguments}
        named = arguments.get("branch") if takes_branch else None
        body = {"params": params, "branch": named or context.branch}
        return WireRequest("POST", ["queries", query.name], body=body)

    return Tool(
        name=name,
        description=_describe(query),
        run=send_one(build),
        action="invoke_query",
        properties=properties,
        required=tuple(one.name for one in query.params if not one.nullable),
        effect=Effect.CHANGE if query.mutation else Effect.READ,
    )


def _describe(query: StoredQueryOutput) -> str:
    kind = "mutation" if query.mutation else "query"
    parts = [query.description or f"The stored {kind} {query.name}.", query.instruction]
    return " ".join(part for part in parts if part)


def _schema_of(parameter: QueryParameterOutput) -> dict[str, Any]:
    if parameter.kind == "list":
        schema: dict[str, Any] = {"type": "array", "items": dict(_KINDS.get(parameter.item_kind or "", {}))}
    elif parameter.kind == "vector":
        size = parameter.vector_dim
        schema = {"type": "array", "items": {"type": "number"}, "minItems": size, "maxItems": size}
    else:
        schema = dict(_KINDS.get(parameter.kind, {}))
    if parameter.nullable and "type" in schema:
        schema["type"] = [schema["type"], "null"]
    return schema
