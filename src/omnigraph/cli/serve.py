"""`omnigraph serve`: a graph, or the graphs of a cluster, over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.addressing import Place, resolve_cluster, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.start import command
from omnigraph.errors import BadRequest, MissingExtra

PACKAGES = frozenset({"granian", "starlette"})

app = new_app()


@app.command()
def serve(
    place: Place = None,
    bind: Annotated[
        str,
        typer.Option(
            "--bind",
            envvar="OMNIGRAPH_BIND",
            help="Where to listen; port 0 lets the system choose one.",
            metavar="HOST:PORT",
        ),
    ] = "127.0.0.1:8080",
    policy: Annotated[
        Path | None, typer.Option("--policy", help="A policy bundle for the graph.", metavar="FILE")
    ] = None,
    server_policy: Annotated[
        Path | None,
        typer.Option("--server-policy", help="A policy bundle for the server itself.", metavar="FILE"),
    ] = None,
    queries: Annotated[
        list[Path] | None,
        typer.Option("--queries", help="Stored queries: a file or a folder of them.", metavar="FILE|DIR"),
    ] = None,
    unauthenticated: Annotated[
        bool, typer.Option("--unauthenticated", help="Serve without tokens: everybody may do everything.")
    ] = False,
    require_all_graphs: Annotated[
        bool, typer.Option("--require-all-graphs", help="Do not start when a graph cannot be served.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Serve newer revisions of the cluster as they are applied.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option("--workers", help="How many processes serve.", min=1, max=64, metavar="N"),
    ] = 1,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="A certificate chain, for HTTPS.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The key of the certificate.", metavar="FILE")
    ] = None,
) -> None:
    """Serve a graph, or what was applied of a --cluster, over HTTP until Ctrl-C or SIGTERM.

    Tokens are named by OMNIGRAPH_SERVER_BEARER_TOKENS_FILE and its like. The address is printed as
    OMNIGRAPH_LISTEN_ADDR=HOST:PORT once requests are answered.
    """
    cluster = resolve_cluster(place=place)
    store = resolve_graph(place=place) if cluster is None else None
    if cluster is not None and (policy or server_policy or queries):
        raise BadRequest(
            "a cluster has its own policies and stored queries",
            remedy="declare them in cluster.yaml, and leave out --policy, --server-policy and --queries",
        )
    if reload and cluster is None:
        raise BadRequest("--reload goes with --cluster: a single graph has no revisions")
    if (tls_cert is None) != (tls_key is None):
        raise BadRequest("--tls-cert and --tls-key go together")
    require_packages("omnigraph serve")
    from omnigraph.server import settings
    from omnigraph.server.start import serve as run

    run(
        settings.ServeOptions(
            store=store,
            bind=settings.Bind.parse(bind),
            policy=policy,
            server_policy=server_policy,
            queries=tuple(queries or ()),
            unauthenticated=unauthenticated or settings.is_set(settings.UNAUTHENTICATED),
            require_all_graphs=require_all_graphs or settings.is_set(settings.REQUIRE_ALL),
            tls_cert=tls_cert,
            tls_key=tls_key,
            limits=settings.Limits.from_environment(),
            cors_origins=settings.cors_origins(),
            workers=workers,
            cluster=cluster,
            reload=reload,
            reload_seconds=settings.reload_seconds(),
        )
    )


def require_packages(command: str) -> None:
    """Raise `MissingExtra` unless the packages of a server are installed."""
    from importlib.util import find_spec

    for package in sorted(PACKAGES):
        if find_spec(package) is None:
            raise MissingExtra(command, package=package, extra="server")


def server_command() -> int:
    """Run `omnigraph-server`, which is `omnigraph serve`."""
    sys.argv.insert(1, "serve")
    return command()
