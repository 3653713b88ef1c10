"""The tokens both languages share, and the cursor their parsers walk on.

Tokens are scanned one at a time, so a file of garbage costs no more than its first errors. What
cannot be a token becomes one of kind `BAD` that only turns into an error when a parser meets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from omnigraph.lang.source import Source, Span, shorten

MAX_NAME_CHARS = 255
MAX_NESTING = 64

# Token kinds. Punctuation has its own text as kind.
LOWER, UPPER, VAR, INT, FLOAT, STR, BAD, END = (
    "name",
    "type name",
    "variable",
    "integer",
    "float",
    "string",
    "bad",
    "end",
)

# Possessive quantifiers keep a comment or string without an end linear.
_SKIPPED = r"(?:[ \t\r\n]++|//[^\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)*+"
_SPACE = re.compile(_SKIPPED)
# Space and token in one match: scanning is most of what parsing costs.
_TOKEN = re.compile(
    _SKIPPED
    + r"""(?:
      (?P<lower>[a-z_][A-Za-z0-9_]*)
    | (?P<upper>[A-Z][A-Za-z0-9_]*)
    | (?P<var>\$[a-z_][A-Za-z0-9_]*)
    | (?P<float>[0-9]+\.[0-9]+(?![A-Za-z0-9_]))
    | (?P<int>[0-9]+(?![A-Za-z0-9_]|\.[0-9]))
    | (?P<str>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<punct>->|\.\.|>=|<=|!=|/(?![/*])|[{}()\[\]:,.<>=@?*+-])
    )""",
    re.VERBOSE | re.DOTALL,
)
_KINDS = {"lower": LOWER, "upper": UPPER, "var": VAR, "float": FLOAT, "int": INT, "str": STR}
_WORD = re.compile(r"[A-Za-z0-9_.$]+")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class SyntaxFault(Exception):
    """A syntax error on its way to the parser's recovery point; never leaves `lang`."""

    def __init__(self, message: str, span: Span, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.help = help


class Cursor:
    """The current token of a source text, and the small vocabulary of a recursive-descent parser."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._text = source.text
        self._next = 0
        self._depth = 0
        self.braces = 0
        """How many braces are open before the current token."""
        self.kind = END
        self.text = ""
        self.start = 0
        self.end = 0
        self.last_end = 0
        """Where the token before the current one ended."""
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        self.last_end = self.end
        if self.kind == "{":
            self.braces += 1
        elif self.kind == "}":
            self.braces -= 1
        found = _TOKEN.match(self._text, self._next)
        if found is None:
            self._scan_rest()
            return
        group = found.lastgroup or ""
        self.text = found[group]
        self.end = self._next = found.end()
        self.start = self.end - len(self.text)
        self.kind = self.text if group == "punct" else _KINDS[group]
        if len(self.text.removeprefix("$")) > MAX_NAME_CHARS and group in ("lower", "upper", "var"):
            self.kind = BAD

    def _scan_rest(self) -> None:
        """What follows is the end of the text, or no token."""
        space = _SPACE.match(self._text, self._next)
        self.start = at = space.end() if space else self._next
        if at >= len(self._text):
            self.kind, self.text, self.end, self._next = END, "", at, at
            return
        word = _WORD.match(self._text, at)
        self.end = self._next = word.end() if word else self._unfinished_end(at)
        self.kind, self.text = BAD, self._text[at : self.end]

    def _unfinished_end(self, at: int) -> int:
        """A string or comment without an end takes the rest of the text; else one character is bad."""
        opened = self._text[at] == '"' or self._text.startswith("/*", at)
        return len(self._text) if opened else at + 1

    @property
    def span(self) -> Span:
        """Where the current token is."""
        return Span(self.start, self.end)

    def starts_line(self) -> bool:
        """Whether the current token is the first of its line."""
        return self._text.find("\n", self.last_end, self.start) >= 0

    def since(self, start: int) -> Span:
        """From `start` to the end of the token before the current one."""
        return Span(start, max(start, self.last_end))

    def peek(self, count: int = 1) -> list[tuple[str, str]]:
        """Kind and text of the next `count` tokens after the current one."""
        saved = (self._next, self.braces, self.kind, self.text, self.start, self.end, self.last_end)
        ahead = []
        for _ in range(count):
            self.advance()
            ahead.append((self.kind, self.text))
        self._next, self.braces, self.kind, self.text, self.start, self.end, self.last_end = saved
        return ahead

    def rescan(self, pattern: re.Pattern[str]) -> str | None:
        """Read the text at the current token by another rule, or leave it and return None."""
        found = pattern.match(self._text, self.start)
        if found is None:
            return None
        self.end = self._next = found.end()
        self.advance()
        return found.group()

    def at(self, kind: str, text: str | None = None) -> bool:
        """Whether the current token is of this kind (and reads like this)."""
        return self.kind == kind and (text is None or self.text == text)

    def word(self, text: str) -> bool:
        """Whether the current token is this lower-case word."""
        return self.kind == LOWER and self.text == text

    def accept(self, kind: str, text: str | None = None) -> bool:
        """Move past the current token if it is this one."""
        if self.at(kind, text):
            self.advance()
            return True
        return False

    def take(self, kind: str, what: str | None = None) -> str:
        """The text of the current token, which must be of this kind; moves past it."""
        if self.kind != kind:
            self.expected(what or _describe_kind(kind))
        text = self.text
        self.advance()
        return text

    def take_word(self, text: str) -> None:
        """Move past this lower-case word or fail."""
        if not self.word(text):
            self.expected(f"`{text}`")
        self.advance()

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Guard one level of braces, parentheses, brackets or signs."""
        self._depth += 1
        try:
            if self._depth > MAX_NESTING:
                self.fail(f"nesting deeper than {MAX_NESTING}")
            yield
        finally:
            self._depth -= 1

    def expected(self, what: str, help: str | None = None) -> NoReturn:
        """Fail because the current token is not what the grammar wants."""
        if self.kind == BAD:
            self._fail_bad()
        found = "the end of the text" if self.kind == END else f"`{shorten(self.text)}`"
        self.fail(f"expected {what}, found {found}", help=help)

    def fail(self, message: str, span: Span | None = None, help: str | None = None) -> NoReturn:
        """Fail at the current token, or at `span`."""
        raise SyntaxFault(message, span or self.span, help)

    def _fail_bad(self) -> NoReturn:
        text = self.text
        first = Span(self.start, min(self.end, self.start + 1))
        if text.startswith('"'):
            self.fail("the string has no closing quote", first)
        if text.startswith("/*"):
            self.fail("the comment has no closing `*/`", Span(self.start, self.start + 2))
        if len(text) > MAX_NAME_CHARS:
            self.fail(f"names have at most {MAX_NAME_CHARS} characters", Span(self.start, self.start + 40))
        if text[0].isdigit():
            self.fail(
                f"invalid number: {shorten(text)}", help="numbers have digits, and a dot between digits"
            )
        if text.startswith("$"):
            self.fail(
                f"invalid variable: {shorten(text)}",
                help="variables are `$` and a lower-case name, like `$person`",
            )
        if text == "#":
            self.fail("unexpected character `#`", help="comments begin with `//`")
        if text == "'":
            self.fail("unexpected character `'`", help='strings are written in double quotes: "text"')
        if text == ";":
            self.fail("unexpected character `;`", first, help="nothing ends a line or a clause: take it away")
        self.fail(f"unexpected character `{shorten(text)}`", first)


def _describe_kind(kind: str) -> str:
    if kind in (LOWER, UPPER, VAR, INT, FLOAT, STR):
        article = "an" if kind[0] in "aeiou" else "a"
        return f"{article} {kind}"
    return f"`{kind}`"


def parse_integer(text: str, limit: int) -> int | None:
    """The value of an integer token, or None when it is over `limit`; never converts a huge text."""
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(limit)):
        return None
    value = int(digits)
    return value if value <= limit else None


def unescape(text: str, span: Span) -> str:
    """The value of a string token with its quotes."""
    body = text[1:-1]
    if "\\" not in body:
        return body

    def one(found: re.Match[str]) -> str:
        if found.group(1) not in _ESCAPES:
            at = span.start + 1 + found.start()
            raise SyntaxFault(f"unsupported escape sequence: \\{found.group(1)}", Span(at, at + 2))
        return _ESCAPES[found.group(1)]

    return _ESCAPE.sub(one, body)


def escape(value: str) -> str:
    """The string token, with quotes, that reads back as `value`."""
    table: dict[str, str | int | None] = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f'"{value.translate(str.maketrans(table))}"'
