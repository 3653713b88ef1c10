"""`omnigraph repair`: tables that were modified outside omnigraph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.engine.maintenance.repair import RepairAction, RepairedTable, RepairResult

app = new_app()


@app.command()
def repair(
    place: Place = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Publish what is known to have changed no row.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish everything as it is, unchecked; needs --confirm.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for tables with versions that no commit explains; exits with 1 when one of them is refused.

    Nothing is changed without --confirm. Rows are never moved, only what a branch publishes.
    """
    uri = resolve_graph(place=place)
    with graph.open(uri, read_only=not confirm) as opened:
        done = opened.repair(confirm=confirm, force=force)
        where = opened.uri
    print_result(_to_json(where, done, confirm), "\n".join(_render_lines(done)), as_json=as_json)
    if confirm:
        echo_write("repair", where)
    if not done.ok:
        raise typer.Exit(1)


def _to_json(uri: str, done: RepairResult, confirm: bool) -> dict[str, Any]:
    return {
        "uri": uri,
        "confirmed": confirm,
        "ok": done.ok,
        "tables": [_table_to_json(one) for one in done.tables],
        "commits": [commit_json(commit) for commit in done.commits],
    }


def _table_to_json(one: RepairedTable) -> dict[str, Any]:
    return {
        "table_key": one.key,
        "branch": one.branch,
        "pinned": one.pinned,
        "head": one.head,
        "classification": one.classification,
        "action": one.action,
        "reason": one.reason,
    }


def _render_lines(done: RepairResult) -> Iterator[str]:
    found = [one for one in done.tables if one.action is not RepairAction.NO_OP or one.reason]
    for one in found:
        kind = f"{one.classification}, " if one.classification else ""
        yield (
            f"{one.key} on {one.branch} is at version {one.head}, the branch shows {one.pinned}: "
            f"{kind}{one.action}: {one.reason}"
        )
    for commit in done.commits:
        yield f"commit {commit.id} on branch '{commit.branch}' by {commit.actor}"
    if not found:
        yield "nothing to repair"
