"""What a graph, its branches, its commits and a snapshot hold, as tables for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from omnigraph.display.markup import FIRST_ROWS, Cell, Heading, render_html_table
from omnigraph.engine.branches.manage import BranchInfo, list_branches
from omnigraph.engine.changes.diff import table_order
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.lineage import Commit, newest_first
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot

RenderTable = Callable[[str, Sequence[Heading], Iterable[Sequence[Cell]], Iterable[str]], str]
"""How a table is written: as HTML, or as text."""

_TYPES = [Heading("type"), Heading("kind"), Heading("rows", is_number=True)]
_PINNED = [*_TYPES, Heading("version", is_number=True), Heading("written on")]
_COMMITS = [
    Heading("commit"),
    Heading("branch"),
    Heading("version", is_number=True),
    Heading("time"),
    Heading("actor"),
]
_BRANCHES = [Heading("branch"), Heading("made from"), *(Heading(it) for it in ("commit", "time", "actor"))]


def graph_page(graph: OpenGraph) -> str:
    """The types of main with their rows, the branches and the newest commit."""
    now = graph.snapshot(AtBranch(MAIN))
    state = ", read-only" if graph.read_only else ""
    names = [found.name for found in list_branches(graph)]
    rest = [f"branches: {', '.join(names[:FIRST_ROWS])}", *_describe_more(names, "branch", "branches")]
    if now.commit is not None:
        rest.append(f"newest commit of {MAIN}: {_describe_commit(now.commit)}")
    rows = ([name, kind, entry.row_count] for kind, name, entry in _sort_entries(now.entries))
    return render_html_table(f"Graph {graph.root.uri}{state}", _TYPES, rows, rest)


def snapshot_page(pinned: Snapshot) -> str:
    """The types of a snapshot with their rows, and where each was written."""
    rows = (
        [name, kind, entry.row_count, entry.version, entry.owner or MAIN]
        for kind, name, entry in _sort_entries(pinned.entries)
    )
    rest = [] if pinned.commit is None else [f"newest commit: {_describe_commit(pinned.commit)}"]
    return render_html_table(f"Snapshot of {pinned.branch} at version {pinned.version}", _PINNED, rows, rest)


def branches_page(graph: OpenGraph, render: RenderTable = render_html_table) -> str:
    """The first branches, each with its newest commit."""
    found = list_branches(graph)
    rows = (_branch_cells(graph, info) for info in found[:FIRST_ROWS])
    return render(
        f"Branches of {graph.root.uri}", _BRANCHES, rows, _describe_more(found, "branch", "branches")
    )


def commits_page(graph: OpenGraph, render: RenderTable = render_html_table) -> str:
    """The newest commits of main."""
    found = newest_first(graph.load(MAIN).state.commits.values())
    rows = (
        [commit.id, commit.branch, commit.version, _format_moment(commit), commit.actor]
        for commit in found[:FIRST_ROWS]
    )
    caption = f"Commits of {MAIN} of {graph.root.uri}"
    return render(caption, _COMMITS, rows, _describe_more(found, "commit", "commits"))


def _branch_cells(graph: OpenGraph, info: BranchInfo) -> list[Cell]:
    head = graph.load(info.name).state.head
    newest = [None] * 3 if head is None else [head.id, _format_moment(head), head.actor]
    return [info.name, info.source, *newest]


def _sort_entries(entries: Mapping[str, TableEntry]) -> Iterable[tuple[str, str, TableEntry]]:
    return ((*split_key(key), entries[key]) for key in sorted(entries, key=table_order))


def _describe_more(found: Sequence[object], one: str, several: str) -> list[str]:
    rest = len(found) - FIRST_ROWS
    return [f"… {rest} more {one if rest == 1 else several}"] if rest > 0 else []


def _describe_commit(commit: Commit) -> str:
    by = "" if commit.actor is None else f" by {commit.actor}"
    return f"{commit.id} of {_format_moment(commit)}{by}"


def _format_moment(commit: Commit) -> str:
    return commit.time.strftime("%Y-%m-%d %H:%M:%S UTC")
