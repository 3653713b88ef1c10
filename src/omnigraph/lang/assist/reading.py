"""The tokens of a text, and the one at a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.source import Source, Span
from omnigraph.lang.tokens import END, Cursor

ItemKind = Literal["type", "property", "edge", "variable", "keyword", "function"]


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign of a text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def is_word(self) -> bool:
        """Whether it is a name, a variable or a number, and no sign."""
        return self.text[0].isalnum() or self.text[0] in "_$"

    @property
    def span(self) -> Span:
        """Where it is."""
        return Span(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Item:
    """Something that may be written at a place."""

    label: str
    kind: ItemKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """What a word means, and where the word is."""

    text: str
    at: Span


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """A type of the schema, or a property of it."""

    type_name: str
    property_name: str | None = None


def read_tokens(source: Source) -> list[Token]:
    """Return all tokens of a text, what is no token included."""
    cursor, found = Cursor(source), []
    while cursor.kind != END:
        found.append(Token(cursor.kind, cursor.text, cursor.start, cursor.end))
        cursor.advance()
    return found


def token_at(tokens: Sequence[Token], offset: int) -> int | None:
    """Return the number of the token at a place: a word that is there or ends there, before a sign."""
    touching = [number for number, token in enumerate(tokens) if token.start <= offset <= token.end]
    return min(touching, key=lambda number: not tokens[number].is_word, default=None)


def split_at(tokens: Sequence[Token], offset: int) -> tuple[list[Token], str]:
    """Return the tokens before a place, without the word that is being written there, and that word."""
    before = [token for token in tokens if token.start < offset]
    if before and before[-1].end >= offset and before[-1].is_word:
        written = before[-1].text[: offset - before[-1].start]
        return before[:-1], written
    return before, ""
