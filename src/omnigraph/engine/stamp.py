"""The number that says in which form a graph is stored."""

from __future__ import annotations

import re
from collections.abc import Collection

from omnigraph.engine.manifest import STAMP
from omnigraph.errors import InternalError, UnsupportedFormat
from omnigraph.storage.tables import Table

CURRENT = 4
MIN_SUPPORTED = 1

_NUMBER = re.compile(rb"[0-9]{1,9}")


def read_stamp(table: Table) -> int:
    """The stamp of a manifest; none at all is the first form."""
    text = (table.schema.metadata or {}).get(STAMP.encode())
    if text is None:
        return 1
    if _NUMBER.fullmatch(text) is None:
        raise UnsupportedFormat(
            f"the graph's format stamp '{text.decode(errors='replace')}' is not a number",
            found=-1,
            supported=supported_forms(),
            remedy="restore the manifest from a backup",
        )
    return int(text)


def checked_stamp(table: Table) -> int:
    """The stamp, if this release can work with it."""
    found = read_stamp(table)
    if found > CURRENT:
        raise _refused(found, remedy="upgrade omnigraph")
    if found < MIN_SUPPORTED:
        raise _refused(found, remedy="migrate it with an older release first")
    return found


def is_current(table: Table) -> bool:
    """Whether a manifest has the form this release writes; False for the older ones it can read."""
    return checked_stamp(table) == CURRENT


def supported_forms() -> str:
    """The forms this release can work with, in words."""
    return f"{MIN_SUPPORTED} to {CURRENT}"


def require_every_step(sources: Collection[int]) -> None:
    """Refuse a set of migration steps that does not lead from every supported form to the current one.

    Called when the steps are imported: a floor that is raised without removing the steps below it, or the
    reverse, must not even start.
    """
    if sorted(sources) != list(range(MIN_SUPPORTED, CURRENT)):
        raise InternalError(
            f"migration steps start at formats {sorted(sources)}, supported are formats {supported_forms()}"
        )


def _refused(found: int, *, remedy: str) -> UnsupportedFormat:
    supported = supported_forms()
    return UnsupportedFormat(
        f"the graph has format {found}, and this release knows formats {supported}",
        found=found,
        supported=supported,
        remedy=remedy,
    )
