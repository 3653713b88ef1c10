"""Resolves the graph of a command, and asks for consent before a removal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from omnigraph.cli.capabilities import Kind, find_capability
from omnigraph.cli.config_file import Scope, current_config, implied_scope
from omnigraph.cli.invocation import Invocation, current_invocation
from omnigraph.cli.output import print_note
from omnigraph.cli.served import connect_served, resolve_served_graph
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.graph import Graph

Place = Annotated[
    str | None, typer.Argument(help="The graph: a folder or s3://bucket/prefix.", metavar="URI")
]
Uri = Annotated[str | None, typer.Option("--uri", help="The same as --store.", metavar="URI")]

WAYS = "a URI, --store or --server, choose a --profile, or set OMNIGRAPH_STORE"
ELSEWHERE = ("--server", "--cluster")
_WEB = ("http://", "https://")


def resolve_graph(**given: str | None) -> str:
    """Return the URI of the graph: from an argument, else from a profile or the defaults.

    That of a graph behind a server begins with `http`; only commands that `open_graph` get one.
    """
    invocation = current_invocation()
    named = _collect_addresses(invocation, given)
    if len(named) > 1:
        raise BadRequest(f"{' and '.join(named)} are mutually exclusive")
    if named:
        [(way, value)] = named.items()
        return _resolve_explicit(way, value, invocation)
    scope = implied_scope(current_config(), invocation.text("--profile"))
    if scope is None:
        raise BadRequest("no graph addressed", remedy=f"name one with {WAYS}")
    return _resolve_implied(scope, invocation)


def resolve_cluster(**given: str | None) -> str | None:
    """Return the cluster that a command is about: a directory or a URI; None when it names a graph."""
    invocation = current_invocation()
    named = _collect_addresses(invocation, given)
    if named:
        return find_cluster(named["--cluster"]) if list(named) == ["--cluster"] else None
    scope = implied_scope(current_config(), invocation.text("--profile"))
    return find_cluster(scope.target) if scope is not None and scope.kind == "cluster" else None


def require_cluster(other: str | None = None) -> str:
    """Return the cluster of a command that is about one; `other` is what could be named instead."""
    found = resolve_cluster()
    if found is None:
        instead = "" if other is None else f", or {other}"
        raise BadRequest("no cluster addressed", remedy=f"name one with --cluster{instead}")
    return found


def resolve_graph_id() -> str | None:
    """Return the graph of a cluster that a command is about; None for all of them."""
    invocation = current_invocation()
    if "--graph" in invocation.flags or "--cluster" in invocation.flags:
        return invocation.text("--graph")
    scope = implied_scope(current_config(), invocation.text("--profile"))
    return None if scope is None else scope.default_graph


def find_cluster(named: str) -> str:
    """Return the place of a cluster: that of a name in the config file, or the value itself."""
    return current_config().clusters.get(named, named)


def open_graph(
    uri: str, *, read_only: bool = False, merge_granularity: Literal["row", "property"] | None = None
) -> Graph | RemoteGraph:
    """Open the graph at a URI of `resolve_graph`: a folder, a bucket, or one behind a server.

    `merge_granularity` does not apply behind a server, where types and calls decide.
    """
    if is_served(uri):
        return connect_served(uri)
    from omnigraph import graph

    return graph.open(uri, read_only=read_only, merge_granularity=merge_granularity)


def is_served(uri: str) -> bool:
    """Whether a graph is behind a server."""
    return uri.lower().startswith(_WEB)


def resolve_actor(uri: str | None = None) -> str | None:
    """Return the actor of a commit: the one of --as, else the one in the config file.

    A server knows the actor by the token.
    """
    named = current_invocation().text("--as")
    if uri is not None and is_served(uri):
        if named is not None:
            raise BadRequest(
                "--as does not apply to a graph behind a server, which knows the actor by the token",
                remedy="leave it out, or log in as that actor",
            )
        return None
    return current_config().actor if named is None else named


def resolve_scope_server() -> str:
    """Return the server of a command that is about a server and not about a graph."""
    invocation = current_invocation()
    named = invocation.text("--server")
    if named is not None:
        return named
    scope = implied_scope(current_config(), invocation.text("--profile"))
    if scope is None:
        raise BadRequest("no server addressed", remedy="name one with --server")
    if scope.kind != "server":
        raise BadRequest(
            f"`{invocation.command}` is a served command; {scope.origin} is bound to a {scope.kind} "
            "and does not apply.",
            remedy="name a server with --server",
        )
    return scope.target


def _collect_addresses(invocation: Invocation, given: dict[str, str | None]) -> dict[str, str]:
    flags = {flag: invocation.text(flag) for flag in ("--store", *ELSEWHERE)}
    named = {"place": invocation.place} | {name: value for name, value in given.items() if value is not None}
    ways = [*((_spell_flag(name), value) for name, value in named.items()), *flags.items()]
    return {way: value for way, value in ways if value is not None}


def _spell_flag(name: str) -> str:
    return "a URI" if name == "place" else f"--{name}"


def _resolve_explicit(way: str, value: str, invocation: Invocation) -> str:
    if way == "--server":
        return resolve_served_graph(value, invocation.text("--graph"))
    if way == "--cluster":
        return _in_cluster(value, invocation.text("--graph"))
    if "--graph" in invocation.flags:
        raise BadRequest(f"--graph does not go with {way}: '{value}' is already a single graph")
    if is_served(value):
        raise BadRequest(
            f"'{value}' is a server and must be addressed with --server",
            remedy="to work on the storage itself, name its folder or bucket",
        )
    return value


def _resolve_implied(scope: Scope, invocation: Invocation) -> str:
    kind = find_capability(invocation.command).kind
    if (kind is Kind.DIRECT and scope.kind == "server") or (kind is Kind.DATA and scope.kind == "cluster"):
        raise BadRequest(
            f"`{invocation.command}` is a {kind} command; {scope.origin} is bound to a {scope.kind} "
            "and does not apply.",
            remedy="name the graph by its URI or with --store",
        )
    if scope.kind == "server":
        return resolve_served_graph(scope.target, invocation.text("--graph") or scope.default_graph)
    if scope.kind == "cluster":
        return _in_cluster(scope.target, invocation.text("--graph") or scope.default_graph)
    if "--graph" in invocation.flags:
        raise BadRequest(
            f"--graph does not go with {scope.origin}: '{scope.target}' is already a single graph"
        )
    return scope.target


def _in_cluster(cluster: str, graph_id: str | None) -> str:
    """Return the storage of a graph of a cluster: a name in the config file, a directory or a URI."""
    from omnigraph.cluster.lookup import locate_graph

    return locate_graph(find_cluster(cluster), graph_id)


def is_local(uri: str) -> bool:
    """Whether a graph is a folder on this machine."""
    if is_served(uri):
        return False
    from omnigraph.storage.location import Location

    return Location.parse(uri).is_local


def echo_write(command: str, uri: str) -> None:
    """Print on standard error which graph a command changed, unless --quiet."""
    if "--quiet" not in current_invocation().flags:
        where = "served" if is_served(uri) else f"direct, {'local' if is_local(uri) else 'remote'}"
        print_note(f"omnigraph {command} → {uri} ({where})")


def require_consent(what: str, uri: str, *, as_json: bool) -> None:
    """Ask before removing something from a remote graph, unless --yes."""
    if "--yes" in current_invocation().flags or is_local(uri):
        return
    if not as_json and sys.stdin is not None and sys.stdin.isatty():
        print_note(f"{what} in {uri}? Type yes to go on:")
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise BadRequest(f"{what} in '{uri}' needs consent", remedy="pass --yes")
