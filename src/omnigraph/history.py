"""What a graph has had so far: its branches and its commits."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from omnigraph.arguments import check_all_arguments, check_arguments
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_CHANGES, DEFAULT_ENTRIES
from omnigraph.engine.graph import lineage
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import InvalidValue, OmnigraphError

if TYPE_CHECKING:
    from omnigraph.engine.changes.change import ChangeCounts
    from omnigraph.engine.changes.diff import Diff
    from omnigraph.engine.changes.log import LogEntry
    from omnigraph.engine.changes.page import CommitPage
    from omnigraph.engine.graph.tags import Tag
    from omnigraph.snapshot import Snapshot


@check_arguments
class Branches:
    """The branches of a graph; iterating gives their names, main first."""

    def __init__(self, uri: str, reading: Callable[[], OpenGraph], writing: Callable[[], OpenGraph]) -> None:
        self._uri = uri
        self._reading = reading
        self._writing = writing

    def create(
        self, name: str, *, from_: str | Snapshot | Commit | datetime = MAIN, actor: str | None = None
    ) -> str:
        """Make a branch that starts as `from_` is now, and say its name; no data is copied.

        `from_` is a branch, or an older moment, named as for `Graph.diff`: a commit, tag or time. `actor` is
        who asks, where the graph has a policy; nothing records it, because this is no commit.
        """
        from omnigraph.engine.branches import manage as control
        from omnigraph.snapshot import resolve_start

        opened = self._writing()
        start = resolve_start(opened, from_)
        if isinstance(start, str):
            return control.create_branch(opened, name, from_branch=start, actor=actor).name
        return control.create_branch_at(opened, name, start, actor=actor).name

    def list(self) -> builtins.list[str]:
        """The names: main first, then the others in order."""
        from omnigraph.engine.branches import manage as control

        return [found.name for found in control.list_branches(self._reading())]

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Remove a branch and what only it has; refused for main and while another branch needs it."""
        from omnigraph.engine.branches import manage as control

        control.delete_branch(self._writing(), name, actor=actor)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in self.list()

    def __repr__(self) -> str:
        from omnigraph.display.grid import render_text_table
        from omnigraph.notebook.overview import branches_page

        try:
            return branches_page(self._reading(), render_text_table)
        except OmnigraphError:  # closed or out of reach: a prompt and a debugger show at least where it is
            return f"<Branches of '{self._uri}'>"

    def _repr_html_(self) -> str:
        from omnigraph.notebook.overview import branches_page

        return branches_page(self._reading())


@check_arguments
class Tags:
    """The tags of a graph: names of commits, which stay readable; iterating gives their names."""

    def __init__(self, uri: str, reading: Callable[[], OpenGraph], writing: Callable[[], OpenGraph]) -> None:
        self._uri = uri
        self._reading = reading
        self._writing = writing

    def create(
        self,
        name: str,
        *,
        at: str | Snapshot | Commit | datetime = MAIN,
        message: str | None = None,
        force: bool = False,
        actor: str | None = None,
    ) -> Tag:
        """Name the commit of a moment, which is named as for `Graph.diff`; `force` moves an existing tag."""
        from omnigraph.engine.branches.tags import create_tag
        from omnigraph.snapshot import resolve_moment

        opened = self._writing()
        moment = resolve_moment(opened, at)
        return create_tag(opened, name, moment, actor=actor, message=message, force=force)

    def list(self) -> builtins.list[Tag]:
        """All tags that can be read, by name; `omnigraph doctor` reports the others."""
        from omnigraph.engine.graph.tags import survey_tags

        return [*survey_tags(self._reading().root).tags]

    def get(self, name: str) -> Tag:
        """One tag."""
        from omnigraph.engine.branches.tags import get_tag

        return get_tag(self._reading(), name)

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a tag; cleanup may then remove what only it kept."""
        from omnigraph.engine.branches.tags import delete_tag

        delete_tag(self._writing(), name, actor=actor)

    def __iter__(self) -> Iterator[str]:
        return iter([tag.name for tag in self.list()])

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in builtins.list(self)

    def __repr__(self) -> str:
        return f"<Tags of '{self._uri}'>"


@check_all_arguments
class Commits:
    """The commits of a graph; iterating gives those of main, newest first."""

    def __init__(self, uri: str, reading: Callable[[], OpenGraph]) -> None:
        self._uri = uri
        self._reading = reading

    def list(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> builtins.list[Commit]:
        """The history of a branch, what it inherited included, newest first."""
        if limit is not None and limit < 0:
            raise InvalidValue(f"limit must not be negative, got {limit}")
        known = self._reading().load(parse_branch_name(branch)).state.commits.values()
        wanted = (commit for commit in known if actor is None or commit.actor == actor)
        return lineage.newest_first(wanted)[:limit]

    def log(
        self,
        branch: str = MAIN,
        *,
        all_branches: bool = False,
        actor: str | None = None,
        limit: int | None = DEFAULT_ENTRIES,
        stat: bool = True,
    ) -> builtins.list[LogEntry]:
        """The newest commits of a branch, or of all, each with how many entities of each type it changed.

        Of all branches, commits that merges took in are listed as well, and none comes before a commit that
        was made from it. `branch` may be a tag. `stat=False` counts nothing, which is faster where commits
        changed much.
        """
        from omnigraph.engine.changes.log import LogRequest, read_log

        if limit is not None and limit < 0:
            raise InvalidValue(f"limit must not be negative, got {limit}")
        opened = self._reading()
        branches = opened.branch_names() if all_branches else [parse_branch_name(branch)]
        return read_log(opened, LogRequest(tuple(branches), actor, limit, stat))

    def get(self, commit_id: str) -> Commit:
        """One commit, by its id or a tag, on whatever branch it is."""
        return self._reading().get_commit(commit_id)

    def changes(
        self,
        commit_id: str,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> Diff:
        """What a commit changed against its first parent; the filters are those of `Graph.diff`."""
        from omnigraph.engine.changes.change import parse_filter
        from omnigraph.engine.changes.feed import BranchHistory

        opened = self._reading()
        branch, commit = opened.find_commit(commit_id)
        return BranchHistory(opened, branch, parse_filter(kinds, types, ops)).changes(commit, feed=False)

    def change_page(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        limit: int = DEFAULT_CHANGES,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> CommitPage:
        """Like `changes`, in pages: at most `limit` changes in one, and a token for the next."""
        from omnigraph.engine.changes.change import parse_filter
        from omnigraph.engine.changes.feed import BranchHistory
        from omnigraph.engine.changes.page import read_commit_page

        opened = self._reading()
        branch, commit = opened.find_commit(commit_id)
        history = BranchHistory(opened, branch, parse_filter(kinds, types, ops))
        return read_commit_page(history, commit, token=page_token, limit=limit)

    def merge_base(self, ours: str, theirs: str) -> Commit | None:
        """The commit that a merge of two commits starts at; None when they have none in common.

        Where there are several, as after criss-cross merges, it is the newest of them: see `merge_bases`.
        """
        return next(iter(self.merge_bases(ours, theirs)), None)

    def merge_bases(self, ours: str, theirs: str) -> builtins.list[Commit]:
        """The common ancestors of two commits that no other common ancestor descends from, newest first."""
        from omnigraph.engine.graph.ancestry import load_ancestry

        opened = self._reading()
        branches = {opened.find_commit(commit_id)[0] for commit_id in (ours, theirs)}
        states = {branch: opened.load(branch).state for branch in branches}
        return [*load_ancestry(opened, states, [ours, theirs]).merge_bases([ours], [theirs])]

    def __iter__(self) -> Iterator[Commit]:
        return iter(self.list())

    def __repr__(self) -> str:
        from omnigraph.display.grid import render_text_table
        from omnigraph.notebook.overview import commits_page

        try:
            return commits_page(self._reading(), render_text_table)
        except OmnigraphError:  # closed or out of reach: a prompt and a debugger show at least where it is
            return f"<Commits of '{self._uri}'>"

    def _repr_html_(self) -> str:
        from omnigraph.notebook.overview import commits_page

        return commits_page(self._reading())


class Difference(Protocol):
    """Changes that can be counted: those of a local graph, or of one behind a server."""

    def stat(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ."""


