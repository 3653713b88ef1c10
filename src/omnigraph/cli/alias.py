"""`omnigraph alias`: a query that the config file has a name for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config import Alias
from omnigraph.cli.config_file import current_config
from omnigraph.cli.options import AsJson, Params, ParamsFile, loose_value, params_of
from omnigraph.cli.result_output import Form, choose_format, write_result
from omnigraph.cli.served import connect_served, resolve_served_graph
from omnigraph.errors import BadRequest
from omnigraph.query.result import Result

app = new_app()


@app.command()
def alias(
    name: Annotated[str, typer.Argument(help="The alias.", metavar="NAME")],
    args: Annotated[
        list[str] | None,
        typer.Argument(help="Values for its args, each as JSON or plain text.", metavar="ARGS"),
    ] = None,
    params: Params = None,
    params_file: ParamsFile = None,
    form: Form = None,
    as_json: AsJson = False,
) -> None:
    """Run the read query that the config file calls NAME.

    A parameter may come from three places: --params, ARGS and the alias itself; the first of these wins.
    """
    meant = _find_alias(name)
    values = {**meant.params, **_bind_positional(meant, args or []), **params_of(params, params_file)}
    chosen = choose_format(form, None, as_json=as_json, preferred=meant.format)
    if meant.server is not None:
        write_result(_invoke_stored(meant, meant.server, values), chosen)
        return
    if meant.file is None:
        raise BadRequest(
            f"alias '{name}' names no file with queries", remedy=f"add file to it in {current_config().place}"
        )
    with graph.open(resolve_graph(alias=meant.store), read_only=True) as opened:
        found = opened.query(meant.file, values, name=meant.query, branch=meant.branch)
    write_result(found, chosen)


def _invoke_stored(meant: Alias, server: str, values: dict[str, Any]) -> Result:
    """Run the stored query of a server that an alias names."""
    if meant.query is None:
        raise BadRequest(
            f"alias '{meant.name}' names no stored query",
            remedy=f"add query to it in {current_config().place}",
        )
    with connect_served(resolve_served_graph(server, meant.graph)) as opened:
        return opened.invoke(meant.query, values, branch=meant.branch)


def _find_alias(name: str) -> Alias:
    settings = current_config()
    found = settings.aliases.get(name)
    if found is None:
        known = ", ".join(settings.aliases) or "none"
        raise BadRequest(f"there is no alias '{name}'", remedy=f"aliases in {settings.place}: {known}")
    return found


def _bind_positional(meant: Alias, given: list[str]) -> dict[str, Any]:
    if len(given) > len(meant.args):
        takes = f"{len(meant.args)} ({', '.join(meant.args)})" if meant.args else "none"
        raise BadRequest(f"alias '{meant.name}' was given {len(given)} arguments and takes {takes}")
    return {name: loose_value(value) for name, value in zip(meant.args, given, strict=False)}
