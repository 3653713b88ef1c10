"""What the commands about changes share: which changes are wanted, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from omnigraph.cli.output import print_text
from omnigraph.display.text import escape_invisible, format_value
from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation, EntityImage

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only this type; may be repeated.", metavar="TYPE")
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only node or edge; may be repeated.", metavar="KIND")
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="Only insert, update or delete; may be repeated.", metavar="OP"),
]

SIGNS = {ChangeOperation.INSERT: "+", ChangeOperation.UPDATE: "~", ChangeOperation.DELETE: "-"}


def print_changes(changes: Iterable[Change], indent: str = "") -> int:
    """Changes for people, as they are read; says how many there were."""
    count = 0
    for change in changes:
        print_text("\n".join(f"{indent}{line}" for line in _lines(change)))
        count += 1
    return count


def _lines(change: Change) -> Iterator[str]:
    yield f"{SIGNS[change.op]} {change.kind} {change.type_name} {escape_invisible(change.id)}"
    before, after = _values(change.before), _values(change.after)
    if change.op is ChangeOperation.UPDATE:
        for name in change.changed:
            was, now = format_value(before.get(name)), format_value(after.get(name))
            yield f"    {escape_invisible(name)}: {was} -> {now}"
        return
    for name, value in (after or before).items():
        if value is not None:
            yield f"    {escape_invisible(name)}: {format_value(value)}"


def _values(image: EntityImage | None) -> dict[str, Any]:
    if image is None:
        return {}
    ends = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}


def stat_lines(stats: dict[str, ChangeCounts]) -> list[str]:
    """Counts for people, a line for each type."""
    return [
        f"{key}: {stat.inserted} inserted, {stat.updated} updated, {stat.deleted} deleted"
        for key, stat in stats.items()
    ]
