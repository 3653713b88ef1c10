"""`omnigraph changes` and `omnigraph commit changes`: what commits changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Uri, addressed
from omnigraph.cli.change_options import Kinds, Ops, Types, print_changes
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_text
from omnigraph.engine.changes.feed import CommitChanges, cause

app = new_app()


@app.command()
def changes(
    branch: Annotated[str, typer.Option("--branch", help="The branch.", metavar="BRANCH")] = "main",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Where to start: the cursor of an earlier call, beginning (if not given), now, or after:ID.",
            metavar="CURSOR",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="At most so many commits.", metavar="N", min=1)
    ] = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what the commits of a branch changed, oldest first, and a cursor to go on with."""
    with graph.open(addressed(uri=uri), read_only=True) as opened:
        feed = opened.changes(branch, since=since, limit=limit, types=types, kinds=kinds, ops=ops)
        if as_json:
            blocks = [block.to_json() for block in feed]
            print_json({"blocks": blocks, "cursor": feed.cursor, "caught_up": feed.caught_up})
            return
        for block in feed:
            _print_block(block)
        print_text(f"cursor: {feed.cursor}")


def commit_changes(
    commit_id: Annotated[str, typer.Argument(help="The id of the commit.", metavar="ID")],
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what a commit changed against its first parent."""
    with graph.open(addressed(uri=uri), read_only=True) as opened:
        commit = opened.commits.get(commit_id)
        found = opened.commits.changes(commit_id, types=types, kinds=kinds, ops=ops)
        if as_json:
            report: dict[str, Any] = {"cause": cause(commit)}
            print_json({**report, "changes": [change.to_json() for change in found]})
        elif not print_changes(found):
            print_text("no changes")


def _print_block(block: CommitChanges) -> None:
    actor = f" actor={block.commit.actor}" if block.commit.actor else ""
    time = block.commit.time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_text(f"commit {block.commit.id} {time}{actor}")
    print_changes(block.changes, indent="  ")
