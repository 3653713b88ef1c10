"""What can be said about a statement of Spark SQL without Spark: that it is one query, and its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from omnigraph.deferred_dataclass import dataclass

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* )
  | (?P<comment>/\*)
  | (?P<quoted>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`)
  | (?P<cast>::)
  | (?P<parameter>:[A-Za-z_][A-Za-z0-9_]*)
  | (?P<word>[^\W\d]\w*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CAST = re.compile(
    r"\s*(?:try_)?cast\s*\((?P<value>.*)\s+as\s+(?P<type>[^()]+(?:\([^()]*\))?)\s*\)\s*", re.I | re.S
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement that means something."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """In capitals, if it is a word."""
        return self.text.upper() if self.kind == "word" else self.text


class NotOneQuery(ValueError):
    """A text is not one SELECT or WITH; the message says why."""


def list_parameters(sql: str) -> list[str]:
    """The names that stand behind a colon, each once, in order."""
    return list(dict.fromkeys(token.text[1:] for token in scan_tokens(sql) if token.kind == "parameter"))


def require_query(sql: str) -> None:
    """Fail unless a text is one SELECT, or a WITH that ends in one: Spark runs anything else at once."""
    found = list(scan_tokens(sql))
    while found and found[-1].text == ";":
        found.pop()
    if not found:
        raise NotOneQuery("has no statement")
    if any(token.text == ";" for token in found):
        raise NotOneQuery("has more than one statement")
    first = _main_word(found)
    if first != "SELECT":
        raise NotOneQuery(f"must be a SELECT or WITH, not {first}")


def plain_cast(expression: str) -> str | None:
    """The type of an expression that is nothing but `cast(... as T)`."""
    found = _CAST.fullmatch(expression)
    if found is None or not _is_balanced(found["value"]):
        return None
    return found["type"].strip().lower()


def scan_tokens(sql: str) -> Iterator[Token]:
    """The tokens of a statement without spaces and comments."""
    return (token for token in _scan_all(sql) if token.kind != "space")


def strip_comments(sql: str) -> str:
    """Return a statement with a space in the place of every comment."""
    return "".join(" " if token.kind == "space" else token.text for token in _scan_all(sql))


def _scan_all(sql: str) -> Iterator[Token]:
    """Every token of a statement; spaces and comments are tokens of the kind `space`."""
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None, "the last alternative takes any character"
        at = found.end()
        kind = found.lastgroup or "other"
        if kind == "comment":
            at = _comment_end(sql, at)
            kind = "space"
        yield Token(kind, found.group())


def _comment_end(sql: str, at: int) -> int:
    """Behind a comment in brackets; these may hold others."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", sql[at:]):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return at + mark.end()
    raise NotOneQuery("has a comment without an end")


def _main_word(found: list[Token]) -> str:
    """The word that says what a statement does: after the named queries of a WITH, and in brackets."""
    at = 0
    if found[0].word == "WITH":
        at = _behind_named_queries(found)
    while at < len(found) and found[at].text == "(":
        at += 1
    return found[at].word if at < len(found) else "nothing"


def _behind_named_queries(found: list[Token]) -> int:
    """Past each `name [(columns)] AS (query)`: behind the first bracket that no comma or AS follows."""
    depth, at = 0, 1
    for at in range(1, len(found)):
        text = found[at].text
        depth += (text == "(") - (text == ")")
        behind = found[at + 1].word if at + 1 < len(found) else ""
        if text == ")" and not depth and behind not in (",", "AS", "MAX", "("):
            return at + 1
    return len(found)


def _is_balanced(text: str) -> bool:
    """Whether brackets in a text close only what it opens."""
    depth = 0
    for token in scan_tokens(text):
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            return False
    return depth == 0