D = TypeVar("D", bound=Difference)


@dataclass(frozen=True)
class CommitDetails(Generic[D]):
    """A commit, and what it changed against its first parent."""

    commit: Commit
    changes: D | None = field(default=None, hash=False, compare=False)
    """None for the first commit, which has no parent."""

    def stat(self) -> Mapping[str, ChangeCounts]:
        """How many entities of each type it changed, by `node:Name` and `edge:Name`."""
        return {} if self.changes is None else self.changes.stat()


@dataclass(frozen=True, slots=True)
class BranchStatus:
    """A branch beside main."""

    name: str
    head: Commit | None
    """Its newest commit."""
    ahead: int
    """How many commits it has that main does not show."""
    behind: int
    """How many commits of main it lacks."""


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """A graph at a glance."""

    uri: str
    branch: str
    head: Commit | None
    """The newest commit of the branch."""
    commits: int
    """How many commits the branch shows."""
    rows: Mapping[str, int] = field(hash=False)
    """How many entities each type has on the branch, by `node:Name` and `edge:Name`."""
    branches: tuple[BranchStatus, ...]
    """All branches but main, by name."""
    interrupted: int | None = None
    """How many writes are on record that did not finish, or go on now; None when that is unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return the status as scripts read it."""
        return {
            "uri": self.uri,
            "branch": self.branch,
            "graph_commit_id": self.head.id if self.head else None,
            "commits": self.commits,
            "rows": dict(self.rows),
            "branches": [
                {
                    "name": one.name,
                    "graph_commit_id": one.head.id if one.head else None,
                    "ahead": one.ahead,
                    "behind": one.behind,
                }
                for one in self.branches
            ],
            "interrupted": self.interrupted,
        }


def compare_branches(histories: Mapping[str, Sequence[Commit]]) -> tuple[BranchStatus, ...]:
    """Return how branches stand beside main; histories are newest first."""
    main = {one.id for one in histories[MAIN]}
    found = []
    for name, history in sorted(histories.items()):
        if name != MAIN:
            own = {one.id for one in history}
            head = next(iter(history), None)
            found.append(BranchStatus(name, head, len(own - main), len(main - own)))
    return tuple(found)


def build_status(
    uri: str,
    rows: Mapping[str, int | None],
    branch: str,
    histories: Mapping[str, Sequence[Commit]],
    interrupted: int | None = None,
) -> GraphStatus:
    """Return the status of a branch; histories are newest first."""
    own = histories[branch]
    counts = {key: count or 0 for key, count in rows.items()}
    beside = compare_branches(histories)
    return GraphStatus(uri, branch, next(iter(own), None), len(own), counts, beside, interrupted)


def read_status(opened: OpenGraph, branch: str) -> GraphStatus:
    """Return the status of a graph, on one of its branches."""
    from omnigraph.engine.commit.recovery.sidecar import operations

    states = {name: opened.load(name).state for name in {MAIN, branch, *opened.branch_names()}}
    histories = {name: lineage.newest_first(state.commits.values()) for name, state in states.items()}
    rows = {key: entry.row_count for key, entry in states[branch].entries().items()}
    return build_status(opened.root.uri, rows, branch, histories, len(operations(opened.root)))
