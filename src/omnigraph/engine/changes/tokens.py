"""The position of a reader of changes, as opaque text.

A cursor points after a whole commit and never expires; a page token points into one answer and continues it.
Both belong to one graph, one incarnation of a branch and one filter.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from omnigraph.engine.changes.change import ChangeFilter
from omnigraph.engine.changes.diff import ChangePlace
from omnigraph.errors import ChangeCursorRejected
from omnigraph.storage.references import Incarnation

_CURSOR, _PAGE = "c1.", "p1."


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """What a token belongs to."""

    graph: str
    """The id of the first commit, which no other graph has."""
    branch: str
    incarnation: str
    filter: str

    @classmethod
    def of(cls, graph: str, branch: str, incarnation: Incarnation, wanted: ChangeFilter) -> TokenBinding:
        """The binding of tokens for a branch and a filter."""
        return cls(graph, branch, _digest([list(part) for part in incarnation]), _digest(wanted.to_json()))

    def require(self, other: TokenBinding) -> None:
        """Fail when a token belongs to something else."""
        if other.graph != self.graph:
            raise ChangeCursorRejected("it belongs to another graph")
        if other.branch != self.branch:
            raise ChangeCursorRejected(f"it belongs to branch '{other.branch}'")
        if other.incarnation != self.incarnation:
            raise ChangeCursorRejected(f"branch '{self.branch}' was deleted and made again since")
        if other.filter != self.filter:
            raise ChangeCursorRejected("it was made with another filter")


@dataclass(frozen=True, slots=True)
class Position:
    """A position after a commit; within an answer also its last commit and the last change returned."""

    after: str | None
    until: str | None = None
    place: ChangePlace | None = None


def encode_cursor(binding: TokenBinding, after: str | None) -> str:
    """Return the cursor for a position after a whole commit."""
    return _CURSOR + _encode(binding, Position(after))


def encode_page_token(binding: TokenBinding, position: Position) -> str:
    """Return the page token for a position within an answer."""
    return _PAGE + _encode(binding, position)


def decode_cursor(binding: TokenBinding, text: str) -> Position:
    """Return the position of a cursor."""
    return replace(_decode(binding, text, _CURSOR, "a cursor"), until=None, place=None)


def decode_page_token(binding: TokenBinding, text: str) -> Position:
    """Return the position of a page token."""
    return _decode(binding, text, _PAGE, "a page token")


def _encode(binding: TokenBinding, position: Position) -> str:
    place = list(position.place) if position.place else None
    facts = [
        binding.graph,
        binding.branch,
        binding.incarnation,
        binding.filter,
        position.after,
        position.until,
        place,
    ]
    return urlsafe_b64encode(json.dumps(facts, separators=(",", ":")).encode()).decode().rstrip("=")


def _decode(binding: TokenBinding, text: str, prefix: str, what: str) -> Position:
    if not text.startswith(prefix):
        raise ChangeCursorRejected(f"it is not {what}")
    body = text.removeprefix(prefix)
    try:
        facts = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        graph, branch, incarnation, filter_, after, until, place = facts
        found = Position(
            _require_text(after), _require_text(until), None if place is None else _parse_place(place)
        )
        binding.require(TokenBinding(str(graph), str(branch), str(incarnation), str(filter_)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ChangeCursorRejected(f"it is not {what}") from error
    return found


def _require_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _parse_place(value: Any) -> ChangePlace:
    key, entity = value
    return str(key), str(entity)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
