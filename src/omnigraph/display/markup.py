"""Small tables of HTML for notebooks; whatever the data holds, it is text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.text import NULL, escape_invisible, truncate

FIRST_ROWS = 20
"""How many rows are shown of something that is only looked at."""
WIDEST = 200
"""Letters of a cell; the rest is cut."""

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: its name, and whether it holds numbers, which stand to the right."""

    name: str
    is_number: bool = False


def render_html_table(
    caption: str, headings: Sequence[Heading], rows: Iterable[Sequence[Cell]], rest: Iterable[str] = ()
) -> str:
    """A table of texts on one line each; lines of `rest` follow it."""
    head = "".join(f"<th>{_render_text(heading.name)}</th>" for heading in headings)
    body = "".join(f"<tr>{_render_row(row, headings)}</tr>" for row in rows)
    lines = "".join(f"<div>{_render_text(line)}</div>" for line in rest)
    return (
        f"<div><table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{lines}</div>"
    )


def _render_row(row: Sequence[Cell], headings: Sequence[Heading]) -> str:
    return "".join(
        f'<td style="text-align: {"right" if heading.is_number else "left"}">{_render_cell(cell)}</td>'
        for cell, heading in zip(row, headings, strict=True)
    )


def _render_cell(cell: Cell) -> str:
    if cell is None:
        return f'<em style="opacity: 0.5">{NULL}</em>'
    return _render_text(str(cell))


def _render_text(text: str) -> str:
    return html.escape(truncate(escape_invisible(text), WIDEST))
