"""Changes in answers of limited size, each with a token for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from omnigraph.engine.changes.change import Change
from omnigraph.engine.changes.diff import Diff, Place
from omnigraph.engine.changes.feed import History, cause
from omnigraph.engine.changes.tokens import Position, cursor, page_token, read_page_token
from omnigraph.engine.layout import table_key
from omnigraph.engine.lineage import Commit
from omnigraph.errors import BadRequest, ChangeCursorRejected, ResourceLimitExceeded

DEFAULT_CHANGES, MOST_CHANGES = 1000, 8192
PAGE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Block:
    """A commit and changes of it; a large commit may take several pages."""

    commit: Commit
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The block as scripts read it."""
        return {"cause": cause(self.commit), "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class Page:
    """A part of an answer; only the last one has a cursor."""

    blocks: tuple[Block, ...]
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


def feed_page(
    history: History, *, since: str | None = None, token: str | None = None, limit: int = DEFAULT_CHANGES
) -> Page:
    """The next changes of a branch, at most so many."""
    require_limit(limit)
    if since is not None and token is not None:
        raise BadRequest("a page token continues an answer by itself", remedy="leave `since` out")
    if token is not None:
        position = read_page_token(history.bound, token)
    else:
        start = history.position(since)
        position = Position(start.after, history.head.id if history.head else None)
    ahead = history.between(position.after, position.until)
    diffs = ((commit, history.changes(commit, since or token)) for commit in ahead)
    blocks, rest = _filled(diffs, position, limit)
    if rest is not None:
        return Page(blocks, next_page_token=page_token(history.bound, rest))
    return Page(blocks, cursor=cursor(history.bound, position.until))


@dataclass(frozen=True, slots=True)
class CommitPage:
    """A part of what one commit changed."""

    commit: Commit
    changes: tuple[Change, ...]
    next_page_token: str | None = None
    """What the rest is asked for with; None when this was the last of it."""

    def to_json(self) -> dict[str, Any]:
        """The page as scripts read it."""
        more = {} if self.next_page_token is None else {"next_page_token": self.next_page_token}
        return {**Block(self.commit, self.changes).to_json(), **more}


def commit_page(
    history: History, commit: Commit, *, token: str | None = None, limit: int = DEFAULT_CHANGES
) -> CommitPage:
    """The next changes of a commit against its first parent, at most so many."""
    require_limit(limit)
    begin = Position(commit.parent, commit.id)
    start = begin if token is None else read_page_token(history.bound, token)
    if (start.after, start.until) != (begin.after, begin.until):
        raise ChangeCursorRejected(f"it does not belong to commit '{commit.id}'")
    found = history.changes(commit, feed=False).beyond(start.place)
    taken, place, is_whole = _taken(found, _Room(limit, PAGE_BYTES), start.place)
    rest = None if is_whole else page_token(history.bound, Position(commit.parent, commit.id, place))
    return CommitPage(commit, tuple(taken), rest)


def require_limit(limit: int) -> None:
    """Fail when a page is to be empty or too large."""
    if limit < 1:
        raise BadRequest(f"limit must be at least 1, got {limit}")
    if limit > MOST_CHANGES:
        raise ResourceLimitExceeded("commit_changes_page_changes", limit=MOST_CHANGES, actual=limit)


def _filled(
    diffs: Iterable[tuple[Commit, Diff]], start: Position, limit: int
) -> tuple[tuple[Block, ...], Position | None]:
    """Blocks until the page is full, and where it then stands; None at the end."""
    blocks: list[Block] = []
    room = _Room(limit, PAGE_BYTES)
    after, place = start.after, start.place
    for commit, found in diffs:
        taken, place, is_whole = _taken(found.beyond(place), room, place)
        if taken:
            blocks.append(Block(commit, tuple(taken)))
        if not is_whole:
            return tuple(blocks), Position(after, start.until, place)
        after, place = commit.id, None
    return tuple(blocks), None


@dataclass(slots=True)
class _Room:
    changes: int
    bytes: int


def _taken(
    changes: Iterator[Change], room: _Room, place: Place | None
) -> tuple[list[Change], Place | None, bool]:
    """As many changes as there is room for, but on an empty page at least one."""
    found: list[Change] = []
    for change in changes:
        size = len(msgspec.json.encode(change.to_json()))
        if not room.changes or (size > room.bytes and room.bytes < PAGE_BYTES):
            return found, place, False
        room.changes, room.bytes = room.changes - 1, room.bytes - size
        place = (table_key(change.kind, change.type_name), change.id)
        found.append(change)
    return found, place, True
