"""Which moment of a graph is meant, by the words that users have for it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from omnigraph.engine.branches import branch_name
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import AtBranch, AtCommit, AtTime, AtVersion, Target
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.dates import parse_datetime

_MAIN = AtBranch(MAIN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.]([0-9]+)")


def read_target(
    commit: str | None, version: int | None, time: datetime | str | None, branch: str | None
) -> Target:
    """What a query reads: a branch as it is now, unless it names a past."""
    if commit is None and version is None and time is None:
        return _MAIN if branch is None else AtBranch(branch_name(branch))
    return target_of(commit, version, time, branch)


def target_of(
    commit: str | None, version: int | None, time: datetime | str | None, branch: str | None
) -> Target:
    """The past that is named: exactly one of commit, version and time."""
    if commit is not None and version is None and time is None:
        if branch is not None:
            raise BadRequest("a commit is looked for on every branch", remedy="leave the branch out")
        return AtCommit(commit)
    name = branch_name(MAIN if branch is None else branch)
    if version is not None and commit is None and time is None:
        return AtVersion(name, version)
    if time is not None and commit is None and version is None:
        return AtTime(name, microseconds(time))
    named = {"commit": commit, "version": version, "time": time}
    given = " and ".join(name for name, value in named.items() if value is not None)
    raise BadRequest(f"name exactly one of commit, version and time, not {given or 'none of them'}")


def microseconds(time: datetime | str) -> int:
    """Microseconds since 1970."""
    if isinstance(time, str):
        fraction = _FRACTION.search(time)
        return parse_datetime(time) * 1000 + int((fraction[1] if fraction else "")[3:6].ljust(3, "0"))
    if time.utcoffset() is None:
        raise InvalidValue(
            f"the time {time.isoformat()} has no zone", remedy="give it one, such as `tzinfo=UTC`"
        )
    return (time - _EPOCH) // timedelta(microseconds=1)
