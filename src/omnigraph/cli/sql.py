"""`omnigraph sql`: read the types of a graph as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.addressing import Uri, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import (
    AsJson,
    Branch,
    Commit,
    Param,
    Params,
    ParamsFile,
    Time,
    Version,
    params_of,
    parse_param,
    resolve_time,
    text_of,
)
from omnigraph.cli.result_output import Form, Output, choose_format, write_result
from omnigraph.errors import BadRequest

app = new_app()


@app.command()
def sql(
    statement: Annotated[
        str | None, typer.Argument(help="The statement, a SELECT.", metavar="STATEMENT")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--query", "-q", help="A file with the statement.", metavar="FILE.sql")
    ] = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: Param = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Stop after this many seconds.", metavar="S", min=0)
    ] = None,
    form: Form = None,
    output: Output = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Run a SELECT over the types of a graph, each a table, now or at a commit, version or time."""
    from omnigraph import graph

    place = resolve_graph(uri=uri)
    text = _choose_statement(statement, file)
    values = {**params_of(params, params_file), **dict(map(parse_param, param or ()))}
    chosen = choose_format(form, output, as_json=as_json)
    with graph.open(place, read_only=True) as opened:
        found = opened.sql(
            text,
            values or None,
            branch=branch,
            **resolve_time(commit, time),
            version=version,
            timeout=timeout,
        )
    write_result(found, chosen, output)


def _choose_statement(statement: str | None, file: Path | None) -> str:
    if statement is not None and file is not None:
        raise BadRequest("STATEMENT and --query are mutually exclusive")
    if file is not None:
        return text_of(file)
    if statement is None:
        raise BadRequest("no statement given", remedy="write one, or name a file with --query")
    return statement
