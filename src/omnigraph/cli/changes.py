"""`omnigraph changes`, `commit changes` and `diff`: what commits changed, and what differs at two moments."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_json, print_result, print_text
from omnigraph.display.text import escape_invisible, format_total, format_value
from omnigraph.engine.changes import DEFAULT_CHANGES
from omnigraph.engine.changes.change import ChangeOperation
from omnigraph.engine.files.atomic_output import new_file
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.client.compare import RemoteChangeFeed
    from omnigraph.client.exports import Baseline
    from omnigraph.client.feed_pages import RemoteCommitChanges
    from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeFilter, EntityImage
    from omnigraph.engine.changes.feed import ChangeFeed, CommitChanges
    from omnigraph.engine.export.export_request import ExportResult
    from omnigraph.snapshot import Snapshot
from typing import Literal

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only this type; may be repeated.", metavar="TYPE")
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only node or edge; may be repeated.", metavar="KIND")
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="Only insert, update or delete; may be repeated.", metavar="OP"),
]

Stat = Annotated[bool, typer.Option("--stat", help="Only count, type by type.")]

SIGNS = {ChangeOperation.INSERT: "+", ChangeOperation.UPDATE: "~", ChangeOperation.DELETE: "-"}


def print_changes(changes: Iterable[Change], indent: str = "") -> int:
    """Changes for people, as they are read; says how many there were."""
    count = 0
    for change in changes:
        print_text("\n".join(f"{indent}{line}" for line in render_change(change)))
        count += 1
    return count


def render_change(change: Change) -> Iterator[str]:
    """A change for people: a line about the entity, and one for each value."""
    yield f"{SIGNS[change.op]} {change.kind} {change.type_name} {escape_invisible(change.id)}"
    before, after = _list_values(change.before), _list_values(change.after)
    if change.op is ChangeOperation.UPDATE:
        for name in change.changed:
            was, now = format_value(before.get(name)), format_value(after.get(name))
            yield f"    {escape_invisible(name)}: {was} -> {now}"
        return
    for name, value in (after or before).items():
        if value is not None:
            yield f"    {escape_invisible(name)}: {format_value(value)}"


def _list_values(image: EntityImage | None) -> dict[str, Any]:
    if image is None:
        return {}
    ends = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}


def stat_lines(stats: Mapping[str, ChangeCounts]) -> list[str]:
    """Counts for people, a line for each type."""
    return [
        f"{key}: {stat.inserted} inserted, {stat.updated} updated, {stat.deleted} deleted"
        for key, stat in stats.items()
    ]


def baseline(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.", metavar="FILE")],
    branch: OnBranch = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Write all entities of a branch to a file of NDJSON, then print the cursor to poll with from there on.

    The file is complete and on disk before the cursor is printed. Two such calls for one file wait for each
    other.
    """
    from omnigraph.engine.changes.change import parse_filter

    wanted = parse_filter(kinds, types, ops)
    require_output(out)
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened, _hold_alone(out):
        if isinstance(opened, graph.Graph):
            done = _capture_baseline(opened, out, branch, wanted)
        else:
            with new_file(out, overwrite=True) as temporary, temporary.open("wb") as stream:
                done = opened.baseline(stream, branch, types=types, kinds=kinds, ops=ops)
    report = {
        "out": str(out),
        "rows": done.rows,
        "bytes": done.bytes,
        "baseline": {"snapshot_commit_id": done.snapshot_id, "resume_cursor": done.cursor},
    }
    print_result(
        report,
        f"wrote {format_total(done.rows, 'entity', 'entities')} to {out}\ncursor: {done.cursor}",
        as_json=as_json,
    )


def _capture_baseline(opened: graph.Graph, out: Path, branch: str, wanted: ChangeFilter) -> Baseline:
    """Write the entities of a branch as it is now, and find the cursor for what comes after them."""
    from omnigraph.client.exports import Baseline
    from omnigraph.engine.changes.feed import AFTER, NOW

    moment = opened.snapshot(branch)
    since = NOW if moment.commit is None else f"{AFTER}{moment.commit.id}"
    words = wanted.to_json()
    feed = opened.changes(branch, since=since, types=words["types"], kinds=words["kinds"], ops=words["ops"])
    with new_file(out, overwrite=True) as temporary, temporary.open("wb") as stream:
        done = _export_entities(moment, _choose_types(moment, wanted), stream)
    return Baseline(moment.id, feed.cursor, done.rows, done.bytes)


