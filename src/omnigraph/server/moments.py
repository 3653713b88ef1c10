"""Which moment of a graph a read is about, and the branch that policy is asked about for it."""

from __future__ import annotations

import re
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import BadRequest, CommitNotFound, InvalidName, NotFound
from omnigraph.graph import Graph
from omnigraph.policy.actions import Action
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.snapshot import Snapshot

_UNNAMED = re.compile("manifest:(.+):v([0-9]{1,18})")
"""How a snapshot without a commit is called."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A branch as it is now, or the graph at a commit, or a branch at a version or a time."""

    branch: str | None = None
    commit: str | None = None
    version: int | None = None
    time: str | None = None

    @property
    def is_now(self) -> bool:
        """Whether it is a branch as it is."""
        return self.commit is None and self.version is None and self.time is None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Graph.query` and its like."""
        return {"branch": self.branch, "commit": self.commit, "version": self.version, "time": self.time}


def parse_moment(
    branch: str | None,
    snapshot: str | None,
    commit: str | None = None,
    version: int | None = None,
    time: str | None = None,
) -> Moment:
    """Return the moment that a request names; a snapshot is a commit, or a name that the engine made."""
    if snapshot is None:
        name = None if commit is not None and branch is None else branch_or_main(branch)
        return Moment(name, commit, version, time)
    if branch is not None:
        raise BadRequest("request may specify branch or snapshot, not both")
    if commit is not None or version is not None or time is not None:
        raise BadRequest("name exactly one of snapshot, commit, version and time")
    unnamed = _UNNAMED.fullmatch(snapshot)
    if unnamed is None:
        return Moment(commit=snapshot)
    return Moment(branch_or_main(unnamed[1]), version=int(unnamed[2]))


def parse_version(call: Call) -> int | None:
    """Return the version that the query of a request names."""
    text = call.query("version")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"version must be a whole number, got '{text}'")
    return int(text)


def pin(graph: Graph, moment: Moment) -> Snapshot:
    """Return the snapshot of a moment."""
    if moment.is_now:
        return graph.snapshot(MAIN if moment.branch is None else moment.branch)
    return graph.at(**moment.arguments())


async def authorize_moment(call: Call, moment: Moment, action: Action = Action.READ) -> None:
    """Ask policy about the branch of a moment; a commit belongs to the branch it was made on."""
    branch = moment.branch
    if moment.commit is not None:
        branch = await _owner(call, moment.commit)
    call.authorize(action, branch=MAIN if branch is None else branch)


async def find_owner(call: Call, named: str) -> str:
    """Return the branch that policy is asked about for a moment: a branch, commit, tag or time."""
    branch = named.partition("@")[0]
    if call.target.policy is None or call.actor is None:
        return branch
    graph = call.graph
    try:
        found = (await call.look_up(lambda: graph.diff(named, named, engine="local"))).before
    except (NotFound, InvalidName):
        return branch  # the write reports it
    if found.branch == branch or found.commit is None:
        return found.branch
    return found.commit.branch


async def _owner(call: Call, commit: str) -> str:
    if call.target.policy is None or call.actor is None:
        return MAIN
    commits = call.graph.commits
    try:
        return (await call.look_up(lambda: commits.get(commit))).branch
    except CommitNotFound:
        return MAIN  # the read reports it, to those who may read main
