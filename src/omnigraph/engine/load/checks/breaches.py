"""Breaches of a rule as they come back from the tasks of a load: by position, and some of them in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.constraints.faults import NO_ROW, Faults, Rule
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.rows.violations import Numbers

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Breaches:
    """Rows of one type that break one rule, or stored rows that would."""

    rule: Rule
    key: str
    positions: Numbers
    """Of those that are reported, in order; `NO_ROW` for a stored row."""
    ids: pa.Array
    reasons: pa.Array
    others: Numbers
    """The positions of further rows, where all must be known."""
    total: int
    """How many there are in all."""
    final: bool = False
    """Leaving out the rows would not help."""
    place: int = 0
    """Of several breaches of one row, those with lower numbers are reported first."""
    remedy: str | None = None
    """What helps."""
    about: str | None = None
    """The table of the ids, where it is another one."""

    @property
    def rows(self) -> Numbers:
        """The positions of all rows of the load that are known to break the rule."""
        every: Numbers = np.concatenate([self.positions, self.others])
        known: Numbers = every[every != NO_ROW]
        return known


def to_breaches(faults: Faults, positions: Numbers, job: LoadJob, place: int = 0) -> Breaches:
    """Faults of rows that are at these positions of the load."""
    known = faults.rows != NO_ROW
    at = np.full(len(faults), NO_ROW, np.int64)
    at[known] = positions[faults.rows[known]]
    order = np.lexsort((faults.ranks, at))
    reported = order if job.keeps_all else order[: job.report_limit]
    others = at[order[len(reported) :]] if job.skips_bad else _NONE
    chosen = pa.array(reported)
    return Breaches(
        faults.rule,
        faults.target.key,
        at[reported],
        faults.ids.take(chosen),
        faults.reasons.take(chosen),
        others,
        len(faults),
        faults.final,
        place,
        faults.remedy,
        faults.about,
    )


def merge_breaches(parts: Iterable[Breaches]) -> list[Breaches]:
    """What all tasks found, one value for each type, rule and remedy."""
    groups: dict[tuple[str, Rule, bool, int, str], list[Breaches]] = {}
    for part in parts:
        alike = (part.key, part.rule, part.final, part.place, part.remedy or "")
        groups.setdefault(alike, []).append(part)
    return [_merge(groups[group]) for group in sorted(groups)]


def _merge(parts: list[Breaches]) -> Breaches:
    first = parts[0]
    return Breaches(
        first.rule,
        first.key,
        np.concatenate([part.positions for part in parts]),
        pa.concat_arrays([part.ids for part in parts]),
        pa.concat_arrays([part.reasons for part in parts]),
        np.concatenate([part.others for part in parts]),
        sum(part.total for part in parts),
        first.final,
        first.place,
        first.remedy,
        first.about,
    )