def _export_entities(moment: Snapshot, types: list[str] | None, stream: BinaryIO) -> ExportResult:
    """Write the entities; a line may be longer than a load takes, as the feed that follows has such, too."""
    from omnigraph.engine.export.export_request import ExportRequest
    from omnigraph.engine.export.exporter import export
    from omnigraph.snapshot import pinned_by

    chosen = None if types is None else tuple(types)
    return export(*pinned_by(moment), ExportRequest(stream, types=chosen, loadable=False))


def _choose_types(moment: Snapshot, wanted: ChangeFilter) -> list[str] | None:
    """The types that the filter lets through; None for all."""
    from omnigraph.engine.changes.change import require_types

    require_types(wanted, moment.tables)
    if not wanted.kinds and not wanted.types:
        return None
    return [key for key in moment.tables if wanted.wants_table(key)]


@contextmanager
def _hold_alone(out: Path) -> Iterator[None]:
    try:
        gate = out.with_name(f"{out.name}.lock").open("a")
    except OSError as failure:
        raise BadRequest(f"cannot write '{out}': {failure.strerror}", remedy="check the path") from failure
    with gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


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
    stat: Stat = False,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show what the commits of a branch changed, oldest first, and a cursor to go on with."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    which: dict[str, Any] = {"since": since, "limit": limit, "types": types, "kinds": kinds, "ops": ops}
    _print_feed_page(branch, uri, as_json=as_json, stat=stat, **which)


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
    from omnigraph.engine.changes.feed import NOW

    if cursor is not None and start is not None:
        raise BadRequest("--cursor and --start are mutually exclusive")
    since = cursor or start or NOW
    which: dict[str, Any] = {"since": since, "limit": limit, "types": types, "kinds": kinds, "ops": ops}
    _print_feed_page(branch, uri, as_json=as_json, **which)


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
    from omnigraph.engine.changes.feed import describe_cause

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


def _print_feed_page(
    branch: str, uri: str | None, *, as_json: bool, stat: bool = False, **which: Any
) -> None:
    """Print the changes of a branch that a feed of the graph has, and where it ended."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        _print_feed(opened.changes(branch, **which), as_json=as_json, stat=stat)


def _print_feed(feed: ChangeFeed | RemoteChangeFeed, *, as_json: bool, stat: bool) -> None:
    if as_json:
        blocks = [_count_block(block) if stat else block.to_json() for block in feed]
        print_json({"blocks": blocks, "cursor": feed.cursor, "caught_up": feed.caught_up})
        return
    for block in feed:
        _print_block(block, stat=stat)
    # Last: a reader that has it has seen everything before it.
    print_text(f"cursor: {feed.cursor}")


def _count_block(block: CommitChanges | RemoteCommitChanges) -> dict[str, Any]:
    """A commit with the counts of its changes, as scripts read it."""
    from omnigraph.engine.changes.feed import describe_cause

    stats = block.stat()
    return {
        "cause": describe_cause(block.commit),
        "stats": {key: one.to_json() for key, one in stats.items()},
    }


def _print_block(block: CommitChanges | RemoteCommitChanges, *, stat: bool) -> None:
    actor = f" actor={block.commit.actor}" if block.commit.actor else ""
    time = block.commit.time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_text(f"commit {block.commit.id} {time}{actor}")
    if stat:
        print_text("\n".join(f"  {line}" for line in stat_lines(block.stat())))
        return
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


DIFFERENT = 1

diff_app = new_app()

A = Annotated[
    str, typer.Argument(help="A branch, a commit, a time, BRANCH@TIME or BRANCH@vVERSION.", metavar="A")
]
B = Annotated[str, typer.Argument(help="What to compare it with, named in the same way.", metavar="B")]


@diff_app.command()
def diff(
    a: A,
    b: B,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    stat: Stat = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")
    ] = False,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        typer.Option("--engine", help="Where the work is done; by the size of the change, if not said."),
    ] = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes that lead from A to B: what was inserted, updated and deleted."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = opened.diff(a, b, types=types, kinds=kinds, ops=ops, engine=engine)
        if as_json:
            print_json(found.about() if stat else found.to_json())
        elif stat:
            print_text("\n".join(stat_lines(found.stat())) or "no changes")
        elif not print_changes(found):
            print_text("no changes")
        if exit_code and found:
            raise typer.Exit(DIFFERENT)
