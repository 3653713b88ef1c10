"""`omnigraph query`: read from a graph."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Uri, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.query_options import (
    Branch,
    Commit,
    Named,
    Param,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    Time,
    Version,
    parse_query_arguments,
)
from omnigraph.cli.result_output import Form, Output, choose_format, write_result

app = new_app()


@app.command()
def query(
    name: QueryName = None,
    file: QueryFile = None,
    text: QueryText = None,
    named: Named = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: Param = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option("--engine", help="Where the work is done; spark is for whole graphs."),
    ] = "local",
    form: Form = None,
    output: Output = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Run a read query and print the rows it finds, now or at a commit, version or time."""
    place = resolve_graph(uri=uri)
    meant = parse_query_arguments(name, named, file, text, params, params_file, param)
    chosen = choose_format(form, output, as_json=as_json)
    with graph.open(place, read_only=True) as opened:
        found = opened.query(
            meant.source,
            meant.params,
            name=meant.name,
            branch=branch,
            commit=commit,
            version=version,
            time=time,
            engine=engine,
        )
    write_result(found, chosen, output)
