"""How users name a snapshot: a branch, a commit, a time, or a branch at a time or version."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph, ReadTarget
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import BranchNotFound, CommitNotFound, InvalidName, InvalidValue, NotFound

_VERSION = re.compile("v([0-9]{1,18})")

ParseTime = Callable[[str], int]
"""Microseconds since 1970 behind a text; fails with `InvalidValue` when it is no time."""


def resolve_snapshot(graph: OpenGraph, text: str, clock: ParseTime) -> Snapshot:
    """Return the snapshot that a text names: a branch of that name, or else a time of main, or a commit.

    `draft@2030-01-31T12:00:00Z` is a branch at a time, `draft@v12` at a version.
    """
    branch, sign, when = text.partition("@")
    if sign:
        return graph.snapshot(_branch_target(parse_branch_name(branch), when, clock))
    with suppress(InvalidName, BranchNotFound):
        return graph.snapshot(AtBranch(parse_branch_name(text)))
    target: ReadTarget = AtCommit(text)
    with suppress(InvalidValue):
        target = AtTime(MAIN, clock(text))
    try:
        return graph.snapshot(target)
    except CommitNotFound as error:
        raise NotFound(
            f"'{text}' is neither a branch nor a commit nor a time",
            remedy="list them with `omnigraph branch list` and `omnigraph commit list`",
        ) from error


def _branch_target(branch: str, when: str, clock: ParseTime) -> ReadTarget:
    version = _VERSION.fullmatch(when)
    return AtVersion(branch, int(version[1])) if version else AtTime(branch, clock(when))
