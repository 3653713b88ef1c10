"""`omnigraph explain`: how a query is carried out."""

from __future__ import annotations

from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
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

app = new_app()


@app.command()
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
            commit=commit,
            version=version,
            time=time,
        )
    print_result(found.to_json(), found.text(), as_json=as_json)
