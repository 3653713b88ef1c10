"""The branches and commits of a graph behind a server."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Unpack

from omnigraph.arguments import check_all_arguments, check_arguments
from omnigraph.client import changes, reads, writes
from omnigraph.client.compare import RemoteCommitDiff, name_moment
from omnigraph.client.snapshot import RemoteSnapshot
from omnigraph.client.transport import Transport
from omnigraph.client.writes import TagOptions
from omnigraph.engine.changes import DEFAULT_CHANGES, DEFAULT_ENTRIES
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.changes.page import CommitPage
from omnigraph.engine.graph import lineage
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.tags import Tag
from omnigraph.errors import InvalidValue, TagNotFound


@check_arguments
class RemoteBranches:
    """The branches of a graph; iterating gives their names, main first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, from_: str | RemoteSnapshot | Commit | datetime = MAIN, actor: str | None = None
    ) -> str:
        """Make a branch that starts as a branch is now, or at an older moment, and return its name."""
        return self._transport.send(writes.create_branch(name, name_moment(from_), actor))

    def list(self) -> builtins.list[str]:
        """The names: main first, then the others in order."""
        return self._transport.send(reads.list_branches())

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Remove a branch; refused for main and while another branch needs it."""
        self._transport.send(writes.delete_branch(name, actor))

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in self.list()

    def __repr__(self) -> str:
        return f"<RemoteBranches of '{self._transport.address.url}'>"


@check_arguments
class RemoteTags:
    """The tags of a graph: names of commits; iterating gives their names."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, at: str | RemoteSnapshot | Commit | datetime = MAIN, **how: Unpack[TagOptions]
    ) -> Tag:
        """Name the commit of a moment; `force` moves an existing tag."""
        return self._transport.send(writes.create_tag(name, name_moment(at), how))

    def list(self) -> builtins.list[Tag]:
        """All tags, by name."""
        return self._transport.send(reads.list_tags())

    def get(self, name: str) -> Tag:
        """One tag."""
        return pick_tag(self.list(), name)

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a tag; cleanup may then remove what only it kept."""
        self._transport.send(writes.delete_tag(name, actor))

    def __iter__(self) -> Iterator[str]:
        return iter([tag.name for tag in self.list()])

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in builtins.list(self)

    def __repr__(self) -> str:
        return f"<RemoteTags of '{self._transport.address.url}'>"


@check_all_arguments
class RemoteCommits:
    """The commits of a graph; iterating gives those of main, newest first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> builtins.list[Commit]:
        """The history of a branch, what it inherited included, newest first."""
        return select_commits(self._transport.send(reads.list_commits(branch)), actor, require_limit(limit))

    def log(
        self,
        branch: str = MAIN,
        *,
        all_branches: bool = False,
        actor: str | None = None,
        limit: int | None = DEFAULT_ENTRIES,
        stat: bool = True,
    ) -> builtins.list[LogEntry]:
        """The newest commits, each with how many entities of each type it changed; see `Graph.log`."""
        how: reads.LogOptions = {
            "all_branches": all_branches,
            "actor": actor,
            "limit": limit,
            "stat": stat,
        }
        return self._transport.send(reads.read_log(branch, how))

    def get(self, commit_id: str) -> Commit:
        """One commit, on whatever branch it is."""
        return self._transport.send(reads.get_commit(commit_id))

    def changes(
        self,
        commit_id: str,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> RemoteCommitDiff:
        """What a commit changed against its first parent; the filters are those of `Graph.diff`."""
        return RemoteCommitDiff(self._transport, commit_id, {"types": types, "kinds": kinds, "ops": ops})

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
        options: changes.ChangePageOptions = {
            "page_token": page_token,
            "limit": limit,
            "types": types,
            "kinds": kinds,
            "ops": ops,
        }
        return self._transport.send(changes.read_commit_page(commit_id, options))

    def merge_base(self, ours: str, theirs: str) -> Commit | None:
        """The commit that a merge of two commits starts at; None when they have none in common."""
        return next(iter(self.merge_bases(ours, theirs)), None)

    def merge_bases(self, ours: str, theirs: str) -> builtins.list[Commit]:
        """The common ancestors of two commits that no other common ancestor descends from, newest first."""
        branches = {self.get(commit_id).branch for commit_id in (ours, theirs)}
        return find_merge_bases(map(self.list, sorted(branches)), ours, theirs)

    def __iter__(self) -> Iterator[Commit]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"<RemoteCommits of '{self._transport.address.url}'>"


def find_merge_bases(histories: Iterable[list[Commit]], ours: str, theirs: str) -> list[Commit]:
    """Return the best common ancestors of two commits, by the histories of their branches."""
    known = {one.id: one for history in histories for one in history}
    return [*lineage.merge_bases(known, [ours], [theirs])]


def pick_tag(tags: Iterable[Tag], name: str) -> Tag:
    """Return the tag of a name."""
    found = next((tag for tag in tags if tag.name == name.strip()), None)
    if found is None:
        raise TagNotFound(name)
    return found


def require_limit(limit: int | None) -> int | None:
    """Fail when a number of commits is negative."""
    if limit is not None and limit < 0:
        raise InvalidValue(f"limit must not be negative, got {limit}")
    return limit


def select_commits(found: list[Commit], actor: str | None, limit: int | None) -> list[Commit]:
    """Return the first commits, of one actor if it is named."""
    return [one for one in found if actor is None or one.actor == actor][:limit]
