"""Differences between moments, and changes of commits, read from a server when they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from omnigraph.client import changes
from omnigraph.client.calls import Call
from omnigraph.client.changes import ChangeFilterOptions, DiffMoment, DiffSummary
from omnigraph.client.feed_pages import FeedPages, RemoteCommitChanges
from omnigraph.client.snapshot import PinnedMoment
from omnigraph.client.transport import Transport
from omnigraph.engine.changes.change import Change, ChangeCounts, count_tallies, tally_of
from omnigraph.engine.changes.page import CommitPage
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.targets import to_microseconds
from omnigraph.lang.query.statements import plain_value

Moment = str | PinnedMoment | Commit | datetime


def name_moment(moment: Moment) -> str:
    """Return a moment as a server takes it."""
    match moment:
        case PinnedMoment():
            return f"{moment.branch}@v{moment.version}"
        case Commit():
            return moment.id
        case datetime():
            to_microseconds(moment)  # refuses one without a zone
            return str(plain_value(moment))
        case str():
            return moment


class CountedDiff:
    """How much differs between two moments; the changes themselves are not here."""

    def __init__(self, summary: DiffSummary, wanted: ChangeFilterOptions) -> None:
        self._summary = summary
        self._wanted = wanted

    @property
    def before(self) -> DiffMoment:
        """The first moment."""
        return self._summary.before

    @property
    def after(self) -> DiffMoment:
        """The second moment."""
        return self._summary.after

    def stat(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`."""
        return dict(self._summary.stats)

    stats = stat
    """The earlier name of `stat`."""

    def about(self) -> dict[str, Any]:
        """Return which moments were compared, and how much differs."""
        return describe_summary(self._summary)

    def __bool__(self) -> bool:
        return bool(self._summary.stats)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} from {self.before.id} to {self.after.id}>"

    def _list_changes(self) -> Call[list[Change]]:
        return changes.list_changes(self.before, self.after, self._wanted)

    def _to_json(self, found: Iterable[Change]) -> dict[str, Any]:
        return {**self.about(), "changes": [change.to_json() for change in found]}


class RemoteDiff(CountedDiff):
    """The changes that lead from one moment of a graph to another, like `Diff`.

    Counts are there at once; the changes are fetched when it is iterated, each time again.
    """

    def __init__(self, transport: Transport, summary: DiffSummary, wanted: ChangeFilterOptions) -> None:
        super().__init__(summary, wanted)
        self._transport = transport

    def to_json(self) -> dict[str, Any]:
        """All of it as scripts read it."""
        return self._to_json(self)

    def __iter__(self) -> Iterator[Change]:
        found = self._transport.send(self._list_changes())
        return iter(found)


def describe_summary(summary: DiffSummary) -> dict[str, Any]:
    """Return the facts of a difference as scripts read them."""
    return {
        "from": _describe(summary.before),
        "to": _describe(summary.after),
        "stats": {key: stat.to_json() for key, stat in summary.stats.items()},
    }


def _describe(moment: DiffMoment) -> dict[str, Any]:
    return {
        "graph_branch": moment.branch,
        "graph_manifest_version": moment.version,
        "graph_commit_id": moment.commit_id,
    }


class CommitPages:
    """What one commit changed, in pages, of which the first is here."""

    def __init__(self, first: CommitPage, wanted: ChangeFilterOptions) -> None:
        self._first = first
        self._wanted = wanted

    def __bool__(self) -> bool:
        return bool(self._first.changes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._first.commit.id}>"

    def _page_after(self, page: CommitPage) -> Call[CommitPage] | None:
        if page.next_page_token is None:
            return None
        options = changes.page_of(self._wanted, page.next_page_token)
        return changes.read_commit_page(self._first.commit.id, options)


class RemoteCommitDiff(CommitPages):
    """What one commit changed against its first parent; pages of it are fetched while it is iterated."""

    def __init__(self, transport: Transport, commit_id: str, wanted: ChangeFilterOptions) -> None:
        first = transport.send(changes.read_commit_page(commit_id, changes.page_of(wanted)))
        super().__init__(first, wanted)
        self._transport = transport

    def stat(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`."""
        return count_tallies(Counter(map(tally_of, self)))

    stats = stat
    """The earlier name of `stat`."""

    def __iter__(self) -> Iterator[Change]:
        page = self._first
        yield from page.changes
        while (call := self._page_after(page)) is not None:
            page = self._transport.send(call)
            yield from page.changes


class RemoteChangeFeed(Iterator[RemoteCommitChanges]):
    """The commits of a branch that changed something, oldest first, like `ChangeFeed`."""

    def __init__(self, transport: Transport, pages: FeedPages) -> None:
        self._transport = transport
        self._pages = pages
        pages.receive(transport.send(pages.first_call))

    @property
    def cursor(self) -> str:
        """Where to go on the next time."""
        return self._pages.cursor

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return self._pages.caught_up

    def __next__(self) -> RemoteCommitChanges:
        while (call := self._pages.next_call()) is not None:
            self._pages.receive(self._transport.send(call))
        if (found := self._pages.take()) is None:
            raise StopIteration
        return found
