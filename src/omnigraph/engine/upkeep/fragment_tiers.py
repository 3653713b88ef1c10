"""When a table has too many small fragments, and which of them to put together.

A write costs as much as there are fragments, and putting some together costs as much as they hold. So small
ones go together often and large ones seldom: every tier up tolerates a few more fragments than the one below,
and therefore only comes to be once several fragments of its own size are there. A row is written again a few
times for each tier it climbs, whatever the size of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.storage.upkeep import TARGET_ROWS


@dataclass(frozen=True, slots=True)
class Tier:
    """Fragments below some size, and how many of them may be saved before it is worth the effort."""

    rows: int
    spare: int


TIERS = (Tier(1 << 8, 24), Tier(1 << 12, 30), Tier(1 << 16, 36), Tier(TARGET_ROWS, 42))
MIN_FRAGMENTS = TIERS[0].spare
"""With so many fragments or fewer nothing is ever to be done."""
_LARGE = 8
"""So many times as many rows make a fragment large beside others."""


def find_crowded_runs(rows: Sequence[int]) -> list[range]:
    """The runs of neighbours to be put together, given the size of every fragment; none if all is well."""
    if len(rows) <= MIN_FRAGMENTS:
        return []
    for tier in TIERS:
        runs = _runs(rows, tier.rows)
        if sum(len(run) - 1 for run in runs) >= tier.spare:
            return runs
    return []


def find_newest_run(rows: Sequence[int], fewest: int) -> range:
    """The newest fragments of a table that only ever grows, to be put together: at least so many.

    An older one joins them unless it is large beside them. So few remain, each several times as large as the
    next, and a row is written again a few times for each of these steps, however many there are before it.
    """
    total, start = 0, len(rows)
    while start and (len(rows) - start < fewest or rows[start - 1] <= _LARGE * total):
        start -= 1
        total += rows[start]
    return range(start, len(rows))


def _runs(rows: Sequence[int], limit: int) -> list[range]:
    """The longest runs of at least two fragments that are all below a size."""
    found, start = [], 0
    for position in range(len(rows) + 1):
        if position == len(rows) or rows[position] >= limit:
            if position - start > 1:
                found.append(range(start, position))
            start = position + 1
    return found
