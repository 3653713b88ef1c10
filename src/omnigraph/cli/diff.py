"""`omnigraph diff`: what differs between two moments of a graph."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.changes import Kinds, Ops, Types, print_changes, stat_lines
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_text

DIFFERENT = 1

app = new_app()

A = Annotated[
    str, typer.Argument(help="A branch, a commit, a time, BRANCH@TIME or BRANCH@vVERSION.", metavar="A")
]
B = Annotated[str, typer.Argument(help="What to compare it with, named in the same way.", metavar="B")]


@app.command()
def diff(
    a: A,
    b: B,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    stat: Annotated[bool, typer.Option("--stat", help="Only count, type by type.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")
    ] = False,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        typer.Option("--engine", help="Where the work is done; by the size of the change, if not said."),
    ] = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes that lead from A to B: what was inserted, updated and deleted."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = opened.diff(a, b, types=types, kinds=kinds, ops=ops, engine=engine)
        if as_json:
            print_json(found.about() if stat else found.to_json())
        elif stat:
            print_text("\n".join(stat_lines(found.stats())) or "no changes")
        elif not print_changes(found):
            print_text("no changes")
        if exit_code and found:
            raise typer.Exit(DIFFERENT)
