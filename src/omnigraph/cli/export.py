"""`omnigraph export`: write a graph, or some of its types, as files."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal

import typer

from omnigraph.cli.addressing import Place, is_served, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson, Branch, Commit, Time, Version, resolve_time
from omnigraph.cli.output import print_note, print_result
from omnigraph.display.text import format_total
from omnigraph.engine.export.export_request import ExportFormat, ExportResult
from omnigraph.errors import BadRequest

STANDARD_OUTPUT = "-"


app = new_app()


@app.command()
def export(
    place: Place = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A file that ends with .ndjson, .jsonl or .gz, a folder, or - for standard output.",
            metavar="PATH",
        ),
    ] = STANDARD_OUTPUT,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="What to write; all but ndjson need a folder.")
    ] = ExportFormat.NDJSON,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only this node or edge type; may be repeated.", metavar="TYPE"),
    ] = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file, or the folder of an earlier export.")
    ] = False,
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option("--engine", help="Where the work is done; spark writes types in parts."),
    ] = "local",
    lines: Annotated[
        bool, typer.Option("--jsonl", hidden=True, help="The same as --format ndjson, the default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a graph or some of its types as files, now or at a commit, version or time."""
    uri = resolve_graph(place=place)
    if lines:
        print_note("warning: --jsonl is deprecated; an export is NDJSON unless --format says otherwise")
    streamed = output == STANDARD_OUTPUT
    if streamed and as_json:
        raise BadRequest("--json and an export to standard output exclude each other", remedy="use --output")
    # A bar and the lines of the data would share a terminal.
    current_invocation().shows_progress = not (streamed and sys.stdout.isatty())
    with open_graph(uri, read_only=True) as opened, _keep_mark(uri):
        done = opened.export(
            sys.stdout.buffer if streamed else output,
            format=form.value,
            types=types or None,
            branch=branch,
            **resolve_time(commit, time),
            version=version,
            overwrite=overwrite,
            engine=engine,
        )
        uri = opened.uri
    if streamed:
        print_note(_render_text(done, uri))
    else:
        print_result(_to_json(done, uri), _render_text(done, uri), as_json=as_json)


def _keep_mark(uri: str) -> AbstractContextManager[None]:
    """Keep the graph from being deleted meanwhile; a server does that itself."""
    if is_served(uri):
        return nullcontext()
    from omnigraph.engine.graph.export_marks import mark_export_if_possible
    from omnigraph.engine.graph.root import Root
    from omnigraph.storage.location import Location

    return mark_export_if_possible(Root.at(Location.parse(uri)))


def _render_text(done: ExportResult, uri: str) -> str:
    kinds = [one.kind for one in done.types]
    goal = "standard output" if done.output is None else str(done.output)
    return (
        f"exported {uri} at {done.snapshot} to {goal} as {done.format}: "
        f"{format_total(done.rows, 'entity', 'entities')} across "
        f"{format_total(kinds.count('node'), 'node type')} and "
        f"{format_total(kinds.count('edge'), 'edge type')}"
    )


def _to_json(done: ExportResult, uri: str) -> dict[str, Any]:
    """What an export wrote, as scripts read it."""
    return {
        "uri": uri,
        "branch": done.branch,
        "snapshot": done.snapshot,
        "format": done.format.value,
        "output": str(done.output),
        "types": [
            {
                "table_key": f"{one.kind}:{one.name}",
                "rows": one.rows,
                "bytes": one.bytes,
                "file": str(one.file),
            }
            for one in done.types
        ],
        "total_rows": done.rows,
        "total_bytes": done.bytes,
    }
