"""Commits and how they hang together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.errors import InvalidName

RECOVERY_ACTOR = "omnigraph:recovery"
REPAIR_ACTOR = "omnigraph:repair"
FORCED_REPAIR_ACTOR = "omnigraph:repair:force"
_RESERVED_ACTORS = "omnigraph:"
_LONGEST_ACTOR = 256

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_actor(actor: object) -> None:
    """Raise `InvalidName` for what cannot stand in a commit as the one who made it."""
    if not isinstance(actor, str):
        raise InvalidName(
            repr(actor), f"an actor is a text, not {type(actor).__name__}", remedy="give a name, or none"
        )
    if not actor.strip() or not actor.isprintable() or len(actor) > _LONGEST_ACTOR:
        raise InvalidName(
            actor,
            f"{ascii(actor)[:60]} cannot be the name of an actor",
            remedy=f"give 1 to {_LONGEST_ACTOR} characters that can be printed",
        )
    if actor.startswith(_RESERVED_ACTORS):
        raise InvalidName(
            actor, f"actors '{_RESERVED_ACTORS}...' are omnigraph itself", remedy="choose another name"
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of the graph."""

    id: str
    branch: str
    version: int
    """The version of the branch's manifest that first showed it."""
    created_at: int
    """Microseconds since 1970; later than its parent's, whatever the clocks of hosts say."""
    parent: str | None = None
    merged_parent: str | None = None
    actor: str | None = None

    @property
    def time(self) -> datetime:
        """When it was made, in UTC."""
        return _EPOCH + timedelta(microseconds=self.created_at)

    @property
    def order(self) -> tuple[int, int, str]:
        """Commits of one branch sort by this; the greatest is its head."""
        return self.version, self.created_at, self.id


def head(commits: Iterable[Commit]) -> Commit | None:
    """The newest of the commits a branch shows."""
    return max(commits, key=lambda commit: commit.order, default=None)


def newest_first(commits: Iterable[Commit]) -> list[Commit]:
    """Commits in the order people read a log."""
    return sorted(commits, key=lambda commit: commit.order, reverse=True)


def first_parents(commits: Mapping[str, Commit], start: str | None) -> Iterator[Commit]:
    """A commit and the chain of its first parents, as far as it is known."""
    while start is not None and (found := commits.get(start)) is not None:
        yield found
        start = found.parent


def at_time(commits: Mapping[str, Commit], start: str | None, moment: int) -> Commit | None:
    """The newest commit down the first-parent chain that is not later than a moment in microseconds."""
    return next((found for found in first_parents(commits, start) if found.created_at <= moment), None)


def merge_base(commits: Mapping[str, Commit], ours: str, theirs: str) -> Commit | None:
    """The common ancestor nearest to both; of several, the one a manifest showed last.

    Commits of branches that were deleted are unknown; a walk ends there.
    """
    left, right = distances(commits, ours), distances(commits, theirs)
    common = sorted((commits[found] for found in left.keys() & right.keys()), key=lambda found: found.order)
    return min(reversed(common), key=lambda found: left[found.id] + right[found.id], default=None)


def distances(commits: Mapping[str, Commit], start: str) -> dict[str, int]:
    """How many steps each ancestor is away, over both kinds of parents."""
    found = {start: 0} if start in commits else {}
    queue = deque(found)
    while queue:
        commit = commits[queue.popleft()]
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and parent in commits and parent not in found:
                found[parent] = found[commit.id] + 1
                queue.append(parent)
    return found
