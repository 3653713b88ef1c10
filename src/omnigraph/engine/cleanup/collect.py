"""Collecting old versions of tables, each owner's under the lock of its branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from omnigraph import failpoints
from omnigraph.engine.cleanup.needed import Needed, Place
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.sweep import recover_branch
from omnigraph.engine.root import Root
from omnigraph.errors import Conflict, OmnigraphError
from omnigraph.storage.location import Location
from omnigraph.storage.locks import Held
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import authorship
from omnigraph.storage.upkeep import Collected, collect_versions, preview_collection


@dataclass(frozen=True, slots=True)
class Old:
    """One owner's versions of a table: those that may go, and how many are stored."""

    key: str
    place: Place
    version: int
    """The one that its branch shows."""
    versions: tuple[int, ...]
    stored: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What went of one owner's versions of a table, or would go."""

    key: str
    branch: str
    versions_before: int
    versions_removed: int = 0
    bytes_removed: int = 0
    files_removed: int = 0
    failure: str | None = None
    """Why nothing, or not everything, went."""

    @property
    def versions_after(self) -> int:
        """How many versions are left."""
        return self.versions_before - self.versions_removed


Done = Callable[[], None]


def old_versions(graph: OpenGraph, branches: Mapping[str, Loaded], needed: Needed) -> list[Old]:
    """What nobody needs of the tables that branches have of their own, by key and branch."""
    found = []
    for branch, loaded in branches.items():
        owner = None if branch == MAIN else branch
        for entry in loaded.state.entries().values():
            if entry.owner == owner:
                place = Place(entry.path, owner)
                found.append(_old(graph.root, entry.key, place, entry.version, needed))
    return sorted(found, key=lambda old: (old.key, old.place.branch != MAIN, old.place.branch))


def is_gone(graph: OpenGraph, branch: str) -> bool:
    """Whether a branch was deleted since it was read: nothing of it is left to be looked at."""
    return branch != MAIN and graph.root.forks.find(graph.root.layout.manifest, branch) is None


def _old(root: Root, key: str, place: Place, version: int, needed: Needed) -> Old:
    at = root.layout.table(place.path)
    table = root.tables.open(at, version, branch=place.owner)
    stored = table.versions()
    kept, recent = needed.of(place, version)
    below = {one for one in stored if one < recent} - kept - stood_on(root, at, place.owner)
    if below and not at.is_local:
        below -= wall(table, set(stored))
    return Old(key, place, version, tuple(sorted(below)), len(stored))


def stood_on(root: Root, at: Location, owner: str | None) -> set[int]:
    """The versions at which forks begin: on the side they were made from, and on their own."""
    forks = root.forks.list(at)
    found = {fork.parent_version for fork in forks.values() if fork.parent == owner}
    if owner in forks:
        found.add(forks[owner].parent_version)
    return found


def wall(table: Table, stored: set[int]) -> set[int]:
    """The versions from the newest change of rows on.

    In a bucket a writer may sleep through the loss of its lease. Lance refuses what it writes then as long as
    a change that it runs into is stored; compactions and new indexes let it pass.
    """
    version = table.version
    while authorship(table, version).is_maintenance and version - 1 in stored:
        version -= 1
    return {one for one in stored if one >= version}


# --- doing it ------------------------------------------------------------------------------------


def preview(graph: OpenGraph, olds: Sequence[Old], workers: int, done: Done) -> list[Cleaned]:
    """What would go; nothing is locked and nothing changes."""

    def one(old: Old) -> Cleaned:
        try:
            tip = _tip(graph.root, old)
            return _cleaned(old, preview_collection(tip, old.versions or (tip.version,)))
        except OmnigraphError as error:
            return Cleaned(old.key, old.place.branch, old.stored, failure=error.message)
        finally:
            done()

    return _side_by_side(one, olds, workers)


def collect(graph: OpenGraph, olds: Sequence[Old], workers: int, done: Done) -> list[Cleaned]:
    """Let go what may go; a table that fails does not keep the others.

    A lock is held for a few tables at a time, so that writers come in between.
    """
    found: dict[tuple[str, str], Cleaned] = {}
    for branch in dict.fromkeys(old.place.branch for old in olds):
        for some in _batches([old for old in olds if old.place.branch == branch], workers):
            for cleaned in _collect_some(graph, branch, some, done):
                found[cleaned.key, branch] = cleaned
    return [found[old.key, old.place.branch] for old in olds]


def _collect_some(graph: OpenGraph, branch: str, olds: Sequence[Old], done: Done) -> list[Cleaned]:
    def one(old: Old, held: Held) -> Cleaned:
        try:
            failpoints.reach(failpoints.CLEANUP_TABLE_GC)
            tip = _tip(graph.root, old)
            held.require()
            # The newest version never goes, but naming it lets go what failed writes left behind.
            return _cleaned(old, collect_versions(tip, old.versions or (tip.version,)))
        except OmnigraphError as error:
            return Cleaned(old.key, branch, old.stored, failure=error.message)
        finally:
            done()

    try:
        with graph.root.locks.hold([branch]) as held:
            if is_gone(graph, branch):
                return [Cleaned(old.key, branch, old.stored) for old in olds]
            # A writer may have died since all were looked at: its record needs versions, too.
            recover_branch(graph, branch, held)
            return _side_by_side(lambda old: one(old, held), olds, len(olds))
    except OmnigraphError as error:
        return [Cleaned(old.key, branch, old.stored, failure=error.message) for old in olds]


def _tip(root: Root, old: Old) -> Table:
    tip = root.tables.tip(root.layout.table(old.place.path), branch=old.place.owner)
    if tip.version < old.version:
        raise Conflict(f"table '{old.key}' is at version {tip.version}, behind the published {old.version}")
    return tip


def _cleaned(old: Old, done: Collected) -> Cleaned:
    failure = f"{done.failed} files could not be removed" if done.failed else None
    return Cleaned(old.key, old.place.branch, old.stored, done.versions, done.bytes, done.files, failure)


def _side_by_side(one: Callable[[Old], Cleaned], olds: Sequence[Old], workers: int) -> list[Cleaned]:
    if len(olds) < 2:
        return [one(old) for old in olds]
    with ThreadPoolExecutor(min(workers, len(olds))) as pool:
        return list(pool.map(one, olds))


def _batches(olds: Iterable[Old], size: int) -> Iterable[list[Old]]:
    left = iter(olds)
    while some := list(islice(left, size)):
        yield some
