"""Results for people: values on one line, in tables of text and of HTML."""

from __future__ import annotations

import html
import json
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.lang.values import Json, json_column

if TYPE_CHECKING:
    from omnigraph.query.result import Result

NULL = "null"
FIRST_ROWS = 20
"""How many rows are shown of a result that is only looked at."""
WIDEST = 80
NARROWEST = 8
WIDEST_HTML = 200
SEPARATOR, RULE = " | ", "-+-"

_encode = json.JSONEncoder(ensure_ascii=False).encode

# Characters that move the cursor, end a line or turn the direction of writing; no data may steer a terminal.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


# --- one value -----------------------------------------------------------------------------------


def value_line(value: Json) -> str:
    """A value on one line; null is `null`, and a text that reads so has quotes."""
    if isinstance(value, str):
        return f'"{value}"' if value == NULL else visible(value)
    return visible(_encode(value))


def visible(text: str) -> str:
    """A text on one line, with escapes for what would not show."""
    return text if text.isprintable() else _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def counted(count: int, word: str) -> str:
    """A count in words: `no rows`, `1 row`, `3 rows`."""
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


def text_width(text: str) -> int:
    """How many places a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _fitted(text: str, width: int) -> str:
    """The text, cut where it is wider."""
    if text_width(text) <= width:
        return text
    taken, room = 0, width - 1
    for char in text:
        room -= _char_width(char)
        if room < 0:
            break
        taken += 1
    return text[:taken] + "…"


# --- tables of text ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is laid out."""

    name: str
    width: int
    is_number: bool

    def cell(self, text: str) -> str:
        """The text in the column's width, numbers to the right."""
        fitted = _fitted(text, self.width)
        space = " " * (self.width - text_width(fitted))
        return space + fitted if self.is_number else fitted + space


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
    """The first rows of a result for a notebook; whatever the data holds, it is text."""
    first = result.table.slice(0, FIRST_ROWS)
    columns = [json_column(column, type_) for column, type_ in zip(first.columns, result.types, strict=True)]
    head = "".join(f"<th>{html.escape(visible(name))}</th>" for name in result.columns)
    sides = ["right" if type_.is_numeric else "left" for type_ in result.types]
    body = "".join(f"<tr>{_html_row(row, sides)}</tr>" for row in zip(*columns, strict=True))
    rest = "".join(f"<div>{line}</div>" for line in _rest(result, len(columns)))
    caption = html.escape(heading(result))
    return (
        f"<div><table><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}</div>"
    )


def _html_row(row: Sequence[Json], sides: Sequence[str]) -> str:
    return "".join(
        f'<td style="text-align: {side}">{_html_cell(value)}</td>'
        for value, side in zip(row, sides, strict=True)
    )


def _html_cell(value: Json) -> str:
    if value is None:
        return f'<em style="opacity: 0.5">{NULL}</em>'
    return html.escape(_fitted(value_line(value), WIDEST_HTML))
