"""Tables of text: columns side by side, each as wide as what is in it, up to a limit."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.markup import Cell, Heading
from omnigraph.display.text import NULL, display_width, escape_invisible, truncate

WIDEST = 80
NARROWEST = 8
SEPARATOR, RULE = " | ", "-+-"

Texts = Sequence[Sequence[str]]
"""Some rows, column by column; every text is on one line."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How wide a column may be, and what becomes of a text that is wider."""

    widest: int = WIDEST
    wraps: bool = False
    """Whether such a text goes on in the next line instead of being cut."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is laid out."""

    name: str
    width: int
    is_number: bool

    def format_cell(self, text: str) -> str:
        """The text in the column's width, numbers to the right."""
        cut = truncate(text, self.width)
        space = " " * (self.width - display_width(cut))
        return space + cut if self.is_number else cut + space


def measure_columns(
    names: Sequence[str], are_numbers: Iterable[bool], pages: Iterable[Texts], widest: int = WIDEST
) -> list[Column]:
    """Columns as wide as their names and texts, but not wider than allowed."""
    widths = [display_width(name) for name in names]
    for texts in pages:
        widths = [
            max([width, *map(display_width, column)]) for width, column in zip(widths, texts, strict=True)
        ]
    most = max(widest, NARROWEST)
    return [
        Column(name, min(max(width, 1), most), is_number)
        for name, width, is_number in zip(names, widths, are_numbers, strict=True)
    ]


def fit_columns(columns: Sequence[Column], total: int) -> list[Column]:
    """Columns that fit side by side: the widest are cut down, and if that is not enough the last left out."""
    level = next(
        (level for level in range(WIDEST, NARROWEST, -1) if _total_width(columns, level) <= total), NARROWEST
    )
    fitting = [replace(column, width=min(column.width, level)) for column in columns]
    while len(fitting) > 1 and _total_width(fitting, level) > total:
        fitting.pop()
    return fitting


def _total_width(columns: Sequence[Column], level: int) -> int:
    return sum(min(column.width, level) for column in columns) + len(SEPARATOR) * (len(columns) - 1)


def render_grid(columns: Sequence[Column], pages: Iterable[Texts], *, wraps: bool = False) -> Iterator[str]:
    """The lines of a table; columns that rows have beyond those given are left out."""
    lines = _wrap_row if wraps else _cut_row
    yield from lines([column.name for column in columns], columns)
    yield RULE.join("-" * column.width for column in columns)
    for texts in pages:
        for row in zip(*texts, strict=True):
            yield from lines(row, columns)


def render_text_table(
    caption: str, headings: Sequence[Heading], rows: Iterable[Sequence[Cell]], rest: Iterable[str] = ()
) -> str:
    """A table as wide as the terminal at most, below its caption; lines of `rest` follow it."""
    cells = [[NULL if cell is None else escape_invisible(str(cell)) for cell in row] for row in rows]
    texts = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in headings]
    names, numbers = [one.name for one in headings], [one.is_number for one in headings]
    columns = fit_columns(measure_columns(names, numbers, [texts]), shutil.get_terminal_size().columns)
    return "\n".join([caption, *render_grid(columns, [texts]), *map(escape_invisible, rest)])


def _cut_row(texts: Sequence[str], columns: Sequence[Column]) -> tuple[str]:
    cells = (column.format_cell(text) for column, text in zip(columns, texts, strict=False))
    return (SEPARATOR.join(cells).rstrip(),)


def _wrap_row(texts: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    cells = [list(_split_text(text, column.width)) for text, column in zip(texts, columns, strict=False)]
    for pieces in zip_longest(*cells, fillvalue=""):
        yield from _cut_row(pieces, columns)


def _split_text(text: str, width: int) -> Iterator[str]:
    """A text in pieces of a width, at least one."""
    begin, taken = 0, 0
    for at, char in enumerate(text):
        taken += display_width(char)
        if taken > width:
            yield text[begin:at]
            begin, taken = at, display_width(char)
    yield text[begin:]
