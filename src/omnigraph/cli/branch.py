"""`omnigraph branch`: create, list, merge and delete branches."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.addressing import Place, Uri, echo_write, open_graph, require_consent, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.merge import merge
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result

Name = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]

app = new_app()

# Reports have an `actor_id` and it is null: only commits record their actor, and neither is one.


@app.callback()
def branch() -> None:
    """Create, list, merge and delete branches."""


@app.command()
def create(
    name: Name,
    from_branch: Annotated[
        str, typer.Option("--from", help="The branch to start at.", metavar="BRANCH")
    ] = "main",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Make a branch that starts as another one is now."""
    with open_graph(resolve_graph(uri=uri)) as opened:
        made = opened.branches.create(name, from_=from_branch)
        report = {"uri": opened.uri, "from": from_branch, "name": made, "actor_id": None}
        print_result(report, f"created branch {made} from {from_branch}", as_json=as_json)
        echo_write("branch create", opened.uri)


@app.command(name="list")
def list_(place: Place = None, uri: Uri = None, as_json: AsJson = False) -> None:
    """List the branches: main first, then by name."""
    with open_graph(resolve_graph(place=place, uri=uri), read_only=True) as opened:
        names = opened.branches.list()
        print_result({"branches": names}, "\n".join(names), as_json=as_json)


@app.command()
def delete(
    name: Name,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Remove a branch and what only it has; in a bucket this needs --yes."""
    place = resolve_graph(uri=uri)
    require_consent(f"deleting branch '{name}'", place, as_json=as_json)
    with open_graph(place) as opened:
        opened.branches.delete(name)
        report = {"uri": opened.uri, "name": name, "actor_id": None}
        print_result(report, f"deleted branch {name}", as_json=as_json)
        echo_write("branch delete", opened.uri)


app.command()(merge)
