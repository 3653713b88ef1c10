"""What a graph has had so far: its branches and its commits."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from omnigraph.arguments import check_all_arguments, check_arguments
from omnigraph.engine.changes import DEFAULT_CHANGES
from omnigraph.engine.graph import lineage
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import InvalidValue

if TYPE_CHECKING:
    from omnigraph.engine.changes.diff import Diff
    from omnigraph.engine.changes.page import CommitPage


@check_arguments
class Branches:
    """The branches of a graph; iterating gives their names, main first."""

    def __init__(self, uri: str, reading: Callable[[], OpenGraph], writing: Callable[[], OpenGraph]) -> None:
        self._uri = uri
        self._reading = reading
        self._writing = writing

    def create(self, name: str, *, from_: str = MAIN) -> str:
        """Make a branch that starts as `from_` is now, and say its name; no data is copied."""
        from omnigraph.engine.branches import manage as control

        return control.create_branch(self._writing(), name, from_branch=from_).name

    def list(self) -> builtins.list[str]:
        """The names: main first, then the others in order."""
        from omnigraph.engine.branches import manage as control

        return [found.name for found in control.list_branches(self._reading())]

    def delete(self, name: str) -> None:
        """Remove a branch and what only it has; refused for main and while another branch needs it."""
        from omnigraph.engine.branches import manage as control

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
        from omnigraph.notebook.overview import branches_page

        return branches_page(self._reading())


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
        return f"<Commits of '{self._uri}'>"

    def _repr_html_(self) -> str:
        from omnigraph.notebook.overview import commits_page

        return commits_page(self._reading())
