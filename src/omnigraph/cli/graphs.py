"""`omnigraph graphs`: the graphs of a server."""

from __future__ import annotations

from omnigraph.cli.addressing import resolve_scope_server
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.cli.served import list_graphs, resolve_server

app = new_app()


@app.callback()
def graphs() -> None:
    """See which graphs a server has."""


@app.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """List the graphs of a server; its policy must allow it."""
    found = list_graphs(resolve_server(resolve_scope_server()))
    text = "\n".join(f"{one['graph_id']}\t{one['uri']}" for one in found) or "no graphs"
    print_result({"graphs": found}, text, as_json=as_json)
