"""How each table is merged, chosen from its versions alone."""

from __future__ import annotations

from enum import Enum

from omnigraph.engine.graph.manifest import TableEntry


class TableStrategy(Enum):
    """What a merge does with a table."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    """The target may point at the source's version, which main holds."""
    REPLAY = "replay"
    """The source's changes are carried over to the target's own table."""


def choose_strategy(
    base: TableEntry | None, source: TableEntry, target: TableEntry, owner: str | None
) -> TableStrategy:
    """How to merge a table, given its versions at the base, where it is a stored one, and on both branches.

    `owner` is the target branch as tables name it. A pointer is only ever set to main's table: main is never
    deleted, while a branch must stay deletable after a merge. The version only goes up, because of several
    published versions the highest counts, and version numbers of different owners cannot be compared.
    """
    if _place(source) == _place(target):
        return TableStrategy.NOTHING
    if base is None:
        return TableStrategy.REPLAY
    if _place(source) == _place(base):
        return TableStrategy.NOTHING
    is_free = source.owner is None and target.owner != owner and _place(base) == _place(target)
    return TableStrategy.ADOPT if is_free and source.version > target.version else TableStrategy.REPLAY


def is_untouched(base: TableEntry, target: TableEntry) -> bool:
    """Whether the target still has the base's version."""
    return _place(base) == _place(target)


def _place(entry: TableEntry) -> tuple[str | None, int]:
    return entry.owner, entry.version
