"""How much a cleanup keeps: a number of commits of each branch, an age, or both, and staged files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.maintenance.cleanup.staged_files import LONGEST_LOAD
from omnigraph.errors import BadRequest, InvalidValue

_DURATION = re.compile("([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """What stays readable. With both limits, a commit is removed only when it is beyond both."""

    keep: int | None
    """How many of the newest commits of every branch to keep."""
    older_than: float | None
    """For how many seconds every state is kept."""
    minimum_age: float
    """What was current within so many seconds is kept: a reader may still use it."""
    staged_older_than: float = LONGEST_LOAD
    """Staged files of loads that began more seconds ago than this are removed."""

    @classmethod
    def of(
        cls,
        keep: int | None,
        older_than: timedelta | str | None,
        minimum_age: float,
        staged_older_than: timedelta | str | None = None,
    ) -> CleanupPolicy:
        """Return the policy that a user asked for; fails without any limit."""
        if keep is None and older_than is None and staged_older_than is None:
            raise BadRequest(
                "a cleanup needs to know how much of the past to keep",
                remedy="name a number of commits (keep), an age (older_than) or both",
            )
        if keep is not None and keep < 1:
            raise InvalidValue(f"keep must be at least 1, got {keep}")
        return cls(
            keep,
            None if older_than is None else parse_duration(older_than),
            minimum_age,
            LONGEST_LOAD if staged_older_than is None else parse_duration(staged_older_than),
        )

    def kept(self, chain: Sequence[Commit], now: int) -> list[bool]:
        """Return for each commit of a branch, oldest first, whether it is kept; `now` in microseconds.

        The age of a commit is that of its successor. So every state within the age can be read, not only the
        commits made in that time.
        """
        if self.keep is None and self.older_than is None:
            return [True] * len(chain)
        cutoff = now - int(max(self.older_than or 0.0, self.minimum_age) * 1_000_000)
        newest = len(chain) - (1 if self.keep is None else self.keep)
        replaced = [commit.created_at for commit in chain[1:]]
        recent = [time > cutoff for time in replaced]
        return [at >= newest or recent[at] for at in range(len(chain))]

    def __str__(self) -> str:
        if self.keep is None and self.older_than is None:
            return "every commit"
        commits = (
            f"the newest {_pluralize(self.keep, 'commit')} of each branch" if self.keep is not None else ""
        )
        time = (
            f"what was current in the last {_format_seconds(self.older_than)}"
            if self.older_than is not None
            else ""
        )
        return " and ".join(filter(None, [commits, time]))


def parse_duration(duration: timedelta | str) -> float:
    """Return a duration in seconds: of a `timedelta`, or a text such as `90s`, `30m`, `12h`, `7d` or `2w`."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
        if seconds < 0:
            raise InvalidValue(f"an age must not be negative, got {duration}")
        return seconds
    found = _DURATION.fullmatch(duration.strip())
    if found is None:
        raise InvalidValue(
            f"'{duration}' is not a duration",
            remedy="write a whole number and s, m, h, d or w, such as `7d`",
        )
    return float(int(found[1]) * _SECONDS[found[2]])


def _pluralize(number: int, noun: str) -> str:
    return noun if number == 1 else f"{number} {noun}s"


def _format_seconds(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{seconds:g}s"
