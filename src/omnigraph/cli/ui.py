"""`omnigraph ui`: the explorer for one graph, in the browser of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.addressing import Place, is_served, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.serve import require_packages
from omnigraph.errors import BadRequest

app = new_app()


@app.command()
def ui(
    place: Place = None,
    port: Annotated[
        int, typer.Option("--port", help="The port; 0 lets the system choose one.", min=0, max=65535)
    ] = 0,
    queries: Annotated[
        list[Path] | None,
        typer.Option("--queries", help="Stored queries: a file or a folder of them.", metavar="FILE|DIR"),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the link; open no browser.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
) -> None:
    """Explore a graph in the browser until Ctrl-C.

    Only this machine can connect, and only with the link that is printed: it has a token that works once.
    """
    store = resolve_graph(place=place)
    if is_served(store):
        raise BadRequest(
            f"'{store}' is behind a server, which has the explorer itself",
            remedy=f"open {store}/ui in a browser",
        )
    require_packages("omnigraph ui")
    from omnigraph.server.ui_start import ExploreOptions, explore

    explore(
        ExploreOptions(
            store=store,
            port=port,
            actor=resolve_actor(store),
            queries=tuple(queries or ()),
            opens_browser=not no_open,
            read_only=read_only,
        )
    )
