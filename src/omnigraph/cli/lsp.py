"""`omnigraph lsp`: the language server for schemas and queries, on standard input and output."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.command_groups import new_app
from omnigraph.errors import MissingExtra

app = new_app()


@app.command()
def lsp(
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            "-s",
            help="The schema of all query files; the nearest .pg file above each, if not said.",
            metavar="FILE.pg",
        ),
    ] = None,
) -> None:
    """Answer an editor: mistakes while you write, hover, completion and go to definition.

    The editor starts this command itself, for files that end in .pg and .gq.
    """
    if find_spec("pygls") is None:
        raise MissingExtra("omnigraph lsp", package="pygls", extra="lsp")
    from omnigraph.lsp.server import build_server

    build_server(None if schema is None else schema.resolve()).start_io()
