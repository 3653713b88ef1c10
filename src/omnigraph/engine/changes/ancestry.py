"""Where two versions of a table diverged, and the versions from there to each of them.

A fork continues the version numbers and row ids of the table it was made from. So the path from a version to
a later one follows one owner up to a fork, then that fork, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.references import Incarnation


@dataclass(frozen=True, slots=True)
class OwnedVersion:
    """A version of a table and the branch whose fork holds it; None is main's."""

    owner: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the path within one owner."""

    begin: int
    end: OwnedVersion


@dataclass(frozen=True, slots=True)
class Divergence:
    """The newest version that two have in common, and the path from there to each."""

    point: OwnedVersion
    left: tuple[Segment, ...]
    right: tuple[Segment, ...]


def find_divergence(
    forks: Forks,
    location: Location,
    left: OwnedVersion,
    right: OwnedVersion,
    incarnations: tuple[Incarnation | None, Incarnation | None],
) -> Divergence | None:
    """Return where two versions of one table diverged; None when that is unknown.

    `incarnations` are those of the forks that hold them: a fork that is created again reuses version numbers.
    """
    if left.owner == right.owner:
        is_one = left.owner is None or (incarnations[0] is not None and incarnations[0] == incarnations[1])
        return _diverge_at([left], [right], 0, 0) if is_one else None
    ours, theirs = (
        _lineage(forks, location, left, incarnations[0]),
        _lineage(forks, location, right, incarnations[1]),
    )
    if ours is None or theirs is None:
        return None
    owners = [point.owner for point in theirs]
    for at, point in enumerate(ours):
        if point.owner in owners:
            return _diverge_at(ours, theirs, at, owners.index(point.owner))
    return None


def _diverge_at(
    ours: Sequence[OwnedVersion], theirs: Sequence[OwnedVersion], at: int, there: int
) -> Divergence:
    common = OwnedVersion(ours[at].owner, min(ours[at].version, theirs[there].version))
    return Divergence(
        common, _segments(common.version, ours[: at + 1]), _segments(common.version, theirs[: there + 1])
    )


def _segments(begin: int, line: Sequence[OwnedVersion]) -> tuple[Segment, ...]:
    found = []
    for point in reversed(line):
        if begin != point.version:
            found.append(Segment(begin, point))
        begin = point.version
    return tuple(found)


def _lineage(
    forks: Forks, location: Location, point: OwnedVersion, incarnation: Incarnation | None
) -> list[OwnedVersion] | None:
    """Return a version, the one its fork was made from, and so on down to main."""
    found = [point]
    while point.owner is not None:
        fork = forks.find(location, point.owner)
        if fork is None or fork.identity != incarnation:
            # Its fork is gone; a new one may have the same name.
            return None
        point, incarnation = OwnedVersion(fork.parent, fork.parent_version), fork.identity[:-1]
        found.append(point)
    return found
