"""The part of the table for language models."""

from __future__ import annotations

from omnigraph.server.route import MIB, Body, Param, Route

LIMIT = 4 * MIB

MCP_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/mcp",
        operation="serverMcp",
        summary="MCP: tools about the server itself, one JSON-RPC message for each request.",
        policy="that of the route behind each tool",
        body=Body.RAW,
        limit=LIMIT,
        successes=(202,),
        listed=False,
        ours=True,
    ),
    Route(
        method="POST",
        path="mcp",
        operation="graphMcp",
        summary="MCP: tools to read and change a graph, one JSON-RPC message for each request.",
        policy="that of the route behind each tool",
        body=Body.RAW,
        limit=LIMIT,
        params=(Param("branch", "The branch that tools use when a call names none; main, if not said."),),
        successes=(202,),
        listed=False,
        ours=True,
    ),
)
