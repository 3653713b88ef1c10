"""A finding about a piece of source text, and how it is shown."""

from __future__ import annotations

import re
from typing import Any

from omnigraph.deferred_dataclass import dataclass

MAX_DIAGNOSTICS = 20
_STEERING = re.compile(
    "[^\\t\\n -~\u00a0-\ud7ff\ue000-\U0010ffff]|[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""What steers a terminal or does not show: control characters, marks of direction, lone surrogates."""
_SNIPPET_WIDTH = 160


def printable(text: str) -> str:
    """A text that is safe to print: with escapes for what would steer a terminal, line ends aside."""
    return text if text.isprintable() else _STEERING.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a piece of source text, with the place it is about."""

    message: str
    line: int
    column: int
    start: int
    """First byte of the text it is about, in UTF-8."""
    end: int
    """One past the last byte."""
    source_line: str
    width: int
    """How many characters of `source_line` to underline."""
    code: str | None = None
    help: str | None = None
    source_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("message", "help", "source_name"):
            if (text := getattr(self, name)) is not None and not text.isprintable():
                object.__setattr__(self, name, printable(text))

    def render(self) -> str:
        """The message, the place, the source line and an underline, as a compiler prints it."""
        label = f"error[{self.code}]" if self.code else "error"
        gutter = " " * len(str(self.line))
        text, offset = _window(self.source_line, self.column - 1)
        underline = " " * offset + "^" * max(1, min(self.width, len(text) - offset))
        lines = [
            f"{label}: {self.message.removeprefix(f'{self.code}: ')}",
            f"{gutter}--> {self.source_name or '<text>'}:{self.line}:{self.column}",
            f"{gutter} |",
            f"{self.line} | {text}",
            f"{gutter} | {underline}",
        ]
        if self.help:
            lines.append(f"{gutter} = help: {self.help}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        found = {
            "message": self.message,
            "line": self.line,
            "column": self.column,
            "span": {"start": self.start, "end": self.end},
            "source_line": _window(self.source_line, self.column - 1)[0],
            "code": self.code,
            "help": self.help,
        }
        return {key: value for key, value in found.items() if value is not None}


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a line worth showing, printable, and where `column` (0-based) falls in it."""
    first = max(0, column - _SNIPPET_WIDTH // 2) if len(line) > _SNIPPET_WIDTH else 0
    shown = line[first : first + _SNIPPET_WIDTH]
    clean = "".join(
        c if c.isprintable() else " " if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in shown
    )
    return clean, column - first
