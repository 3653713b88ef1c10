"""Differences between moments, and changes of commits, read from a server when they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from omnigraph.client import changes
from omnigraph.client.changes import DiffMoment, DiffSummary, FilterOptions
from omnigraph.client.snapshot import RemoteSnapshot
from omnigraph.client.transport import Transport
from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation
from omnigraph.engine.changes.feed import AFTER, describe_cause
from omnigraph.engine.changes.page import ChangeBlock, ChangePage
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.targets import to_microseconds
from omnigraph.lang.query.statements import plain_value

Moment = str | RemoteSnapshot | Commit | datetime


def name_moment(moment: Moment) -> str:
    """Return a moment as a server takes it."""
    match moment:
        case RemoteSnapshot():
            return f"{moment.branch}@v{moment.version}"
        case Commit():
            return moment.id
        case datetime():
            to_microseconds(moment)  # refuses one without a zone
            return str(plain_value(moment))
        case str():
            return moment


class RemoteDiff:
    """The changes that lead from one moment of a graph to another, like `Diff`.

    Counts are there at once; the changes are fetched when it is iterated, each time again.
    """

    def __init__(self, transport: Transport, summary: DiffSummary, wanted: FilterOptions) -> None:
        self._transport = transport
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

    def stats(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`."""
        return dict(self._summary.stats)

    def about(self) -> dict[str, Any]:
        """Return which moments were compared, and how much differs."""
        return describe_summary(self._summary)

    def to_json(self) -> dict[str, Any]:
        """All of it as scripts read it."""
        return {**self.about(), "changes": [change.to_json() for change in self]}

    def __iter__(self) -> Iterator[Change]:
        found = self._transport.send(changes.list_changes(self.before, self.after, self._wanted))
        return iter(found)

    def __bool__(self) -> bool:
        return bool(self._summary.stats)

    def __repr__(self) -> str:
        return f"<RemoteDiff from {self.before.id} to {self.after.id}>"


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


class RemoteCommitDiff:
    """What one commit changed against its first parent; pages of it are fetched while it is iterated."""

    def __init__(self, transport: Transport, commit_id: str, wanted: FilterOptions) -> None:
        self._transport = transport
        self._commit_id = commit_id
        self._wanted = wanted
        self._first = transport.send(changes.read_commit_page(commit_id, changes.page_of(wanted)))

    def stats(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`."""
        return count_changes(self)

    def __iter__(self) -> Iterator[Change]:
        page = self._first
        while True:
            yield from page.changes
            if page.next_page_token is None:
                return
            page = self._transport.send(
                changes.read_commit_page(self._commit_id, changes.page_of(self._wanted, page.next_page_token))
            )

    def __bool__(self) -> bool:
        return bool(self._first.changes)

    def __repr__(self) -> str:
        return f"<RemoteCommitDiff of {self._commit_id}>"


def count_changes(found: Any) -> dict[str, ChangeCounts]:
    """Return how many changes of each kind there are, by table."""
    counted = Counter((table_key(one.kind, one.type_name), one.op) for one in found)
    return {
        key: ChangeCounts(*(counted[key, op] for op in ChangeOperation))
        for key in dict.fromkeys(key for key, _ in counted)
    }


class RemoteCommitChanges:
    """A commit and what it changed, like `CommitChanges`."""

    def __init__(self, commit: Commit, found: tuple[Change, ...], cursor: str) -> None:
        self.commit = commit
        self.changes = found
        self.cursor = cursor
        """Save it when the changes are processed: a feed resumes after this commit with it."""

    def to_json(self) -> dict[str, Any]:
        """The commit and all its changes as scripts read them."""
        return {"cause": describe_cause(self.commit), "changes": [one.to_json() for one in self.changes]}


class RemoteChangeFeed(Iterator[RemoteCommitChanges]):
    """The commits of a branch that changed something, oldest first, like `ChangeFeed`."""

    def __init__(
        self, transport: Transport, branch: str, since: str | None, limit: int | None, wanted: FilterOptions
    ) -> None:
        self._transport = transport
        self._branch = branch
        self._wanted = wanted
        self._left = limit
        self._page: ChangePage = transport.send(
            changes.read_feed_page(branch, since, changes.page_of(wanted))
        )
        self._ahead: list[ChangeBlock] = list(self._page.blocks)
        self._cursor = since

    @property
    def cursor(self) -> str:
        """Where to go on the next time."""
        if self.caught_up and self._page.cursor is not None:
            return self._page.cursor
        return "beginning" if self._cursor is None else self._cursor

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return not self._ahead and self._page.next_page_token is None

    def __next__(self) -> RemoteCommitChanges:
        if self._left == 0:
            raise StopIteration
        while not self._ahead and self._page.next_page_token is not None:
            self._turn_page()
        if not self._ahead:
            raise StopIteration
        self._complete_first()
        block = self._ahead.pop(0)
        self._left = None if self._left is None else self._left - 1
        self._cursor = f"{AFTER}{block.commit.id}"
        return RemoteCommitChanges(block.commit, block.changes, self.cursor)

    def _complete_first(self) -> None:
        """Fetch pages until the first commit is known to have no more changes."""
        while len(self._ahead) == 1 and self._page.next_page_token is not None:
            self._turn_page()
            if len(self._ahead) > 1 and self._ahead[0].commit.id == self._ahead[1].commit.id:
                both = self._ahead[0].changes + self._ahead[1].changes
                self._ahead[:2] = [ChangeBlock(self._ahead[0].commit, both)]

    def _turn_page(self) -> None:
        token = self._page.next_page_token
        call = changes.read_feed_page(self._branch, None, changes.page_of(self._wanted, token))
        self._page = self._transport.send(call)
        self._ahead += self._page.blocks
