"""Results for people: tables of text and of HTML."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.display.grid import WIDEST, Column, Layout, fit_columns, measure_columns, render_grid
from omnigraph.display.markup import FIRST_ROWS, Heading, render_html_table
from omnigraph.display.text import escape_invisible, format_count, format_value
from omnigraph.lang.values import column_to_json

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
    yield from render_grid(_columns(result, layout.widest), _texts(result), wraps=layout.wraps)


def text_table(result: Result) -> str:
    """The first rows of a result, as wide as the terminal at most."""
    if not result.columns:
        return "\n".join(table_lines(result))
    first = replace(result, _held=result.table.slice(0, FIRST_ROWS))
    columns = fit_columns(_columns(first), shutil.get_terminal_size().columns)
    return "\n".join([heading(result), *render_grid(columns, _texts(first)), *_rest(result, len(columns))])


def _columns(result: Result, widest: int = WIDEST) -> list[Column]:
    names = [escape_invisible(name) for name in result.columns]
    return measure_columns(names, (type_.is_numeric for type_ in result.types), _texts(result), widest)


def _rest(result: Result, shown_columns: int) -> Iterator[str]:
    """What is not shown."""
    more = {"more row": len(result) - FIRST_ROWS, "more column": len(result.columns) - shown_columns}
    parts = [format_count(count, word) for word, count in more.items() if count > 0]
    if parts:
        yield f"… {', '.join(parts)}"


def _texts(result: Result) -> Iterator[list[list[str]]]:
    """The values of each column on one line each, some rows at a time."""
    for batch in result.batches():
        yield [
            [format_value(value) for value in column_to_json(column, type_)]
            for column, type_ in zip(batch.columns, result.types, strict=True)
        ]


# --- tables of HTML ------------------------------------------------------------------------------


def html_table(result: Result) -> str:
    """The first rows of a result for a notebook."""
    first = result.table.slice(0, FIRST_ROWS)
    columns = [
        [None if value is None else format_value(value) for value in column_to_json(column, type_)]
        for column, type_ in zip(first.columns, result.types, strict=True)
    ]
    headings = [
        Heading(name, type_.is_numeric) for name, type_ in zip(result.columns, result.types, strict=True)
    ]
    return render_html_table(
        heading(result), headings, zip(*columns, strict=True), _rest(result, len(columns))
    )
