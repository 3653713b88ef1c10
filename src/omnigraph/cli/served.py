"""Graphs behind servers: the URL and the token of the one that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from omnigraph.cli.config_file import current_config
from omnigraph.cli.credentials import find_token
from omnigraph.errors import BadRequest, OmnigraphError

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.graph import Graph


def resolve_server(named: str) -> str:
    """Return the URL of a server: the value itself, or that of a server in the config file."""
    if "://" in named:
        return named.rstrip("/")
    config = current_config()
    found = config.servers.get(named)
    if found is None:
        known = ", ".join(config.servers) or "none"
        raise BadRequest(f"there is no server '{named}'", remedy=f"servers in {config.place}: {known}")
    return found.rstrip("/")


def resolve_served_graph(named: str, graph_id: str | None) -> str:
    """Return the URL of a graph; without an id that of the server, unless it lists its graphs."""
    base = resolve_server(named)
    if graph_id is not None:
        return f"{base}/graphs/{quote(graph_id, safe='')}"
    try:
        listed = [one["graph_id"] for one in list_graphs(base)]
    except OmnigraphError:
        return base  # it does not say which graphs it has: perhaps the URL is that of one
    if listed:
        raise BadRequest(
            f"no graph of '{named}' is named", remedy=f"pass --graph with one of: {', '.join(listed)}"
        )
    return base


def connect_served(url: str) -> RemoteGraph:
    """Return the graph at a URL, with the token for it."""
    from omnigraph.client.graph import connect

    return connect(url, token=find_token(url, current_config().servers))


def require_remote(opened: Graph | RemoteGraph) -> RemoteGraph:
    """Return a graph that is known to be behind a server."""
    from omnigraph.client.graph import RemoteGraph

    if not isinstance(opened, RemoteGraph):
        raise BadRequest("only a server stores queries", remedy="name a file with --query")
    return opened


def refuse_moment(version: int | None, time: str | None) -> None:
    """Refuse a version or a time: a stored query reads a branch, or the graph as a commit left it."""
    if version is not None or time is not None:
        raise BadRequest(
            "a stored query reads a branch or a commit",
            remedy="leave out --version and --at, or name a --commit",
        )


def list_graphs(base: str) -> list[dict[str, Any]]:
    """Return the graphs of a server, by id."""
    from omnigraph.client.reads import list_graphs as list_graphs_call
    from omnigraph.client.transport import DEFAULT_TIMEOUT, Address, Transport

    address = Address.parse(base, find_token(base, current_config().servers), DEFAULT_TIMEOUT)
    transport = Transport(address)
    try:
        return transport.send(list_graphs_call())
    finally:
        transport.close()
