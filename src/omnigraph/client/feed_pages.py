"""Pages of a change feed put together to commits: which page is needed next, and what is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from omnigraph.client import changes
from omnigraph.client.calls import Call
from omnigraph.client.changes import ChangeFilterOptions
from omnigraph.engine.changes.change import Change, ChangeCounts, count_tallies, tally_of
from omnigraph.engine.changes.feed import AFTER, BEGINNING, describe_cause
from omnigraph.engine.changes.page import ChangeBlock, ChangePage
from omnigraph.engine.graph.lineage import Commit
from omnigraph.errors import InvalidValue


class RemoteCommitChanges:
    """A commit and what it changed, like `CommitChanges`."""

    def __init__(self, commit: Commit, found: tuple[Change, ...], cursor: str) -> None:
        self.commit = commit
        self.changes = found
        self.cursor = cursor
        """Save it when the changes are processed: a feed resumes after this commit with it."""

    def stat(self) -> Mapping[str, ChangeCounts]:
        """How many entities of each type it changed, by `node:Name` and `edge:Name`."""
        return count_tallies(Counter(map(tally_of, self.changes)))

    def to_json(self) -> dict[str, Any]:
        """The commit and all its changes as scripts read them."""
        return {"cause": describe_cause(self.commit), "changes": [one.to_json() for one in self.changes]}


class FeedPages:
    """The pages of a feed that arrived and are not read yet: at most one commit and one page."""

    def __init__(
        self, branch: str, since: str | None, limit: int | None, wanted: ChangeFilterOptions
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidValue(f"limit must be at least 1, got {limit}")
        self.first_call = changes.read_feed_page(branch, since, changes.page_of(wanted))
        self._branch = branch
        self._wanted = wanted
        self._left = limit
        self._ahead: list[ChangeBlock] = []
        self._token: str | None = None
        self._end: str | None = None
        self._cursor = BEGINNING if since is None else since

    @property
    def cursor(self) -> str:
        """Where to go on the next time."""
        return self._end if self.caught_up and self._end is not None else self._cursor

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return not self._ahead and self._token is None

    def next_call(self) -> Call[ChangePage] | None:
        """Return the page without which the next commit may be incomplete; None when it is complete."""
        if self._token is None or self._left == 0 or len(self._ahead) > 1:
            return None
        return changes.read_feed_page(self._branch, None, changes.page_of(self._wanted, self._token))

    def receive(self, page: ChangePage) -> None:
        """Take a page; it may begin in the middle of the commit at which the page before ended."""
        self._token, self._end = page.next_page_token, page.cursor
        is_split = bool(self._ahead and page.blocks) and self._ahead[-1].commit.id == page.blocks[0].commit.id
        if is_split:
            last = self._ahead.pop()
            joined = ChangeBlock(last.commit, last.changes + page.blocks[0].changes)
            self._ahead += [joined, *page.blocks[1:]]
        else:
            self._ahead += page.blocks

    def take(self) -> RemoteCommitChanges | None:
        """Return the next commit, which is complete; None at the end."""
        if self._left == 0 or not self._ahead:
            return None
        block = self._ahead.pop(0)
        self._left = None if self._left is None else self._left - 1
        self._cursor = f"{AFTER}{block.commit.id}"
        return RemoteCommitChanges(block.commit, block.changes, self.cursor)
