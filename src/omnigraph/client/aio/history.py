"""The branches and commits of a graph behind a server, for asyncio."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Unpack

from omnigraph.arguments import check_all_arguments, check_arguments
from omnigraph.client import changes, reads, writes
from omnigraph.client.aio.compare import AsyncRemoteCommitDiff
from omnigraph.client.aio.snapshot import AsyncRemoteSnapshot
from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.changes import ChangeFilterOptions, ChangePageOptions
from omnigraph.client.compare import name_moment
from omnigraph.client.history import find_merge_bases, pick_tag, require_limit, select_commits
from omnigraph.client.reads import LogOptions
from omnigraph.client.writes import TagOptions
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.changes.page import CommitPage
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.tags import Tag


@check_arguments
class AsyncRemoteBranches:
    """The branches of a graph; `async for` gives their names, main first."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        from_: str | AsyncRemoteSnapshot | Commit | datetime = MAIN,
        actor: str | None = None,
    ) -> str:
        """Make a branch that starts as a branch is now, or at an older moment, and return its name."""
        return await self._transport.send(writes.create_branch(name, name_moment(from_), actor))

    async def list(self) -> builtins.list[str]:
        """The names: main first, then the others in order."""
        return await self._transport.send(reads.list_branches())

    async def delete(self, name: str, *, actor: str | None = None) -> None:
        """Remove a branch; refused for main and while another branch needs it."""
        await self._transport.send(writes.delete_branch(name, actor))

    async def __aiter__(self) -> AsyncIterator[str]:
        for name in await self.list():
            yield name

    def __repr__(self) -> str:
        return f"<AsyncRemoteBranches of '{self._transport.address.url}'>"


@check_arguments
class AsyncRemoteTags:
    """The tags of a graph: names of commits; `async for` gives their names."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        at: str | AsyncRemoteSnapshot | Commit | datetime = MAIN,
        **how: Unpack[TagOptions],
    ) -> Tag:
        """Name the commit of a moment; `force` moves an existing tag."""
        return await self._transport.send(writes.create_tag(name, name_moment(at), how))

    async def list(self) -> builtins.list[Tag]:
        """All tags, by name."""
        return await self._transport.send(reads.list_tags())

    async def get(self, name: str) -> Tag:
        """One tag."""
        return pick_tag(await self.list(), name)

    async def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a tag; cleanup may then remove what only it kept."""
        await self._transport.send(writes.delete_tag(name, actor))

    async def __aiter__(self) -> AsyncIterator[str]:
        for tag in await self.list():
            yield tag.name

    def __repr__(self) -> str:
        return f"<AsyncRemoteTags of '{self._transport.address.url}'>"


@check_all_arguments
class AsyncRemoteCommits:
    """The commits of a graph; `async for` gives those of main, newest first."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> builtins.list[Commit]:
        """The history of a branch, what it inherited included, newest first."""
        require_limit(limit)
        return select_commits(await self._transport.send(reads.list_commits(branch)), actor, limit)

    async def log(self, branch: str = MAIN, **how: Unpack[LogOptions]) -> builtins.list[LogEntry]:
        """The newest commits, each with how many entities of each type it changed; see `Graph.log`."""
        return await self._transport.send(reads.read_log(branch, how))

    async def get(self, commit_id: str) -> Commit:
        """One commit, on whatever branch it is."""
        return await self._transport.send(reads.get_commit(commit_id))

    async def changes(self, commit_id: str, **wanted: Unpack[ChangeFilterOptions]) -> AsyncRemoteCommitDiff:
        """What a commit changed against its first parent; the filters are those of `Graph.diff`."""
        call = changes.read_commit_page(commit_id, changes.page_of(wanted))
        return AsyncRemoteCommitDiff(self._transport, await self._transport.send(call), wanted)

    async def change_page(self, commit_id: str, **options: Unpack[ChangePageOptions]) -> CommitPage:
        """Like `changes`, in pages: at most `limit` changes in one, and a token for the next."""
        return await self._transport.send(changes.read_commit_page(commit_id, options))

    async def merge_base(self, ours: str, theirs: str) -> Commit | None:
        """The commit that a merge of two commits starts at; None when they have none in common."""
        return next(iter(await self.merge_bases(ours, theirs)), None)

    async def merge_bases(self, ours: str, theirs: str) -> builtins.list[Commit]:
        """The common ancestors of two commits that no other common ancestor descends from, newest first."""
        branches = {(await self.get(commit_id)).branch for commit_id in (ours, theirs)}
        histories = [await self.list(branch) for branch in sorted(branches)]
        return find_merge_bases(histories, ours, theirs)

    async def __aiter__(self) -> AsyncIterator[Commit]:
        for commit in await self.list():
            yield commit

    def __repr__(self) -> str:
        return f"<AsyncRemoteCommits of '{self._transport.address.url}'>"
