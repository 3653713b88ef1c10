"""How each table is merged, told from its versions alone."""

from __future__ import annotations

from enum import Enum

from omnigraph.engine.manifest import Entry


class Way(Enum):
    """What a table needs."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    """The target may point at the source's version, which main holds."""
    REPLAY = "replay"
    """The source's changes are carried over to the target's own table."""


def way_of(base: Entry, source: Entry, target: Entry, owner: str | None) -> Way:
    """How to merge a table, given its versions at the base and on both branches.

    `owner` is the target branch as tables name it. A pointer is only ever set to main's table: main is never
    deleted, while a branch must not be held back by whoever took it in. And it goes up only, because
    of several published versions the highest counts, and the numbers of different owners say nothing.
    """
    if _place(source) in (_place(target), _place(base)):
        return Way.NOTHING
    is_free = source.owner is None and target.owner != owner and _place(base) == _place(target)
    return Way.ADOPT if is_free and source.version > target.version else Way.REPLAY


def untouched(base: Entry, target: Entry) -> bool:
    """Whether the target still has the base's version."""
    return _place(base) == _place(target)


def _place(entry: Entry) -> tuple[str | None, int]:
    return entry.owner, entry.version
