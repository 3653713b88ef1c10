"""`omnigraph blame`: the commits that changed one entity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.changes import render_change
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_result
from omnigraph.display.text import escape_invisible
from omnigraph.engine.changes import DEFAULT_ENTRIES

if TYPE_CHECKING:
    from omnigraph.engine.changes.entity_history import EntityChange, EntityHistory

app = new_app()


@app.command()
def blame(
    type_name: Annotated[str, typer.Argument(help="Its type, or node:Name and edge:Name.", metavar="TYPE")],
    entity_id: Annotated[str, typer.Argument(help="The id of the node or edge.", metavar="ID")],
    branch: OnBranch = "main",
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="At most so many commits.", metavar="N", min=1)
    ] = DEFAULT_ENTRIES,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """List the commits that changed one node or edge, newest first, and what each changed."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = opened.history(type_name, entity_id, branch=branch, limit=limit)
    changes = [{**commit_json(one.commit), "change": one.change.to_json()} for one in found]
    report = {"commits": changes, "reclaimed": found.reclaimed}
    print_result(report, "\n".join(_render_history(found)), as_json=as_json)


def _render_history(found: EntityHistory) -> Iterator[str]:
    for one in found:
        yield from _render_entry(one)
    if found.reclaimed:
        yield "older changes are unknown: a cleanup removed versions of this type"
    elif not found.changes:
        yield "no commits"


def _render_entry(entry: EntityChange) -> Iterator[str]:
    commit = entry.commit
    parts = [
        commit.id,
        commit.time.isoformat(timespec="seconds").replace("+00:00", "Z"),
        escape_invisible(commit.actor) if commit.actor else "-",
        f"[{commit.operation}]" if commit.operation else "",
        escape_invisible(commit.subject) if commit.subject else "",
    ]
    yield "  ".join(part for part in parts if part)
    yield from (f"  {line}" for line in render_change(entry.change))
