"""Remove old versions of tables, each owner's under the lock of its branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.removals import fork_points, versions_since_last_change
from omnigraph.engine.commit.recovery.sweep import recover_branch
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.cleanup.claims import Claims
from omnigraph.engine.maintenance.cleanup.needed_versions import NeededVersions, OwnedTable
from omnigraph.errors import Conflict, OmnigraphError, StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CollectionResult, collect_versions, preview_collection

_TRIES = 10
"""How often to try a table whose forks change meanwhile."""


@dataclass(frozen=True, slots=True)
class OldVersions:
    """One owner's versions of a table: those to remove, and how many are stored."""

    key: str
    place: OwnedTable
    version: int
    """The published one."""
    versions: tuple[int, ...]
    stored: int
    incarnation: Incarnation
    """The incarnation of the branch."""


@dataclass(frozen=True, slots=True)
class CleanedTable:
    """What was removed of one owner's versions of a table, or would be."""

    key: str
    branch: str
    versions_before: int
    versions_removed: int = 0
    bytes_removed: int = 0
    files_removed: int = 0
    failure: str | None = None
    """Why not everything was removed."""

    @property
    def versions_after(self) -> int:
        """How many versions are left."""
        return self.versions_before - self.versions_removed


OnDone = Callable[[], None]


def find_old_versions(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], needed: NeededVersions
) -> list[OldVersions]:
    """Return the unneeded versions of tables that branches own, by key and branch."""
    found = []
    for branch, loaded in branches.items():
        owner = None if branch == MAIN else branch
        for entry in loaded.state.entries().values():
            if entry.owner == owner:
                place = OwnedTable(entry.path, owner)
                found.append(_find_old(graph.root, entry.key, place, entry.version, needed, loaded.identity))
    return sorted(found, key=lambda old: (old.key, old.place.branch != MAIN, old.place.branch))


def is_branch_gone(graph: OpenGraph, branch: str, incarnation: Incarnation) -> bool:
    """Whether a branch was deleted since it was read, and perhaps created again."""
    owner = None if branch == MAIN else branch
    return graph.root.forks.identity(graph.root.layout.manifest, owner) != incarnation


def _find_old(
    root: Root, key: str, place: OwnedTable, version: int, needed: NeededVersions, incarnation: Incarnation
) -> OldVersions:
    at = root.layout.table(place.path)
    table = root.tables.open(at, version, branch=place.owner)
    stored = table.versions()
    kept, recent = needed.of(place, version)
    below = {one for one in stored if one < recent} - kept - fork_points(root, at, place.owner)
    if below and not at.is_local:
        below -= versions_since_last_change(table, set(stored))
    return OldVersions(key, place, version, tuple(sorted(below)), len(stored), incarnation)


# --- removing ------------------------------------------------------------------------------------


def preview_removal(
    graph: OpenGraph, olds: Sequence[OldVersions], workers: int, done: OnDone
) -> list[CleanedTable]:
    """Return what would be removed; nothing is locked or changed."""

    def one(old: OldVersions) -> CleanedTable:
        try:
            return _act_on(graph.root, old, preview_collection)
        except OmnigraphError as error:
            return CleanedTable(old.key, old.place.branch, old.stored, failure=error.message)
        finally:
            done()

    return _run_in_threads(one, olds, workers)


def remove_old_versions(
    graph: OpenGraph, olds: Sequence[OldVersions], workers: int, done: OnDone, *, claims: Claims
) -> list[CleanedTable]:
    """Remove old versions; a table that fails does not stop the others.

    A lock is held for a few tables at a time, so that writers get their turn. `claims` are those that were
    read before it was decided what is old: where there are new ones, nothing more is removed.
    """
    found: dict[tuple[str, str], CleanedTable] = {}
    for branch in dict.fromkeys(old.place.branch for old in olds):
        for some in _batches([old for old in olds if old.place.branch == branch], workers):
            for cleaned in _remove_batch(graph, branch, some, done, claims):
                found[cleaned.key, branch] = cleaned
    return [found[old.key, old.place.branch] for old in olds]


def _remove_batch(
    graph: OpenGraph, branch: str, olds: Sequence[OldVersions], done: OnDone, claims: Claims
) -> list[CleanedTable]:
    def one(old: OldVersions, held: HeldLocks) -> CleanedTable:
        try:
            failpoints.reach(failpoints.CLEANUP_TABLE_GC)
            held.require()
            return _act_on(graph.root, old, collect_versions)
        except OmnigraphError as error:
            return CleanedTable(old.key, branch, old.stored, failure=error.message)
        finally:
            done()

    try:
        with graph.root.locks.hold([branch]) as held:
            if is_branch_gone(graph, branch, olds[0].incarnation) or claims.are_outdated(graph):
                return [CleanedTable(old.key, branch, old.stored) for old in olds]
            # A writer may have died since then: its record needs versions too.
            recover_branch(graph, branch, held)
            return _run_in_threads(lambda old: one(old, held), olds, len(olds))
    except OmnigraphError as error:
        return [CleanedTable(old.key, branch, old.stored, failure=error.message) for old in olds]


def _act_on(
    root: Root, old: OldVersions, act: Callable[[Table, Sequence[int]], CollectionResult]
) -> CleanedTable:
    """Act on the old versions of a table; try again when a fork is deleted while Lance reads all of them."""
    tries = 0
    while True:
        tries += 1
        tip = _open_tip(root, old)
        try:
            # The newest version is never removed, but naming it removes what failed writes left behind.
            wanted = old.versions if tries == 1 else set(old.versions) & set(tip.versions())
            return _report(old, act(tip, sorted(wanted) or (tip.version,)))
        except StorageFailure as failure:
            # Lance lists a fork that is then deleted, and fails on its reference or version.
            if (
                failure.kind not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED)
                or tries == _TRIES
            ):
                raise


def _open_tip(root: Root, old: OldVersions) -> Table:
    tip = root.tables.tip(root.layout.table(old.place.path), branch=old.place.owner)
    if tip.version < old.version:
        raise Conflict(f"table '{old.key}' is at version {tip.version}, behind the published {old.version}")
    return tip


def _report(old: OldVersions, done: CollectionResult) -> CleanedTable:
    failure = f"{done.failed} files could not be removed" if done.failed else None
    return CleanedTable(old.key, old.place.branch, old.stored, done.versions, done.bytes, done.files, failure)


def _run_in_threads(
    one: Callable[[OldVersions], CleanedTable], olds: Sequence[OldVersions], workers: int
) -> list[CleanedTable]:
    if len(olds) < 2:
        return [one(old) for old in olds]
    with ThreadPoolExecutor(min(workers, len(olds))) as pool:
        return list(pool.map(one, olds))


def _batches(olds: Iterable[OldVersions], size: int) -> Iterable[list[OldVersions]]:
    left = iter(olds)
    while some := list(islice(left, size)):
        yield some
