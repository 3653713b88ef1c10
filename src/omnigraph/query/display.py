"""Results for people: tables of text and of HTML."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.display.lines import counted, fitted, text_width, value_line, visible
from omnigraph.display.markup import FIRST_ROWS, Heading, table
from omnigraph.lang.values import json_column

if TYPE_CHECKING:
    from omnigraph.query.result import Result

WIDEST = 80
NARROWEST = 8
SEPARATOR, RULE = " | ", "-+-"


# --- tables of text ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is laid out."""

    name: str
    width: int
    is_number: bool

    def cell(self, text: str) -> str:
        """The text in the column's width, numbers to the right."""
        cut = fitted(text, self.width)
        space = " " * (self.width - text_width(cut))
        return space + cut if self.is_number else cut + space


def heading(result: Result) -> str:
    """How many rows a result has and where they come from."""
    place = f"branch {result.branch}" if result.snapshot is None else f"snapshot {result.snapshot}"
    return f"{len(result)} rows from {place} via {result.query_name}"


def table_lines(result: Result) -> Iterator[str]:
    """The whole result, row by row; it is gone through twice, so that no part of it is kept."""
    yield heading(result)
    if not result.columns:
        yield "(no rows)"
        return
    yield from _grid(result, _layout(result))


def text_table(result: Result) -> str:
    """The first rows of a result, as wide as the terminal at most."""
    if not result.columns:
        return "\n".join(table_lines(result))
    first = replace(result, table=result.table.slice(0, FIRST_ROWS))
    columns = _narrowed(_layout(first), shutil.get_terminal_size().columns)
    return "\n".join([heading(result), *_grid(first, columns), *_rest(result, len(columns))])


def _layout(result: Result) -> list[Column]:
    names = [visible(name) for name in result.columns]
    widths = [text_width(name) for name in names]
    for texts in _texts(result):
        widths = [max([width, *map(text_width, column)]) for width, column in zip(widths, texts, strict=True)]
    return [
        Column(name, min(max(width, 1), WIDEST), type_.is_numeric)
        for name, width, type_ in zip(names, widths, result.types, strict=True)
    ]


def _narrowed(columns: list[Column], total: int) -> list[Column]:
    """Columns that fit side by side: the widest are cut down, and if that is not enough the last left out."""
    level = next(
        (level for level in range(WIDEST, NARROWEST, -1) if _taken(columns, level) <= total), NARROWEST
    )
    fitting = [Column(column.name, min(column.width, level), column.is_number) for column in columns]
    while len(fitting) > 1 and _taken(fitting, level) > total:
        fitting.pop()
    return fitting


def _taken(columns: Sequence[Column], level: int) -> int:
    return sum(min(column.width, level) for column in columns) + len(SEPARATOR) * (len(columns) - 1)


def _grid(result: Result, columns: Sequence[Column]) -> Iterator[str]:
    yield SEPARATOR.join(column.cell(column.name) for column in columns).rstrip()
    yield RULE.join("-" * column.width for column in columns)
    for texts in _texts(result):
        for row in zip(*texts, strict=True):
            yield SEPARATOR.join(
                column.cell(text) for column, text in zip(columns, row, strict=False)
            ).rstrip()


def _rest(result: Result, shown_columns: int) -> Iterator[str]:
    """What is not shown."""
    more = {"more row": len(result) - FIRST_ROWS, "more column": len(result.columns) - shown_columns}
    told = [counted(count, word) for word, count in more.items() if count > 0]
    if told:
        yield f"… {', '.join(told)}"


def _texts(result: Result) -> Iterator[list[list[str]]]:
    """The values of each column on one line each, some rows at a time."""
    for batch in result.batches():
        yield [
            [value_line(value) for value in json_column(column, type_)]
            for column, type_ in zip(batch.columns, result.types, strict=True)
        ]


# --- tables of HTML ------------------------------------------------------------------------------


def html_table(result: Result) -> str:
    """The first rows of a result for a notebook."""
    first = result.table.slice(0, FIRST_ROWS)
    columns = [
        [None if value is None else value_line(value) for value in json_column(column, type_)]
        for column, type_ in zip(first.columns, result.types, strict=True)
    ]
    headings = [
        Heading(name, type_.is_numeric) for name, type_ in zip(result.columns, result.types, strict=True)
    ]
    return table(heading(result), headings, zip(*columns, strict=True), _rest(result, len(columns)))
