"""Parse the commit, version, time or branch that a user wants to read."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from omnigraph.arguments import require_whole
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph, ReadTarget
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.tags import read_tag
from omnigraph.errors import BadRequest, BranchNotFound, CommitNotFound, InvalidName, InvalidValue, NotFound
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


_VERSION = re.compile("v([0-9]{1,18})")

ParseTime = Callable[[str], int]
"""Microseconds since 1970 behind a text; fails with `InvalidValue` when it is no time."""


def resolve_snapshot(graph: OpenGraph, text: str, clock: ParseTime) -> Snapshot:
    """Return the snapshot that a text names: a branch, or else a time of main, a tag or a commit.

    `draft@2030-01-31T12:00:00Z` is a branch at a time, `draft@v12` at a version.
    """
    branch, sign, when = text.partition("@")
    if sign:
        return graph.snapshot(_branch_target(parse_branch_name(branch), when, clock))
    with suppress(InvalidName, BranchNotFound):
        found = graph.snapshot(AtBranch(parse_branch_name(text)))
        _refuse_ambiguous(graph, found.branch)
        return found
    target: ReadTarget = AtCommit(text)
    with suppress(InvalidValue):
        target = AtTime(MAIN, clock(text))
    try:
        return graph.snapshot(target)
    except CommitNotFound as error:
        raise NotFound(
            f"'{text}' is neither a branch nor a tag nor a commit nor a time",
            remedy="list them with `omnigraph branch list`, `omnigraph tag list` and `omnigraph commit list`",
        ) from error


def is_branch(graph: OpenGraph, text: str) -> bool:
    """Whether a text names a branch that exists, and no tag beside it."""
    try:
        name = parse_branch_name(text)
    except InvalidName:
        return False
    if name == MAIN:
        return True
    if graph.root.forks.find(graph.root.layout.manifest, name) is None:
        return False
    _refuse_ambiguous(graph, name)
    return True


def _refuse_ambiguous(graph: OpenGraph, name: str) -> None:
    """Refuse a name of a branch that a tag has as well: an earlier release may have made the branch."""
    tag = read_tag(graph.root, name)
    if tag is not None:
        raise BadRequest(
            f"'{name}' is a branch and a tag of commit '{tag.commit_id}'",
            remedy="name the commit, or delete the branch or the tag",
        )


def _branch_target(branch: str, when: str, clock: ParseTime) -> ReadTarget:
    version = _VERSION.fullmatch(when)
    return AtVersion(branch, int(version[1])) if version else AtTime(branch, clock(when))
