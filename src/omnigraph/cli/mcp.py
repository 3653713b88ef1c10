"""`omnigraph mcp`: the tools of a graph for a language model, on standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.addressing import Place, is_served, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config_file import current_config
from omnigraph.cli.credentials import find_token
from omnigraph.cli.serve import require_packages
from omnigraph.errors import BadRequest

app = new_app()


@app.command()
def mcp(
    place: Place = None,
    branch: Annotated[
        str,
        typer.Option(
            "--branch",
            envvar="OMNIGRAPH_DEFAULT_BRANCH",
            help="The branch that tools use when a call names none.",
            metavar="NAME",
        ),
    ] = "main",
    queries: Annotated[
        list[Path] | None,
        typer.Option(
            "--queries", help="Stored queries, each a tool: a file or a folder of them.", metavar="FILE|DIR"
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
) -> None:
    """Offer a graph to a language model: tools over MCP on standard input and output.

    A client starts this command itself. With --server the server decides what is allowed, by the token of
    `omnigraph login`.
    """
    uri = resolve_graph(place=place)
    served = is_served(uri)
    if served and (queries or read_only):
        raise BadRequest(
            "--queries and --read-only are for a graph that is opened here",
            remedy="leave them out: the server has its own queries and decides what is allowed",
        )
    require_packages("omnigraph mcp")
    from omnigraph.server.mcp.endpoint import require_package

    require_package("omnigraph mcp")
    from omnigraph.server.mcp.stdio import StdioOptions, serve_stdio

    serve_stdio(
        StdioOptions(
            uri=uri,
            branch=branch,
            token=find_token(uri, current_config().servers) if served else None,
            actor=resolve_actor(uri),
            queries=tuple(queries or ()),
            read_only=read_only,
        ),
        is_served=served,
    )
