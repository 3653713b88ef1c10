"""Changes as HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from omnigraph.display.markup import FIRST_ROWS, Cell, Heading, render_html_table
from omnigraph.display.text import format_count, format_value
from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation, EntityImage
from omnigraph.engine.graph.layout import split_key
from omnigraph.lang.values import Json

_COUNTS = [
    Heading("type"),
    Heading("kind"),
    Heading("inserted", is_number=True),
    Heading("updated", is_number=True),
    Heading("deleted", is_number=True),
]
_CHANGES = [Heading("change"), Heading("type"), Heading("id"), Heading("what")]


def render_counts(caption: str, stats: Mapping[str, ChangeCounts], rest: Iterable[str] = ()) -> str:
    """Render how many entities of each type differ."""
    return render_html_table(caption, _COUNTS, map(_count_cells, stats.items()), rest)


def _count_cells(item: tuple[str, ChangeCounts]) -> list[Cell]:
    key, counts = item
    kind, name = split_key(key)
    return [name, kind, counts.inserted, counts.updated, counts.deleted]


def render_changes(changes: Iterable[Change], total: int) -> str:
    """Render the first changes, one per line; `total` says how many there are."""
    more = [f"… {format_count(total - FIRST_ROWS, 'more change')}"] if total > FIRST_ROWS else []
    return render_html_table("Changes", _CHANGES, map(_change_cells, islice(changes, FIRST_ROWS)), more)


def _change_cells(change: Change) -> list[Cell]:
    return [change.op.value, change.type_name, change.id, _describe_change(change)]


def _describe_change(change: Change) -> str:
    before, after = _values(change.before), _values(change.after)
    if change.op is ChangeOperation.UPDATE:
        return ", ".join(
            f"{name}: {format_value(before.get(name))} → {format_value(after.get(name))}"
            for name in change.changed
        )
    held = after or before
    return ", ".join(f"{name}: {format_value(value)}" for name, value in held.items() if value is not None)


def _values(image: EntityImage | None) -> dict[str, Json]:
    if image is None:
        return {}
    ends: dict[str, Json] = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}
