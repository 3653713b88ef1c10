"""`omnigraph copy`: a graph to another place."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from omnigraph import graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.engine.copying.copier import CopyResult

app = new_app()

_PLACE = "A folder or s3://bucket/prefix."


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help=f"The graph: {_PLACE}", metavar="SRC")],
    destination: Annotated[str, typer.Argument(help=f"Where to: {_PLACE}", metavar="DST")],
    read_back: Annotated[
        bool,
        typer.Option(
            "--read-back/--no-read-back", help="Read every file of the copy again and compare checksums."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Copy a graph with all branches and history to an empty place, while others may write to it.

    Run the same command again to continue a copy that was interrupted. The original is only read.
    """
    with graph.open(source, read_only=True) as opened:
        done = opened.copy_to(destination, read_back=read_back)
    print_result(asdict(done), _summarize(done), as_json=as_json)


def _summarize(done: CopyResult) -> str:
    branches = f"{len(done.branches)} branch{'' if len(done.branches) == 1 else 'es'}"
    checked = "checksums, sizes and rows" if done.read_back else "sizes and rows"
    size = f"{branches}, {done.files:,} files, {done.bytes:,} bytes"
    return f"copied {done.source} to {done.destination}: {size}\nverified: {checked}"
