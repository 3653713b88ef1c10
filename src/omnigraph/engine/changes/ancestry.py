"""Where two versions of a table parted, and the ways from there to each of them.

A fork continues the version numbers of the table it was made from, and the numbers of rows as well. So the
way from a version to a later one leads along one owner, up to a fork, along that, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.references import Identity


@dataclass(frozen=True, slots=True)
class Point:
    """A version of a table and the branch whose fork holds it; None is main's."""

    owner: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the way that lies within one owner."""

    begin: int
    end: Point


@dataclass(frozen=True, slots=True)
class Parting:
    """The newest version that two have in common, and how each came about since then."""

    point: Point
    left: tuple[Stretch, ...]
    right: tuple[Stretch, ...]


def parting(
    forks: Forks,
    location: Location,
    left: Point,
    right: Point,
    lives: tuple[Identity | None, Identity | None],
) -> Parting | None:
    """Where two versions of one table parted; None when that cannot be told.

    `lives` are those of the forks that hold them: a fork that was made anew has versions of the same numbers.
    """
    if left.owner == right.owner:
        is_one = left.owner is None or (lives[0] is not None and lives[0] == lives[1])
        return _met([left], [right], 0, 0) if is_one else None
    ours, theirs = _line(forks, location, left, lives[0]), _line(forks, location, right, lives[1])
    if ours is None or theirs is None:
        return None
    owners = [point.owner for point in theirs]
    for at, point in enumerate(ours):
        if point.owner in owners:
            return _met(ours, theirs, at, owners.index(point.owner))
    return None


def _met(ours: Sequence[Point], theirs: Sequence[Point], at: int, there: int) -> Parting:
    common = Point(ours[at].owner, min(ours[at].version, theirs[there].version))
    return Parting(common, _way(common.version, ours[: at + 1]), _way(common.version, theirs[: there + 1]))


def _way(begin: int, line: Sequence[Point]) -> tuple[Stretch, ...]:
    found = []
    for point in reversed(line):
        if begin != point.version:
            found.append(Stretch(begin, point))
        begin = point.version
    return tuple(found)


def _line(forks: Forks, location: Location, point: Point, life: Identity | None) -> list[Point] | None:
    """A version, the one its fork was made from, and so on down to main."""
    found = [point]
    while point.owner is not None:
        fork = forks.find(location, point.owner)
        if fork is None or fork.identity != life:
            # It was of a fork that is gone; one of the same name may have followed.
            return None
        point, life = Point(fork.parent, fork.parent_version), fork.identity[:-1]
        found.append(point)
    return found
