"""Where a reader of changes stands, as a text that only this package reads.

A cursor stands after a whole commit and is kept by its reader for as long as it likes; a page token stands
within one answer and continues it. Both belong to one graph, one life of a branch and one filter.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from omnigraph.engine.changes.change import Filter
from omnigraph.engine.changes.diff import Place
from omnigraph.errors import ChangeCursorRejected
from omnigraph.storage.references import Identity

_CURSOR, _PAGE = "c1.", "p1."


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token belongs to."""

    graph: str
    """The id of the first commit, which no other graph has."""
    branch: str
    life: str
    filter: str

    @classmethod
    def to(cls, graph: str, branch: str, life: Identity, wanted: Filter) -> Bound:
        """The binding of tokens for a branch and a filter."""
        return cls(graph, branch, _digest([list(part) for part in life]), _digest(wanted.to_json()))

    def require(self, other: Bound) -> None:
        """Fail when a token belongs to something else."""
        if other.graph != self.graph:
            raise ChangeCursorRejected("it belongs to another graph")
        if other.branch != self.branch:
            raise ChangeCursorRejected(f"it belongs to branch '{other.branch}'")
        if other.life != self.life:
            raise ChangeCursorRejected(f"branch '{self.branch}' was deleted and made again since")
        if other.filter != self.filter:
            raise ChangeCursorRejected("it was made with another filter")


@dataclass(frozen=True, slots=True)
class Position:
    """After a commit; within an answer, also where the answer ends and what was told of the next commit."""

    after: str | None
    until: str | None = None
    place: Place | None = None


def cursor(bound: Bound, after: str | None) -> str:
    """The text of a position after a whole commit."""
    return _CURSOR + _encoded(bound, Position(after))


def page_token(bound: Bound, position: Position) -> str:
    """The text of a position within an answer."""
    return _PAGE + _encoded(bound, position)


def read_cursor(bound: Bound, text: str) -> Position:
    """The position behind a cursor."""
    return replace(_decoded(bound, text, _CURSOR, "a cursor"), until=None, place=None)


def read_page_token(bound: Bound, text: str) -> Position:
    """The position behind a page token."""
    return _decoded(bound, text, _PAGE, "a page token")


def _encoded(bound: Bound, position: Position) -> str:
    place = list(position.place) if position.place else None
    facts = [bound.graph, bound.branch, bound.life, bound.filter, position.after, position.until, place]
    return urlsafe_b64encode(json.dumps(facts, separators=(",", ":")).encode()).decode().rstrip("=")


def _decoded(bound: Bound, text: str, prefix: str, what: str) -> Position:
    if not text.startswith(prefix):
        raise ChangeCursorRejected(f"it is not {what}")
    body = text.removeprefix(prefix)
    try:
        facts = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        graph, branch, life, filter_, after, until, place = facts
        found = Position(_text(after), _text(until), None if place is None else _place(place))
        bound.require(Bound(str(graph), str(branch), str(life), str(filter_)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ChangeCursorRejected(f"it is not {what}") from error
    return found


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _place(value: Any) -> Place:
    key, entity = value
    return str(key), str(entity)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
