"""`omnigraph commit`: the history of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Place, Uri, open_graph, resolve_graph
from omnigraph.cli.changes import commit_changes
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_result
from omnigraph.display.text import escape_invisible
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.tags import tags_by_commit
from omnigraph.errors import NotFound

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.graph import Graph

app = new_app()


@app.callback()
def commit() -> None:
    """Look at the history of a graph."""


@app.command(name="list")
def list_(
    place: Place = None,
    branch: OnBranch = "main",
    only: Annotated[
        str | None, typer.Option("--filter", help="Only what this actor did.", metavar="actor=ID")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="At most so many.", metavar="N", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the commits of a branch, newest first."""
    actor = _parse_actor(only)
    with open_graph(resolve_graph(place=place), read_only=True) as opened:
        found = opened.commits.list(branch, actor=actor, limit=limit)
        tags = _read_tags(opened)
    report = {"commits": [{**commit_json(one), "tags": list(tags.get(one.id, ()))} for one in found]}
    lines = (_render_line(one, tags.get(one.id, ())) for one in found)
    print_result(report, "\n".join(lines) or "no commits", as_json=as_json)


@app.command()
def show(
    commit_id: Annotated[str, typer.Argument(help="The id of the commit, or a tag.", metavar="ID")],
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show one commit, on whatever branch it is."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = opened.commits.get(commit_id)
        tags = _read_tags(opened).get(found.id, ())
    text = _render_text(found) + (f"\ntags: {', '.join(tags)}" if tags else "")
    print_result({**commit_json(found), "tags": list(tags)}, text, as_json=as_json)


app.command(name="changes")(commit_changes)


def _parse_actor(only: str | None) -> str | None:
    if only is None:
        return None
    member, _, value = only.partition("=")
    if member != "actor" or not value:
        raise typer.BadParameter(f"'{only}' is not of the form actor=ID", param_hint="--filter")
    return value


def commit_json(found: Commit) -> dict[str, Any]:
    """A commit as scripts read it; members that had another name once have both."""
    branch = None if found.branch == "main" else found.branch
    return {
        "graph_commit_id": found.id,
        "graph_branch": branch,
        "manifest_branch": branch,
        "graph_manifest_version": found.version,
        "manifest_version": found.version,
        "parent_commit_id": found.parent,
        "merged_parent_commit_id": found.merged_parent,
        "actor_id": found.actor,
        "created_at": found.created_at,
        "message": found.message,
        "operation": found.operation,
    }


def _read_tags(graph: Graph | RemoteGraph) -> Mapping[str, tuple[str, ...]]:
    """Return the tags by commit; a server of the reference implementation has none."""
    try:
        return tags_by_commit(graph.tags.list())
    except NotFound:
        return {}


def _render_line(found: Commit, tags: Sequence[str]) -> str:
    actor = f" actor={found.actor}" if found.actor else ""
    names = f" tags={','.join(tags)}" if tags else ""
    return f"{found.id} graph_branch={found.branch} graph_manifest_version={found.version}{actor}{names}"


def _render_text(found: Commit) -> str:
    facts = {
        "graph_commit_id": found.id,
        "graph_branch": found.branch,
        "graph_manifest_version": found.version,
        "parent_commit_id": found.parent,
        "merged_parent_commit_id": found.merged_parent,
        "actor_id": found.actor,
        "created_at": found.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "operation": found.operation,
        "message": found.message and escape_invisible(found.message),
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value is not None)
