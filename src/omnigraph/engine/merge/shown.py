"""Merges as tables for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.display.lines import counted
from omnigraph.display.markup import FIRST_ROWS, Heading, table
from omnigraph.engine.merge.conflict import MergeConflict

_CONFLICTS = [Heading("type"), Heading("id"), Heading("conflict"), Heading("what")]


def conflicts_table(conflicts: Sequence[MergeConflict]) -> str:
    """The first conflicts; nothing when there are none."""
    if not conflicts:
        return ""
    rows = (
        [found.type_name, found.entity_id, found.kind.value, found.message]
        for found in conflicts[:FIRST_ROWS]
    )
    rest = len(conflicts) - FIRST_ROWS
    more = [f"… {counted(rest, 'more conflict')}"] if rest > 0 else []
    return table("Conflicts", _CONFLICTS, rows, more)
