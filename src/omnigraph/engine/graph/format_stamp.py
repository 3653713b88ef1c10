"""The storage format number of a graph, and which formats this release supports."""

from __future__ import annotations

import re
from collections.abc import Collection

from omnigraph.engine.graph.manifest import STAMP
from omnigraph.errors import InternalError, UnsupportedFormat
from omnigraph.storage.tables import Table

CURRENT = 4
MIN_SUPPORTED = 1

_NUMBER = re.compile(rb"[0-9]{1,9}")


def read_stamp(table: Table) -> int:
    """Return the format of a manifest; without a stamp it is the first one."""
    text = (table.schema.metadata or {}).get(STAMP.encode())
    if text is None:
        return 1
    if _NUMBER.fullmatch(text) is None:
        raise UnsupportedFormat(
            f"the graph's format stamp '{text.decode(errors='replace')}' is not a number",
            found=-1,
            supported=supported_formats(),
            remedy="restore the manifest from a backup",
        )
    return int(text)


def require_supported_stamp(table: Table) -> int:
    """Return the format; raises `UnsupportedFormat` when this release cannot work with it."""
    found = read_stamp(table)
    if found > CURRENT:
        raise _unsupported(
            found,
            remedy="upgrade omnigraph, or export the graph with the release that wrote it and load the "
            "export into a new graph here",
        )
    if found < MIN_SUPPORTED:
        raise _unsupported(found, remedy="migrate it with an older release first")
    return found


def is_current(table: Table) -> bool:
    """Whether a manifest has the format this release writes; False for older supported ones."""
    return require_supported_stamp(table) == CURRENT


def supported_formats() -> str:
    """Describe the supported formats."""
    return f"{MIN_SUPPORTED} to {CURRENT}"


def require_every_step(sources: Collection[int]) -> None:
    """Refuse a set of migration steps that does not lead from every supported format to the current one.

    Called at import: raising the minimum without removing the steps below it, or the reverse, must fail.
    """
    if sorted(sources) != list(range(MIN_SUPPORTED, CURRENT)):
        raise InternalError(
            f"migration steps start at formats {sorted(sources)}, supported are formats {supported_formats()}"
        )


def _unsupported(found: int, *, remedy: str) -> UnsupportedFormat:
    supported = supported_formats()
    return UnsupportedFormat(
        f"the graph has format {found}, and this release knows formats {supported}",
        found=found,
        supported=supported,
        remedy=remedy,
    )
