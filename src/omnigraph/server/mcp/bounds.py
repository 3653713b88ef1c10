"""Results that fit into a context window: the longest parts are shortened, and a note says by how much."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.server.wire.base import encode

MOST_CHARACTERS = 40_000
"""About ten thousand tokens."""
MOST_OF_A_TEXT = 2_000
MOST_OF_NUMBERS = 16

NOTE = "left_out"
HINT = "ask for less: add filters, a limit and an offset, or return fewer properties"


def bound_json(body: bytes, most: int = MOST_CHARACTERS) -> str:
    """Return JSON as it is, or with its longest lists and texts cut, and a note of what was left out."""
    if len(body) <= most:
        return body.decode()
    value = msgspec.json.decode(body)
    notes: list[str] = []
    shortened = _shorten(value, notes)
    members = shortened if isinstance(shortened, dict) else {"items": shortened}
    room = most - len(encode({NOTE: [*notes, HINT]})) - _ROOM_FOR_NOTES * len(members)
    kept = _cut_lists(members, room, notes)
    return encode({**kept, NOTE: [*notes, HINT]}).decode()


def bound_text(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text, or its beginning and a note of how much was left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n... {len(text) - most:,} more characters were left out"


_ROOM_FOR_NOTES = 80


def _shorten(value: Any, notes: list[str]) -> Any:
    """Return a value with long texts and vectors cut, and one note for each of the two kinds."""
    cut = _Cuts()
    shortened = cut.apply(value)
    if cut.texts:
        notes.append(f"the ends of {cut.texts:,} texts of more than {MOST_OF_A_TEXT:,} characters")
    if cut.vectors:
        notes.append(f"most numbers of {cut.vectors:,} lists of more than {MOST_OF_NUMBERS} numbers")
    return shortened


class _Cuts:
    def __init__(self) -> None:
        self.texts = 0
        self.vectors = 0

    def apply(self, value: Any) -> Any:
        match value:
            case str() if len(value) > MOST_OF_A_TEXT:
                self.texts += 1
                return value[:MOST_OF_A_TEXT] + "..."
            case dict():
                return {name: self.apply(item) for name, item in value.items()}
            case list() if len(value) > MOST_OF_NUMBERS and all(isinstance(one, float) for one in value):
                self.vectors += 1
                return value[:MOST_OF_NUMBERS]
            case list():
                return [self.apply(item) for item in value]
            case _:
                return value


def _cut_lists(members: dict[str, Any], room: int, notes: list[str]) -> dict[str, Any]:
    """Return the members with whole items removed from the longest lists and objects, until they fit."""
    sizes = {name: len(encode(value)) for name, value in members.items()}
    kept = dict(members)
    for name in sorted(sizes, key=lambda one: sizes[one], reverse=True):
        over = sum(sizes.values()) - room
        if over <= 0:
            break
        value = kept[name]
        if not isinstance(value, dict | list):
            continue
        items = list(value.items()) if isinstance(value, dict) else value
        shown = _fitting([encode(item) for item in items], sizes[name] - over)
        kept[name] = type(value)(items[:shown])
        sizes[name] = len(encode(kept[name]))
        notes.append(f"{name}: {len(items) - shown:,} of {len(items):,}")
    return kept


def _fitting(parts: list[bytes], room: int) -> int:
    """Return how many parts fit, with a comma after each."""
    used = 2
    for number, part in enumerate(parts):
        used += len(part) + 1
        if used > room:
            return number
    return len(parts)
