"""`omnigraph query` and `omnigraph explain`: read from a graph, or show how a query is carried out."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from omnigraph.cli.addressing import Uri, is_served, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import (
    AsJson,
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
    parse_stored_query,
    resolve_time,
)
from omnigraph.cli.output import print_result
from omnigraph.cli.result_output import Form, Output, choose_format, write_result
from omnigraph.cli.served import refuse_moment, require_remote

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
        Literal["auto", "local", "spark"],
        typer.Option("--engine", help="Where the work is done; auto goes by the size of the tables."),
    ] = "local",
    form: Form = None,
    output: Output = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Run a read query and print the rows it finds, now or at a commit, version or time."""
    place = resolve_graph(uri=uri)
    given = (name, named, file, text, params, params_file, param)
    stored = parse_stored_query(*given) if is_served(place) else None
    chosen = choose_format(form, output, as_json=as_json)
    with open_graph(place, read_only=True) as opened:
        if stored is not None:
            refuse_moment(version, time)
            found = require_remote(opened).invoke(stored.name, stored.params, branch=branch, snapshot=commit)
        else:
            meant = parse_query_arguments(*given)
            found = opened.query(
                meant.source,
                meant.params,
                name=meant.name,
                branch=branch,
                **resolve_time(commit, time),
                version=version,
                engine=engine,
            )
    write_result(found, chosen, output)


explain_app = new_app()


@explain_app.command()
def explain(
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
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Run a read query and print its steps, each with the rows it gave and the milliseconds it took."""
    place = resolve_graph(uri=uri)
    meant = parse_query_arguments(name, named, file, text, params, params_file, param)
    with open_graph(place, read_only=True) as opened:
        found = opened.explain(
            meant.source,
            meant.params,
            name=meant.name,
            branch=branch,
            **resolve_time(commit, time),
            version=version,
        )
    print_result(found.to_json(), found.text(), as_json=as_json)
