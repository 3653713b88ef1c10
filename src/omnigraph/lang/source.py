"""Source text with positions, the collector of its problems, and suggestions for misspelt names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from omnigraph.diagnostics import MAX_DIAGNOSTICS, Diagnostic
from omnigraph.errors import CompileError, ParseError

MAX_SOURCE_CHARS = 16 * 1024 * 1024

_NAME_SHOWN = 60
_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")


class Span(NamedTuple):
    """A half-open range of characters of a source text."""

    start: int
    end: int


NOWHERE = Span(0, 0)
"""The span of a tree that was built by a program instead of parsed."""


def shorten(text: str) -> str:
    """A piece of the user's text, cut to a length that fits a message."""
    return text if len(text) <= _NAME_SHOWN else f"{text[:_NAME_SHOWN]}…"


class Source:
    """One schema or query text and its name, able to say where an offset is."""

    __slots__ = ("name", "text")

    def __init__(self, text: str, name: str | None = None) -> None:
        self.text = text
        self.name = name
        self._refuse_unreadable()

    @classmethod
    def from_bytes(cls, data: bytes, name: str | None = None) -> Source:
        """Decode a file's bytes; text that is not UTF-8 is a parse error at the first bad byte."""
        try:
            return cls(data.decode("utf-8"), name)
        except UnicodeDecodeError as error:
            readable = data[: error.start].decode("utf-8") + "\N{REPLACEMENT CHARACTER}"
            at = len(readable) - 1
            cls(readable, name).fail("the text is not valid UTF-8", Span(at, at + 1))

    def _refuse_unreadable(self) -> None:
        if len(self.text) > MAX_SOURCE_CHARS:
            self.fail(f"the text is longer than {MAX_SOURCE_CHARS} characters", Span(0, 1))
        if self.text.startswith("\ufeff"):
            self.fail(
                "the text begins with a byte order mark",
                Span(0, 1),
                help="save the file as UTF-8 without one",
            )
        if bad := _FORBIDDEN.search(self.text):
            what = "a NUL character" if bad.group() == "\0" else "a lone surrogate"
            self.fail(f"the text contains {what}", Span(*bad.span()), help="pass such values as parameters")

    def diagnostic(
        self, message: str, span: Span, *, code: str | None = None, help: str | None = None
    ) -> Diagnostic:
        """Describe a place with line, column, bytes and source line; an empty span is widened by one."""
        start = min(span.start, len(self.text))
        end = max(span.end, start + 1)
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", line_start)
        line = self.text[line_start : line_end if line_end >= 0 else None].rstrip("\r")
        byte_start = _byte_length(self.text[:start])
        return Diagnostic(
            message=message,
            line=self.text.count("\n", 0, start) + 1,
            column=start - line_start + 1,
            start=byte_start,
            end=byte_start + max(1, _byte_length(self.text[start:end])),
            source_line=line,
            width=max(1, min(end - start, line_start + len(line) - start)),
            code=code,
            help=help,
            source_name=self.name,
        )

    def fail(self, message: str, span: Span, *, help: str | None = None) -> NoReturn:
        """Raise a parse error about one place."""
        raise ParseError([self.diagnostic(message, span, help=help)])


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class TooManyProblems(Exception):
    """Raised inside the compiler to stop early; never leaves `lang`."""


class Problems:
    """Collects diagnostics so that one run reports many, and stops the work after `MAX_DIAGNOSTICS`."""

    def __init__(self, source: Source, kind: type[CompileError] = ParseError) -> None:
        self.source = source
        self.kind = kind
        self.found: list[Diagnostic] = []

    def add(self, message: str, span: Span, *, code: str | None = None, help: str | None = None) -> None:
        """Record a problem; raise `TooManyProblems` when the limit is passed."""
        if len(self.found) >= MAX_DIAGNOSTICS:
            raise TooManyProblems
        self.found.append(self.source.diagnostic(message, span, code=code, help=help))

    def raise_if_any(self, *, truncated: bool = False) -> None:
        """Raise everything found as one error, in source order."""
        if self.found:
            raise self.kind(sorted(self.found, key=lambda found: found.start), truncated=truncated)


_MOST = 20
"""More names are not listed, and a longer name is not compared."""


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """Return a hint for an unknown name: the known name most like it, else all names if few."""
    from difflib import get_close_matches  # only mistakes need it

    names = sorted(set(known))  # a node and an edge may share a name
    folded = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), folded, 1) if len(name) <= _MOST else []
    if close:
        return f"did you mean `{folded[close[0]]}`?"
    return f"it may be: {', '.join(names)}" if 0 < len(names) <= _MOST else None
