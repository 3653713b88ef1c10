"""How users name a moment of a graph: a branch, a commit, a time, or a branch at a time or version."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from omnigraph.engine.branches import branch_name
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph, Target
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BranchNotFound, CommitNotFound, InvalidName, InvalidValue, NotFound

_VERSION = re.compile("v([0-9]{1,18})")

Clock = Callable[[str], int]
"""Microseconds since 1970 behind a text; fails with `InvalidValue` when it is no time."""


def snapshot_named(graph: OpenGraph, text: str, clock: Clock) -> Snapshot:
    """The snapshot that a text means: a branch if there is one of that name, else a time of main or a commit.

    `draft@2030-01-31T12:00:00Z` is a branch at a time, `draft@v12` at a version.
    """
    branch, sign, when = text.partition("@")
    if sign:
        return graph.snapshot(_at(branch_name(branch), when, clock))
    with suppress(InvalidName, BranchNotFound):
        return graph.snapshot(AtBranch(branch_name(text)))
    moment: Target = AtCommit(text)
    with suppress(InvalidValue):
        moment = AtTime(MAIN, clock(text))
    try:
        return graph.snapshot(moment)
    except CommitNotFound as error:
        raise NotFound(
            f"'{text}' is neither a branch nor a commit nor a time",
            remedy="list them with `omnigraph branch list` and `omnigraph commit list`",
        ) from error


def _at(branch: str, when: str, clock: Clock) -> Target:
    version = _VERSION.fullmatch(when)
    return AtVersion(branch, int(version[1])) if version else AtTime(branch, clock(when))
