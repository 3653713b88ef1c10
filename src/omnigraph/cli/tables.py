"""Results as tables of text, as wide as the operator likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from omnigraph.display.lines import text_width, value_line, visible
from omnigraph.lang.values import json_column
from omnigraph.query.display import NARROWEST, RULE, SEPARATOR, WIDEST, Column, heading
from omnigraph.query.result import Result


@dataclass(frozen=True, slots=True)
class Layout:
    """How wide a column may be, and what becomes of a value that is wider."""

    widest: int = WIDEST
    wraps: bool = False
    """Whether such a value goes on in the next line instead of being cut."""


def table(result: Result, layout: Layout = Layout()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """Columns side by side; the result is gone through twice, so that no part of it is kept."""
    yield f"{heading(result)}\n"
    if not result.columns:
        yield "(no rows)\n"
        return
    columns = _columns(result, max(layout.widest, NARROWEST))
    yield from _row([column.name for column in columns], columns, layout)
    yield RULE.join("-" * column.width for column in columns) + "\n"
    for texts in _texts(result):
        for row in zip(*texts, strict=True):
            yield from _row(row, columns, layout)


def _columns(result: Result, widest: int) -> list[Column]:
    names = [visible(name) for name in result.columns]
    widths = [text_width(name) for name in names]
    for texts in _texts(result):
        widths = [max([width, *map(text_width, cells)]) for width, cells in zip(widths, texts, strict=True)]
    return [
        Column(name, min(max(width, 1), widest), type_.is_numeric)
        for name, width, type_ in zip(names, widths, result.types, strict=True)
    ]


def _texts(result: Result) -> Iterator[list[list[str]]]:
    """The values of each column on one line each, some rows at a time."""
    for batch in result.batches():
        yield [
            [value_line(value) for value in json_column(column, type_)]
            for column, type_ in zip(batch.columns, result.types, strict=True)
        ]


def _row(texts: Sequence[str], columns: Sequence[Column], layout: Layout) -> Iterator[str]:
    """The lines of one row; a value that is cut needs one."""
    if not layout.wraps:
        yield _line(texts, columns)
        return
    cells = [list(_pieces(text, column.width)) for text, column in zip(texts, columns, strict=True)]
    for pieces in zip_longest(*cells, fillvalue=""):
        yield _line(pieces, columns)


def _line(texts: Sequence[str], columns: Sequence[Column]) -> str:
    cells = [column.cell(text) for column, text in zip(columns, texts, strict=True)]
    return SEPARATOR.join(cells).rstrip() + "\n"


def _pieces(text: str, width: int) -> Iterator[str]:
    """A text in pieces of a width, at least one."""
    begin, taken = 0, 0
    for at, char in enumerate(text):
        taken += text_width(char)
        if taken > width:
            yield text[begin:at]
            begin, taken = at, text_width(char)
    yield text[begin:]
