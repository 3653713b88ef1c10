"""How much memory this process may keep of what it read: one setting, or a share of the machine."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from omnigraph.errors import InvalidValue

CACHE_BYTES = "OMNIGRAPH_CACHE_BYTES"
"""The setting that says how much memory reads may keep; 0 keeps nothing."""

_SHARE = 4  # one part in so many of the machine's or container's memory
_UNKNOWN = 2 << 30
_MOST_DIGITS = 18
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def read_cache_budget() -> int:
    """The bytes that reads may keep, as the environment says or a share of the machine."""
    given = os.environ.get(CACHE_BYTES)
    if given is None:
        return machine_memory() // _SHARE
    if not given.isascii() or not given.isdigit() or len(given) > _MOST_DIGITS:
        raise InvalidValue(
            f"{CACHE_BYTES} must be a number of bytes, got '{given}'",
            remedy=f"set it like {CACHE_BYTES}=2000000000",
        )
    return int(given)


@cache
def machine_memory() -> int:
    """The memory of the container, or of the machine when no container limits it."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        machine = _UNKNOWN
    return min([machine, *filter(None, map(_container_limit, _CONTAINER_LIMITS))])


def _container_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None  # no container of this kind
    return int(text) if text.isdigit() else None
