"""`omnigraph log`, `show` and `status`: the history of a graph, a commit of it, and how it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Place, Uri, open_graph, resolve_graph
from omnigraph.cli.changes import Stat, print_changes, stat_lines
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.lanes import draw_lanes
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_json, print_result, print_text
from omnigraph.display.text import escape_invisible, format_count
from omnigraph.engine.changes import DEFAULT_ENTRIES

if TYPE_CHECKING:
    from omnigraph.engine.changes.change import ChangeCounts
    from omnigraph.engine.changes.log import LogEntry
    from omnigraph.engine.graph.lineage import Commit
    from omnigraph.history import BranchStatus, GraphStatus

app = new_app()
show_app = new_app()
status_app = new_app()

SHOWN_CHANGES = 100


@app.command()
def log(
    place: Place = None,
    branch: OnBranch = "main",
    as_graph: Annotated[
        bool, typer.Option("--graph", help="All branches, with lines from commit to commit.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All branches, without lines.")] = False,
    actor: Annotated[
        str | None, typer.Option("--actor", help="Only what this actor did.", metavar="ACTOR")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="At most so many commits.", metavar="N", min=1)
    ] = DEFAULT_ENTRIES,
    stat: Annotated[bool, typer.Option("--stat/--no-stat", help="Count what each commit changed.")] = True,
    as_json: AsJson = False,
) -> None:
    """List commits, newest first: when, by whom, how many entities changed, and the message."""
    if as_graph and actor is not None:
        raise typer.BadParameter("lines need all commits; leave --actor out", param_hint="--graph")
    with open_graph(resolve_graph(place=place), read_only=True) as opened:
        found = opened.log(branch, all_branches=as_graph or everything, actor=actor, limit=limit, stat=stat)
    if as_json:
        print_json({"commits": [{**commit_json(one.commit), **one.to_json()} for one in found]})
        return
    if not found:
        print_text("no commits")
    for line in _render_graph(found) if as_graph else map(_render_entry, found):
        print_text(line)


@show_app.command()
def show(
    commit: Annotated[str, typer.Argument(help="The id of the commit, or a tag.", metavar="COMMIT")],
    stat: Stat = False,
    limit: Annotated[
        int, typer.Option("--limit", help="Print at most so many changes.", metavar="N", min=1)
    ] = SHOWN_CHANGES,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show a commit: who made it, when, its message, and what it changed against its first parent."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = opened.show(commit)
        stats = found.stat()
        listed = () if stat or found.changes is None else islice(found.changes, limit)
        if as_json:
            counts = {key: one.to_json() for key, one in stats.items()}
            changes = None if stat else [change.to_json() for change in listed]
            print_json({**commit_json(found.commit), "stats": counts, "changes": changes})
            return
        print_text("\n".join([*_render_head(found.commit), *stat_lines(stats)]))
        if not stats:
            print_text("no changes")
            return
        shown = print_changes(listed)
    total = sum(one.inserted + one.updated + one.deleted for one in stats.values())
    if not stat and total > shown:
        print_text(f"... and {format_count(total - shown, 'more change')}; --limit prints more")


@status_app.command()
def status(place: Place = None, branch: OnBranch = "main", as_json: AsJson = False) -> None:
    """Show a branch at a glance: its newest commit, its rows, and how other branches stand beside main."""
    with open_graph(resolve_graph(place=place), read_only=True) as opened:
        found = opened.status(branch)
    print_result(found.to_json(), "\n".join(_render_status(found)), as_json=as_json)


def _render_graph(found: Sequence[LogEntry]) -> Iterator[str]:
    for entry, (above, start) in zip(found, draw_lanes([one.commit for one in found]), strict=True):
        yield from above
        yield f"{start} {_render_entry(entry)}"


def _render_entry(entry: LogEntry) -> str:
    commit = entry.commit
    shown = [*entry.branches, *(f"tag: {name}" for name in entry.tags)]
    names = f"({', '.join(shown)})" if shown else ""
    what = "upkeep" if entry.is_upkeep else "merge" if commit.merged_parent is not None else ""
    parts = [
        commit.id,
        _render_time(commit),
        escape_invisible(commit.actor) if commit.actor else "-",
        names,
        f"[{what}]" if what else "",
        escape_invisible(commit.subject) if commit.subject else "",
        _render_counts(entry.changes),
    ]
    return "  ".join(part for part in parts if part)


def _render_counts(changes: Mapping[str, ChangeCounts] | None) -> str:
    return ", ".join(f"{key.partition(':')[2]} {_render_count(one)}" for key, one in (changes or {}).items())


def _render_count(counts: ChangeCounts) -> str:
    signed = (("+", counts.inserted), ("~", counts.updated), ("-", counts.deleted))
    return " ".join(f"{sign}{number}" for sign, number in signed if number)


def _render_time(commit: Commit) -> str:
    return commit.time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _render_head(commit: Commit) -> Iterator[str]:
    facts: dict[str, Any] = {
        "commit": commit.id,
        "branch": commit.branch,
        "parent": commit.parent,
        "merged": commit.merged_parent,
        "actor": commit.actor and escape_invisible(commit.actor),
        "time": commit.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "operation": commit.operation,
    }
    yield from (f"{name}: {value}" for name, value in facts.items() if value is not None)
    if commit.message is not None:
        yield ""
        yield from (f"    {escape_invisible(line)}" for line in commit.message.strip().split("\n"))
        yield ""


def _render_status(found: GraphStatus) -> Iterator[str]:
    yield f"graph: {found.uri}"
    yield f"on branch {found.branch}, {format_count(found.commits, 'commit')}"
    if found.head is not None:
        subject = f"  {escape_invisible(found.head.subject)}" if found.head.subject else ""
        yield f"newest: {found.head.id}  {_render_time(found.head)}{subject}"
    yield from (f"  {key}: {format_count(count, 'row')}" for key, count in found.rows.items())
    yield from map(_render_branch, found.branches)
    if found.interrupted:
        writes = format_count(found.interrupted, "write")
        yield f"{writes} on record that did not finish, or go on now: see `omnigraph recover --dry-run`"


def _render_branch(branch: BranchStatus) -> str:
    return f"branch {branch.name}: {branch.ahead} ahead of main, {branch.behind} behind"
