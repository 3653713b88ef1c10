"""Parse the commit, version, time or branch that a user wants to read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, ReadTarget
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.arguments import require_whole
from omnigraph.lang.dates import parse_datetime

_MAIN = AtBranch(MAIN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.]([0-9]+)")


def parse_target(
    commit: str | None, version: int | None, time: datetime | str | None, branch: str | None
) -> ReadTarget:
    """Return what a query reads: a branch as it is now, unless it names a commit, version or time."""
    if commit is None and version is None and time is None:
        return _MAIN if branch is None else AtBranch(parse_branch_name(branch))
    return parse_past_target(commit, version, time, branch)


def parse_past_target(
    commit: str | None, version: int | None, time: datetime | str | None, branch: str | None
) -> ReadTarget:
    """Return the past state named by exactly one of commit, version and time."""
    if commit is not None and version is None and time is None:
        if branch is not None:
            raise BadRequest("a commit is looked for on every branch", remedy="omit the branch")
        return AtCommit(commit)
    name = parse_branch_name(MAIN if branch is None else branch)
    if version is not None and commit is None and time is None:
        return AtVersion(name, require_whole("version", version, 0))
    if time is not None and commit is None and version is None:
        return AtTime(name, to_microseconds(time))
    named = {"commit": commit, "version": version, "time": time}
    given = " and ".join(name for name, value in named.items() if value is not None)
    raise BadRequest(f"name exactly one of commit, version and time, not {given or 'none of them'}")


def to_microseconds(time: datetime | str) -> int:
    """Convert a time to microseconds since 1970."""
    if isinstance(time, str):
        fraction = _FRACTION.search(time)
        return parse_datetime(time) * 1000 + int((fraction[1] if fraction else "")[3:6].ljust(3, "0"))
    if time.utcoffset() is None:
        raise InvalidValue(
            f"the time {time.isoformat()} has no zone", remedy="give it one, such as `tzinfo=UTC`"
        )
    return (time - _EPOCH) // timedelta(microseconds=1)
