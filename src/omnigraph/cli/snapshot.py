"""`omnigraph snapshot`: what a graph consists of, now or in the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Place, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, Branch, Version
from omnigraph.cli.output import print_result

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.snapshot import RemoteSnapshot
    from omnigraph.graph import Graph
    from omnigraph.snapshot import Snapshot, TableInfo

app = new_app()


@app.command()
def snapshot(
    place: Place = None,
    branch: Branch = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="As a commit or tag has it.", metavar="ID")
    ] = None,
    version: Version = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="The branch at this time, such as 2030-01-31T12:00:00Z.", metavar="TIME"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the version and size of every type, now or at a commit, version or time."""
    with open_graph(resolve_graph(place=place), read_only=True) as opened:
        if commit is None and version is None and time is None:
            found = opened.snapshot("main" if branch is None else branch)
        else:
            found = opened.at(commit=commit, version=version, time=time, branch=branch)
        print_result(_to_json(opened, found), _render_text(found), as_json=as_json)


def _render_text(found: Snapshot | RemoteSnapshot) -> str:
    lines = [
        f"graph_branch: {found.branch}",
        f"graph_manifest_version: {found.version}",
        f"graph_commit_id: {found.id}",
    ]
    lines += [
        f"{key} version={table.version} branch={table.branch} rows={_count_rows(table)}"
        for key, table in found.tables.items()
    ]
    return "\n".join(lines)


def _to_json(opened: Graph | RemoteGraph, found: Snapshot | RemoteSnapshot) -> dict[str, Any]:
    """A snapshot as scripts read it; members that had another name once have both."""
    return {
        "graph_branch": found.branch,
        "branch": found.branch,
        "graph_manifest_version": found.version,
        "manifest_version": found.version,
        "graph_commit_id": found.commit.id if found.commit else None,
        "internal_schema_version": opened.format_version,
        "datasets": [_dataset_to_json(key, table) for key, table in found.tables.items()],
        "tables": [_table_to_json(key, table) for key, table in found.tables.items()],
    }


def _dataset_to_json(key: str, table: TableInfo) -> dict[str, Any]:
    kind, _, name = key.partition(":")
    return {
        "entity_kind": kind,
        "type_name": name,
        "dataset_path": table.path,
        "published_dataset_version": table.version,
        "native_dataset_branch": _native_branch(table),
        "entity_count": _count_rows(table),
    }


def _table_to_json(key: str, table: TableInfo) -> dict[str, Any]:
    return {
        "table_key": key,
        "table_path": table.path,
        "table_version": table.version,
        "table_branch": _native_branch(table),
        "row_count": _count_rows(table),
    }


def _native_branch(table: TableInfo) -> str | None:
    return None if table.branch == "main" else table.branch


def _count_rows(table: TableInfo) -> int:
    return 0 if table.rows is None else table.rows
