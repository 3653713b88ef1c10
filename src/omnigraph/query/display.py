"""Results for people: tables of text and of HTML."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.display.grid import WIDEST, Column, Layout, grid, measured, narrowed
from omnigraph.display.lines import counted, value_line, visible
from omnigraph.display.markup import FIRST_ROWS, Heading, table
from omnigraph.lang.values import json_column

if TYPE_CHECKING:
    from omnigraph.query.result import Result

# --- tables of text ------------------------------------------------------------------------------


def heading(result: Result) -> str:
    """How many rows a result has and where they come from."""
    place = f"branch {result.branch}" if result.snapshot is None else f"snapshot {result.snapshot}"
    return f"{len(result)} rows from {place} via {result.query_name}"


def table_lines(result: Result, layout: Layout = Layout()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """The whole result, row by row; it is gone through twice, so that no part of it is kept."""
    yield heading(result)
    if not result.columns:
        yield "(no rows)"
        return
    yield from grid(_columns(result, layout.widest), _texts(result), wraps=layout.wraps)


def text_table(result: Result) -> str:
    """The first rows of a result, as wide as the terminal at most."""
    if not result.columns:
        return "\n".join(table_lines(result))
    first = replace(result, _held=result.table.slice(0, FIRST_ROWS))
    columns = narrowed(_columns(first), shutil.get_terminal_size().columns)
    return "\n".join([heading(result), *grid(columns, _texts(first)), *_rest(result, len(columns))])


def _columns(result: Result, widest: int = WIDEST) -> list[Column]:
    names = [visible(name) for name in result.columns]
    return measured(names, (type_.is_numeric for type_ in result.types), _texts(result), widest)


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
