"""`omnigraph profile`: the graphs that the config file has names for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config import Config, Profile
from omnigraph.cli.config_file import Scope, active_profile, current_config, implied_scope, profile_scope
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.errors import BadRequest

DEFAULTS = "(defaults)"

app = new_app()


@app.callback()
def profile() -> None:
    """Look at the profiles of the config file."""


@app.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """List the profiles, with a star at the one OMNIGRAPH_PROFILE chooses."""
    active = active_profile()
    found = [_profile_to_json(one, active) for one in current_config().profiles.values()]
    print_result(
        found,
        "\n".join(map(_render_line, found)) or f"no profiles in {current_config().place}",
        as_json=as_json,
    )


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="The profile; the one in use, if not given.", metavar="NAME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where a profile leads, or what holds without one."""
    settings = current_config()
    scope = implied_scope(settings, name)
    facts: dict[str, Any] = {
        "name": active_profile(name) or DEFAULTS,
        "scope_kind": "none" if scope is None else scope.kind,
        **({} if scope is None else _scope_facts(scope, settings)),
        "output_format": settings.defaults.output,
    }
    print_result(facts, "\n".join(f"{key}: {value}" for key, value in facts.items()), as_json=as_json)


def _scope_facts(scope: Scope, settings: Config) -> dict[str, str]:
    known = {"server": settings.servers, "cluster": settings.clusters, "store": {}}[scope.kind]
    facts = {
        "target": scope.target,
        "endpoint": known.get(scope.target),
        "default_graph": scope.default_graph,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _profile_to_json(one: Profile, active: str | None) -> dict[str, Any]:
    try:
        scope = profile_scope(one)
    except BadRequest as wrong:
        bound = {"scope_kind": "invalid", "valid": False, "error": wrong.message}
    else:
        bound = {"scope_kind": scope.kind, "target": scope.target, "valid": True}
    graph = {} if one.default_graph is None else {"default_graph": one.default_graph}
    binding = ", ".join(f"{kind}={target}" for kind, target in one.bindings.items())
    return {"name": one.name, "binding": binding, **bound, **graph, "active": one.name == active}


def _render_line(one: dict[str, Any]) -> str:
    binding = one["binding"] if one["valid"] else f"invalid: {one['error']}"
    graph = f" default_graph={one['default_graph']}" if "default_graph" in one else ""
    return f"{'*' if one['active'] else ' '} {one['name']} {binding}{graph}"
