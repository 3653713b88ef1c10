"""Commits, their parents and their common ancestors."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InvalidName, InvalidValue

RECOVERY_ACTOR = "omnigraph:recovery"
REPAIR_ACTOR = "omnigraph:repair"
FORCED_REPAIR_ACTOR = "omnigraph:repair:force"
_RESERVED_ACTORS = "omnigraph:"
_LONGEST_ACTOR = 256
LONGEST_MESSAGE = 10_000

_NOT_TEXT = ("Cc", "Cs")
RECOVERY = "recovery"
"""The operation of a commit by which recovery undid a write."""
REPAIR = "repair"
_UPKEEP = ("optimize", "ensure_indices", RECOVERY)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_actor(actor: object) -> None:
    """Raise `InvalidName` for a value that cannot be the actor of a commit."""
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


def require_message(message: object) -> None:
    """Raise `InvalidValue` for a value that cannot be the message of a commit."""
    if not isinstance(message, str):
        raise InvalidValue(f"a commit message is a text, not {type(message).__name__}")
    if not message.strip():
        raise InvalidValue("a commit message must not be blank", remedy="write one, or leave it out")
    if len(message) > LONGEST_MESSAGE:
        raise InvalidValue(
            f"a commit message has at most {LONGEST_MESSAGE:,} characters, this one has {len(message):,}",
            remedy="keep long texts in the graph itself, and name them in the message",
        )
    for sign in message:
        if unicodedata.category(sign) in _NOT_TEXT and sign not in "\n\t":
            raise InvalidValue(f"a commit message must not contain {sign!a}", remedy="remove it")


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
    message: str | None = None
    """What its author wrote about it."""
    operation: str | None = None
    """What made it, such as `load` or `merge`; None for commits of other implementations and old releases."""

    @property
    def subject(self) -> str | None:
        """The first line of its message."""
        return self.message.strip().splitlines()[0] if self.message else None

    @property
    def is_upkeep(self) -> bool:
        """Whether it is known to have changed how rows are stored, or nothing, and never an entity."""
        return self.operation in _UPKEEP

    @property
    def time(self) -> datetime:
        """When it was made, in UTC."""
        return _EPOCH + timedelta(microseconds=self.created_at)

    @property
    def order(self) -> tuple[int, int, str]:
        """Commits of one branch sort by this; the greatest is its head."""
        return self.version, self.created_at, self.id


def find_head(commits: Iterable[Commit]) -> Commit | None:
    """Return the newest of the commits a branch shows."""
    return max(commits, key=lambda commit: commit.order, default=None)


def newest_first(commits: Iterable[Commit]) -> list[Commit]:
    """Return commits in the order of a log."""
    return sorted(commits, key=lambda commit: commit.order, reverse=True)


def sort_children_first(commits: Mapping[str, Commit]) -> list[Commit]:
    """Return commits of several branches by time, newest first, and none before a commit made from it.

    Hosts may disagree about the time, so time alone does not order a merge and what it took in.
    """
    waiting = Counter(parent for one in commits.values() for parent in set(parents(one)) if parent in commits)
    ready = [(-one.created_at, one.id) for one in commits.values() if not waiting[one.id]]
    heapify(ready)
    found = []
    while ready:
        commit = commits[heappop(ready)[1]]
        found.append(commit)
        for parent in set(parents(commit)) & commits.keys():
            waiting[parent] -= 1
            if not waiting[parent]:
                heappush(ready, (-commits[parent].created_at, parent))
    return found


def walk_first_parents(commits: Mapping[str, Commit], start: str | None) -> Iterator[Commit]:
    """Yield a commit and the chain of its first parents, as far as they are known."""
    while start is not None and (found := commits.get(start)) is not None:
        yield found
        start = found.parent


def find_commit_at(commits: Mapping[str, Commit], start: str | None, moment: int) -> Commit | None:
    """Return the newest first-parent ancestor that is not later than a time in microseconds."""
    return next((found for found in walk_first_parents(commits, start) if found.created_at <= moment), None)


def merge_bases(commits: Mapping[str, Commit], *tips: Collection[str]) -> tuple[Commit, ...]:
    """Return the best common ancestors of any two tips, newest first.

    This function alone decides where merges start: for the API, a preview, a merge and cleanup. A common
    ancestor of two tips is best when no other common ancestor of these two descends from it. There are
    several after criss-cross merges. A tip is one commit, or several that count as merged into one. Parents
    that are not in `commits` end a walk.
    """
    reached: dict[str, int] = {}
    for bit, tip in enumerate(tips):
        for start in tip:
            reached[start] = reached.get(start, 0) | 1 << bit
    by_children: dict[str, set[int]] = {}
    found = []
    for commit in _children_first(commits, reached):
        mask = reached[commit.id]
        for parent in parents(commit):
            if parent in commits:
                reached[parent] = reached.get(parent, 0) | mask
                by_children.setdefault(parent, set()).add(mask)
        if _is_best(mask, by_children.pop(commit.id, set())):
            found.append(commit)
    return tuple(sorted(found, key=lambda commit: (commit.created_at, commit.id), reverse=True))


def parents(commit: Commit) -> Iterator[str]:
    """Yield the parents of a commit: one, or two for a merge."""
    if commit.parent is not None:
        yield commit.parent
    if commit.merged_parent is not None:
        yield commit.merged_parent


def ancestors(commits: Mapping[str, Commit], start: Iterable[str]) -> dict[str, Commit]:
    """Return some commits and all their known ancestors."""
    found: dict[str, Commit] = {}
    queue = [name for name in start if name in commits]
    while queue:
        name = queue.pop()
        if name not in found:
            found[name] = commits[name]
            queue += [parent for parent in parents(commits[name]) if parent in commits]
    return found


def _children_first(commits: Mapping[str, Commit], start: Iterable[str]) -> Iterator[Commit]:
    """All ancestors of some commits, each after every commit that was made from it."""
    known = ancestors(commits, start)
    waiting = Counter(
        parent for commit in known.values() for parent in set(parents(commit)) if parent in known
    )
    ready = [commit for commit in known.values() if not waiting[commit.id]]
    while ready:
        commit = ready.pop()
        yield commit
        for parent in set(parents(commit)):
            if parent in known:
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(known[parent])


def _is_best(mask: int, by_children: Collection[int]) -> bool:
    """Whether two tips reach a commit, and do not both reach one of its children; sets of tips are bits."""
    if mask.bit_count() < 2 or mask in by_children:
        return False
    left = mask
    while left:
        bit = left & -left
        left ^= bit
        together = bit
        for child in by_children:
            if child & bit:
                together |= child
        if mask & ~together:
            return True
    return False
