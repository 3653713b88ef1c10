"""What a graph has had so far: its branches and its commits."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator

from omnigraph.engine import branches as control
from omnigraph.engine import lineage
from omnigraph.engine.changes.change import filter_of
from omnigraph.engine.changes.diff import Diff
from omnigraph.engine.changes.feed import History
from omnigraph.engine.changes.page import DEFAULT_CHANGES, CommitPage, commit_page
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.errors import InvalidValue
from omnigraph.notebook.overview import branches_page, commits_page


class Branches:
    """The branches of a graph; iterating gives their names, main first."""

    def __init__(self, uri: str, reading: Callable[[], OpenGraph], writing: Callable[[], OpenGraph]) -> None:
        self._uri = uri
        self._reading = reading
        self._writing = writing

    def create(self, name: str, *, from_: str = MAIN) -> str:
        """Make a branch that starts as `from_` is now, and say its name; no data is copied."""
        return control.create_branch(self._writing(), name, from_branch=from_).name

    def list(self) -> builtins.list[str]:
        """The names: main first, then the others in order."""
        return [found.name for found in control.list_branches(self._reading())]

    def delete(self, name: str) -> None:
        """Remove a branch and what only it has; refused for main and while another branch needs it."""
        control.delete_branch(self._writing(), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in self.list()

    def __repr__(self) -> str:
        return f"<Branches of '{self._uri}'>"

    def _repr_html_(self) -> str:
        return branches_page(self._reading())


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
        known = self._reading().load(control.branch_name(branch)).state.commits.values()
        wanted = (commit for commit in known if actor is None or commit.actor == actor)
        return lineage.newest_first(wanted)[:limit]

    def get(self, commit_id: str) -> Commit:
        """One commit, on whatever branch it is."""
        return self._reading().find_commit(commit_id)[1]

    def changes(
        self,
        commit_id: str,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> Diff:
        """What a commit changed against its first parent; the filters are those of `Graph.diff`."""
        opened = self._reading()
        branch, commit = opened.find_commit(commit_id)
        return History(opened, branch, filter_of(kinds, types, ops)).changes(commit, feed=False)

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
        opened = self._reading()
        branch, commit = opened.find_commit(commit_id)
        history = History(opened, branch, filter_of(kinds, types, ops))
        return commit_page(history, commit, token=page_token, limit=limit)

    def merge_base(self, ours: str, theirs: str) -> Commit | None:
        """The commit where the histories of two commits parted; None when they have none in common."""
        opened = self._reading()
        known: dict[str, Commit] = {}
        for commit_id in (ours, theirs):
            branch, _ = opened.find_commit(commit_id)
            known.update(opened.load(branch).state.commits)
        return lineage.merge_base(known, ours, theirs)

    def __iter__(self) -> Iterator[Commit]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"<Commits of '{self._uri}'>"

    def _repr_html_(self) -> str:
        return commits_page(self._reading())
