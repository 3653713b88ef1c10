"""Changes as tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from omnigraph.display.lines import counted, value_line
from omnigraph.display.markup import FIRST_ROWS, Cell, Heading, table
from omnigraph.engine.changes.change import Change, Image, Op, Stat
from omnigraph.engine.layout import split_key
from omnigraph.lang.values import Json

_COUNTS = [
    Heading("type"),
    Heading("kind"),
    Heading("inserted", is_number=True),
    Heading("updated", is_number=True),
    Heading("deleted", is_number=True),
]
_CHANGES = [Heading("change"), Heading("type"), Heading("id"), Heading("what")]


def counts_table(caption: str, stats: Mapping[str, Stat], rest: Iterable[str] = ()) -> str:
    """How many entities of each type differ."""
    return table(caption, _COUNTS, map(_counts, stats.items()), rest)


def _counts(told: tuple[str, Stat]) -> list[Cell]:
    kind, name = split_key(told[0])
    return [name, kind, told[1].inserted, told[1].updated, told[1].deleted]


def changes_table(changes: Iterable[Change], total: int) -> str:
    """The first of so many changes, each on a line."""
    more = [f"… {counted(total - FIRST_ROWS, 'more change')}"] if total > FIRST_ROWS else []
    return table("Changes", _CHANGES, map(_change, islice(changes, FIRST_ROWS)), more)


def _change(change: Change) -> list[Cell]:
    return [change.op.value, change.type_name, change.id, _what(change)]


def _what(change: Change) -> str:
    before, after = _values(change.before), _values(change.after)
    if change.op is Op.UPDATE:
        return ", ".join(
            f"{name}: {value_line(before.get(name))} → {value_line(after.get(name))}"
            for name in change.changed
        )
    held = after or before
    return ", ".join(f"{name}: {value_line(value)}" for name, value in held.items() if value is not None)


def _values(image: Image | None) -> dict[str, Json]:
    if image is None:
        return {}
    ends: dict[str, Json] = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}
