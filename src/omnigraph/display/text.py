"""Values and texts on one line, as far as there is room."""

from __future__ import annotations

import json
import unicodedata

from omnigraph.lang.values import Json, escape_unprintable

NULL = "null"

_encode = json.JSONEncoder(ensure_ascii=False).encode


def format_value(value: Json) -> str:
    """A value on one line; null is `null`, and a text that reads so has quotes."""
    if isinstance(value, str):
        return f'"{value}"' if value == NULL else escape_invisible(value)
    return escape_invisible(_encode(value))


def escape_invisible(text: str) -> str:
    """A text on one line, with escapes for what would not show."""
    return escape_unprintable(text)


def format_count(count: int, word: str) -> str:
    """A count in words: `no rows`, `1 row`, `3 rows`."""
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


def format_total(count: int, word: str, plural: str | None = None) -> str:
    """A count with its noun: `0 rows`, `1 row`, `3 entities`."""
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def display_width(text: str) -> int:
    """How many places a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def truncate(text: str, width: int) -> str:
    """The text, cut where it is wider."""
    if display_width(text) <= width:
        return text
    taken, room = 0, width - 1
    for char in text:
        room -= _char_width(char)
        if room < 0:
            break
        taken += 1
    return text[:taken] + "…"
