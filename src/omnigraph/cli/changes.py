"""`omnigraph changes` and `omnigraph commit changes`: what commits changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.baseline import baseline
from omnigraph.cli.change_options import Kinds, Ops, Types, print_changes
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_json, print_text
from omnigraph.engine.changes.feed import NOW, ChangeFeed, CommitChanges, describe_cause
from omnigraph.engine.changes.page import DEFAULT_CHANGES
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.client.compare import RemoteChangeFeed, RemoteCommitChanges

app = new_app(invoke_without_command=True)

Limit = Annotated[int | None, typer.Option("--limit", help="At most so many commits.", metavar="N", min=1)]


@app.callback()
def changes(
    context: typer.Context,
    branch: OnBranch = "main",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Where to start: the cursor of an earlier call, beginning (if not given), now, or after:ID.",
            metavar="CURSOR",
        ),
    ] = None,
    limit: Limit = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what the commits of a branch changed, oldest first, and a cursor to go on with."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    _print_feed_page(
        branch, uri, as_json=as_json, since=since, limit=limit, types=types, kinds=kinds, ops=ops
    )


@app.command()
def poll(
    branch: OnBranch = "main",
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where an earlier call ended.", metavar="CURSOR")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", help="Where to start: now (if not given), beginning, or after:ID.", metavar="WHERE"
        ),
    ] = None,
    limit: Limit = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what was changed since a cursor, and after all of it the cursor for the next time."""
    if cursor is not None and start is not None:
        raise BadRequest("--cursor and --start are mutually exclusive")
    since = cursor or start or NOW
    _print_feed_page(
        branch, uri, as_json=as_json, since=since, limit=limit, types=types, kinds=kinds, ops=ops
    )


app.command()(baseline)


def commit_changes(
    commit_id: Annotated[str, typer.Argument(help="The id of the commit.", metavar="ID")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="At most so many changes, and a token for the others.", metavar="N"),
    ] = None,
    page_token: Annotated[
        str | None,
        typer.Option("--page-token", help="Where an earlier call with a limit ended.", metavar="TOKEN"),
    ] = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what a commit changed against its first parent: all of it, or with a limit a page of it."""
    which: dict[str, Any] = {"types": types, "kinds": kinds, "ops": ops}
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        if limit is not None or page_token is not None:
            most = DEFAULT_CHANGES if limit is None else limit
            page = opened.commits.change_page(commit_id, page_token=page_token, limit=most, **which)
            if as_json:
                print_json(page.to_json())
                return
            shown = print_changes(page.changes)
            if page.next_page_token is not None:
                print_text(f"next page: {page.next_page_token}")
        else:
            found = opened.commits.changes(commit_id, **which)
            if as_json:
                listed = [change.to_json() for change in found]
                print_json({"cause": describe_cause(opened.commits.get(commit_id)), "changes": listed})
                return
            shown = print_changes(found)
    if not shown:
        print_text("no changes")


def _print_feed_page(branch: str, uri: str | None, *, as_json: bool, **which: Any) -> None:
    """Print the changes of a branch that a feed of the graph has, and where it ended."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        _print_feed(opened.changes(branch, **which), as_json=as_json)


def _print_feed(feed: ChangeFeed | RemoteChangeFeed, *, as_json: bool) -> None:
    if as_json:
        blocks = [block.to_json() for block in feed]
        print_json({"blocks": blocks, "cursor": feed.cursor, "caught_up": feed.caught_up})
        return
    for block in feed:
        _print_block(block)
    # Last: a reader that has it has seen everything before it.
    print_text(f"cursor: {feed.cursor}")


def _print_block(block: CommitChanges | RemoteCommitChanges) -> None:
    actor = f" actor={block.commit.actor}" if block.commit.actor else ""
    time = block.commit.time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_text(f"commit {block.commit.id} {time}{actor}")
    print_changes(block.changes, indent="  ")


def _refuse_options_before(context: typer.Context) -> None:
    """An option of the group that stands before a command of it would not be heard."""
    for option in context.command.params:
        name = option.name or ""
        given = context.params.get(name)
        if not name.startswith("global_") and given and given != option.get_default(context):
            command = context.invoked_subcommand
            raise BadRequest(
                f"{option.opts[0]} stands before `{command}`",
                remedy=f"write it after: omnigraph changes {command} {option.opts[0]} ...",
            )
