"""Changes in answers of limited size, each with a token for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_CHANGES
from omnigraph.engine.changes.change import Change
from omnigraph.engine.changes.diff import ChangePlace, Diff
from omnigraph.engine.changes.feed import (
    BranchHistory,
    Position,
    decode_page_token,
    describe_cause,
    encode_cursor,
    encode_page_token,
)
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.errors import BadRequest, ChangeCursorRejected, ResourceLimitExceeded

MOST_CHANGES = 8192
PAGE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """A commit and changes of it; a large commit may take several pages."""

    commit: Commit
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The block as scripts read it."""
        return {
            "cause": describe_cause(self.commit),
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A part of an answer; only the last one has a cursor."""

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return self.cursor is not None

    def to_json(self) -> dict[str, Any]:
        """The page as servers send it."""
        blocks = [block.to_json() for block in self.blocks]
        if self.next_page_token is not None:
            return {"blocks": blocks, "next_page_token": self.next_page_token}
        return {"blocks": blocks, "cursor": self.cursor, "caught_up": True}


def read_feed_page(
    history: BranchHistory,
    *,
    since: str | None = None,
    token: str | None = None,
    limit: int = DEFAULT_CHANGES,
) -> ChangePage:
    """Return the next changes of a branch, at most `limit`."""
    require_limit(limit)
    if since is not None and token is not None:
        raise BadRequest("a page token already says where to continue", remedy="omit `since`")
    if token is not None:
        position = decode_page_token(history.binding, token)
    else:
        start = history.position(since)
        position = Position(start.after, history.head.id if history.head else None)
    ahead = history.between(position.after, position.until)
    diffs = ((commit, history.changes(commit, since or token)) for commit in ahead)
    blocks, rest = _fill_page(diffs, position, limit)
    if rest is not None:
        return ChangePage(blocks, next_page_token=encode_page_token(history.binding, rest))
    return ChangePage(blocks, cursor=encode_cursor(history.binding, position.until))


@dataclass(frozen=True, slots=True)
class CommitPage:
    """A part of what one commit changed."""

    commit: Commit
    changes: tuple[Change, ...]
    next_page_token: str | None = None
    """Requests the remaining changes; None on the last page."""

    def to_json(self) -> dict[str, Any]:
        """The page as scripts read it."""
        more = {} if self.next_page_token is None else {"next_page_token": self.next_page_token}
        return {**ChangeBlock(self.commit, self.changes).to_json(), **more}


def read_commit_page(
    history: BranchHistory, commit: Commit, *, token: str | None = None, limit: int = DEFAULT_CHANGES
) -> CommitPage:
    """Return the next changes of a commit against its first parent, at most `limit`."""
    require_limit(limit)
    begin = Position(commit.parent, commit.id)
    start = begin if token is None else decode_page_token(history.binding, token)
    if (start.after, start.until) != (begin.after, begin.until):
        raise ChangeCursorRejected(f"it does not belong to commit '{commit.id}'")
    diff = history.changes(commit, feed=False)
    _require_place(diff, start.place)
    taken, place, is_whole = _take_changes(diff.beyond(start.place), _Room(limit, PAGE_BYTES), start.place)
    rest = None if is_whole else encode_page_token(history.binding, Position(commit.parent, commit.id, place))
    return CommitPage(commit, tuple(taken), rest)


def require_limit(limit: int) -> None:
    """Fail when a page would be empty or too large."""
    if limit < 1:
        raise BadRequest(f"limit must be at least 1, got {limit}")
    if limit > MOST_CHANGES:
        raise ResourceLimitExceeded("commit_changes_page_changes", limit=MOST_CHANGES, actual=limit)


def _fill_page(
    diffs: Iterable[tuple[Commit, Diff]], start: Position, limit: int
) -> tuple[tuple[ChangeBlock, ...], Position | None]:
    """Return blocks until the page is full, and the position after them; None at the end."""
    blocks: list[ChangeBlock] = []
    room = _Room(limit, PAGE_BYTES)
    after, place = start.after, start.place
    for commit, found in diffs:
        _require_place(found, place)
        taken, place, is_whole = _take_changes(found.beyond(place), room, place)
        if taken:
            blocks.append(ChangeBlock(commit, tuple(taken)))
        if not is_whole:
            return tuple(blocks), Position(after, start.until, place)
        after, place = commit.id, None
    if place is not None:
        raise ChangeCursorRejected("it points into a commit that does not exist")
    return tuple(blocks), None


def _require_place(found: Diff, place: ChangePlace | None) -> None:
    """Fail when a token points to a table that the commit did not change: it was forged or damaged."""
    if place is not None and place[0] not in found.tables():
        raise ChangeCursorRejected("it names a table that the commit did not change")


@dataclass(slots=True)
class _Room:
    changes: int
    bytes: int


def _take_changes(
    changes: Iterator[Change], room: _Room, place: ChangePlace | None
) -> tuple[list[Change], ChangePlace | None, bool]:
    """Return as many changes as fit, but at least one on an empty page."""
    found: list[Change] = []
    for change in changes:
        size = len(msgspec.json.encode(change.to_json()))
        if not room.changes or (size > room.bytes and room.bytes < PAGE_BYTES):
            return found, place, False
        room.changes, room.bytes = room.changes - 1, room.bytes - size
        place = (table_key(change.kind, change.type_name), change.id)
        found.append(change)
    return found, place, True
