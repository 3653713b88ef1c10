"""Differences between moments, and changes of commits, awaited from a server when they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.changes import ChangeFilterOptions, DiffSummary
from omnigraph.client.compare import CommitPages, CountedDiff
from omnigraph.client.feed_pages import FeedPages, RemoteCommitChanges
from omnigraph.engine.changes.change import Change, ChangeCounts, Tally, count_tallies, tally_of
from omnigraph.engine.changes.page import CommitPage


class AsyncRemoteDiff(CountedDiff):
    """The changes that lead from one moment of a graph to another, like `RemoteDiff`.

    Counts are there at once; the changes are fetched when it is iterated with `async for`, each time again.
    """

    def __init__(self, transport: AsyncTransport, summary: DiffSummary, wanted: ChangeFilterOptions) -> None:
        super().__init__(summary, wanted)
        self._transport = transport

    async def to_json(self) -> dict[str, Any]:
        """All of it as scripts read it."""
        found = await self._transport.send(self._list_changes())
        return self._to_json(found)

    async def __aiter__(self) -> AsyncIterator[Change]:
        for change in await self._transport.send(self._list_changes()):
            yield change


class AsyncRemoteCommitDiff(CommitPages):
    """What one commit changed against its first parent; pages of it are fetched while it is iterated."""

    def __init__(self, transport: AsyncTransport, first: CommitPage, wanted: ChangeFilterOptions) -> None:
        super().__init__(first, wanted)
        self._transport = transport

    async def stat(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`."""
        counted: Counter[Tally] = Counter()
        async for change in self:
            counted[tally_of(change)] += 1
        return count_tallies(counted)

    stats = stat
    """The earlier name of `stat`."""

    async def __aiter__(self) -> AsyncIterator[Change]:
        page = self._first
        for change in page.changes:
            yield change
        while (call := self._page_after(page)) is not None:
            page = await self._transport.send(call)
            for change in page.changes:
                yield change


class AsyncRemoteChangeFeed(AsyncIterator[RemoteCommitChanges]):
    """The commits of a branch that changed something, oldest first, like `RemoteChangeFeed`."""

    def __init__(self, transport: AsyncTransport, pages: FeedPages) -> None:
        self._transport = transport
        self._pages = pages

    @property
    def cursor(self) -> str:
        """Where to go on the next time."""
        return self._pages.cursor

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return self._pages.caught_up

    async def __anext__(self) -> RemoteCommitChanges:
        while (call := self._pages.next_call()) is not None:
            self._pages.receive(await self._transport.send(call))
        if (found := self._pages.take()) is None:
            raise StopAsyncIteration
        return found


async def open_feed(transport: AsyncTransport, pages: FeedPages) -> AsyncRemoteChangeFeed:
    """Return a feed whose first page has arrived."""
    pages.receive(await transport.send(pages.first_call))
    return AsyncRemoteChangeFeed(transport, pages)
