"""`omnigraph queries`: the stored queries that a cluster applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.addressing import require_cluster, resolve_graph_id
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.errors import CompileError, GraphNotApplied

if TYPE_CHECKING:
    from omnigraph.server.sources import GraphSource
    from omnigraph.server.stored_queries import StoredQuery

app = new_app(help="List the stored queries of a cluster, and check them.")


@app.command(name="list")
def list_queries(as_json: AsJson = False) -> None:
    """List the stored queries that were applied, with their parameters."""
    from omnigraph.server.stored_queries import parse_stored_queries

    found = [
        _describe(source.graph_id, query)
        for source in _applied_graphs()
        for _, query in sorted(parse_stored_queries(source.queries).items())
    ]
    print_result({"queries": found}, "\n".join(map(_line, found)) or "no stored queries", as_json=as_json)


@app.command()
def validate(as_json: AsJson = False) -> None:
    """Check the stored queries against the live schemas; exits with 1 when one does not fit."""
    breakages: list[dict[str, str]] = []
    warnings: list[dict[str, str]] = []
    checked = 0
    for source in _applied_graphs():
        count, broken, noted = _check(source)
        checked += count
        breakages += broken
        warnings += noted
    body = {"ok": not breakages, "breakages": breakages, "warnings": warnings}
    lines = [f"{one['graph']}.{one['query']}: {one['message']}" for one in (*breakages, *warnings)]
    lines.append(
        f"stored queries {'broken' if breakages else 'valid'}: {checked} checked, {len(breakages)} broken"
    )
    print_result(body, "\n".join(lines), as_json=as_json)
    if breakages:
        raise typer.Exit(1)


def _applied_graphs() -> list[GraphSource]:
    """Return the graphs of the cluster, or the one that was chosen."""
    from omnigraph.server.cluster_source import ClusterSource

    cluster, wanted = require_cluster(), resolve_graph_id()
    graphs = ClusterSource(cluster).load().graphs
    if wanted is None:
        return list(graphs)
    chosen = [one for one in graphs if one.graph_id == wanted]
    if not chosen:
        raise GraphNotApplied(cluster, wanted, [one.graph_id for one in graphs])
    return chosen


def _check(source: GraphSource) -> tuple[int, list[dict[str, str]], list[dict[str, str]]]:
    """Return how many queries of a graph there are, those that do not fit, and what is odd about others."""
    from omnigraph import graph
    from omnigraph.server.stored_queries import list_warnings, parse_stored_queries

    queries = parse_stored_queries(source.queries)
    with graph.open(source.uri, read_only=True) as opened:
        catalog = opened.schema
    broken = []
    for name, query in sorted(queries.items()):
        try:
            query.check(catalog)
        except CompileError as error:
            broken.append({"graph": source.graph_id, "query": name, "message": error.message})
    noted = [
        {"graph": source.graph_id, "query": name, "message": message}
        for name, message in list_warnings(queries, catalog)
    ]
    return len(queries), broken, noted


def _describe(graph_id: str, query: StoredQuery) -> dict[str, Any]:
    parsed = query.query
    optional = {"description": parsed.description, "instruction": parsed.instruction}
    return {
        "graph": graph_id,
        "name": query.name,
        "mcp_expose": True,
        "tool_name": query.name,
        "mutation": query.is_mutation,
        **{name: text for name, text in optional.items() if text is not None},
        "params": [
            {"name": one.name, "type": str(one.type).removesuffix("?"), "nullable": one.type.nullable}
            for one in parsed.parameters
        ],
    }


def _line(query: dict[str, Any]) -> str:
    shown = ", ".join(_spell(query["params"]))
    kind = "mutation" if query["mutation"] else "read"
    return f"{query['graph']}.{query['name']}({shown})  {kind}"


def _spell(parameters: list[dict[str, Any]]) -> Iterator[str]:
    for one in parameters:
        yield f"${one['name']}: {one['type']}{'?' if one['nullable'] else ''}"
