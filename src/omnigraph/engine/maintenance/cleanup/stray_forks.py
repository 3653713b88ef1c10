"""Forks that no branch publishes, and files of forks that were never finished or half removed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import ForkPlace, ForkStatus, reclaim_fork
from omnigraph.errors import InvalidName, OmnigraphError
from omnigraph.storage.forks import PARTS, list_with_ancestors, may_hold_parent_files, sort_innermost_first
from omnigraph.storage.location import Location

MANIFEST = "manifest"
"""The key under which files of a branch itself are reported; files of a table have its key."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StrayFork:
    """A fork, or files of one, that no branch publishes."""

    key: str
    branch: str
    reason: str
    """Why it is stray, or why it could not be removed."""


@dataclass(frozen=True, slots=True)
class StrayForkRemoval:
    """Which stray forks were removed, and which could not be."""

    removed: tuple[StrayFork, ...] = ()
    left: tuple[StrayFork, ...] = ()


def find_stray_forks(graph: OpenGraph, branches: Mapping[str, LoadedBranch]) -> list[StrayFork]:
    """Return what seems to be stray, dependent forks first; only a lock can confirm it."""
    root = graph.root
    tables = find_stored_tables(root, branches).items()
    found = [stray for key, at in tables for stray in find_strays_of_table(root, branches, key, at)]
    return [*found, *find_partial_branches(root)]


def find_partial_branches(root: Root) -> list[StrayFork]:
    """Return names with files of a branch, but without a branch."""
    half = _find_partial(root, root.layout.manifest, root.forks.names(root.layout.manifest))
    return [StrayFork(MANIFEST, name, "its branch was never finished, or half deleted") for name in half]


def find_stored_tables(root: Root, branches: Mapping[str, LoadedBranch]) -> dict[str, Location]:
    """Return every stored table by key, including dropped ones until they are removed."""
    shown = {key for loaded in branches.values() for key in loaded.state.entries()}
    places = _places(root, branches)
    return {key: at for key, at in places.items() if key in shown or root.tables.exists(at)}


def _places(root: Root, branches: Mapping[str, LoadedBranch]) -> dict[str, Location]:
    known = {key: path for loaded in branches.values() for key, path in loaded.state.locations.items()}
    return {key: root.layout.table(path) for key, path in sorted(known.items())}


def find_strays_of_table(
    root: Root, branches: Mapping[str, LoadedBranch], key: str, at: Location
) -> Iterator[StrayFork]:
    """Yield what seems to be stray at one table."""
    found = root.forks.survey(at)
    for name in sort_innermost_first(found):
        loaded = branches.get(name)
        pinned = None if loaded is None else loaded.state.versions.get(key)
        if loaded is None:
            yield StrayFork(key, name, "its branch is gone")
        elif pinned is None or pinned.owner != name:
            yield StrayFork(key, name, "its branch does not show it")
    for name in _find_partial(root, at, found.names):
        yield StrayFork(key, name, "it was never finished, or half removed")


def _find_partial(root: Root, at: Location, forks: Collection[str]) -> list[str]:
    """Return names with files of a fork, but without a fork; longer names first."""
    names = (name for name in _stored_names(root, at / "tree", "") if name not in forks and _is_name(name))
    alone = (name for name in names if not _is_above(name, forks) or root.forks.has_residue(at, name, forks))
    return sorted(alone, key=lambda name: (-len(name), name))


def _stored_names(root: Root, at: Location, prefix: str) -> Iterator[str]:
    for folder in root.objects.list_folders(at):
        below = root.objects.list_folders(at / folder)
        if not PARTS.isdisjoint(below):
            yield f"{prefix}{folder}"
        if not PARTS.issuperset(below):
            yield from _stored_names(root, at / folder, f"{prefix}{folder}/")


def _is_above(name: str, forks: Collection[str]) -> bool:
    return any(other.startswith(f"{name}/") for other in forks)


def _is_name(name: str) -> bool:
    """Whether it is a valid branch name, and not a part of another fork's files."""
    try:
        return parse_branch_name(name) != MAIN and not may_hold_parent_files(name)
    except InvalidName:
        return False


# --- removing ------------------------------------------------------------------------------------


def remove_stray_forks(graph: OpenGraph, branches: Mapping[str, LoadedBranch]) -> StrayForkRemoval:
    """Remove stray forks, each under the lock of its branch; return what could not be removed."""
    removed: list[StrayFork] = []
    left: list[StrayFork] = []
    tried: set[tuple[str, str]] = set()
    gone = -1
    # Removing one may reveal another, so list them again.
    while gone < len(removed):
        gone = len(removed)
        for stray in find_stray_forks(graph, branches):
            if (stray.key, stray.branch) not in tried:
                tried.add((stray.key, stray.branch))
                _remove_one(graph, stray, branches, removed, left)
    return StrayForkRemoval(tuple(removed), tuple(left))


def _remove_one(
    graph: OpenGraph,
    stray: StrayFork,
    branches: Mapping[str, LoadedBranch],
    removed: list[StrayFork],
    left: list[StrayFork],
) -> None:
    try:
        failpoints.reach(failpoints.CLEANUP_RECONCILE_FORK)
        standing = _remove_if_stray(graph, stray, branches)
        why = "it is unknown whether its branch needs it"
    except OmnigraphError as error:
        standing, why = ForkStatus.INDETERMINATE, error.message
    if standing is ForkStatus.ORPHAN:
        removed.append(stray)
    elif standing is ForkStatus.INDETERMINATE:
        _log.warning("could not remove the files of '%s' for branch '%s': %s", stray.key, stray.branch, why)
        left.append(StrayFork(stray.key, stray.branch, why))
    # Otherwise it is not stray: a first write or a new branch was in progress.


def _remove_if_stray(graph: OpenGraph, stray: StrayFork, branches: Mapping[str, LoadedBranch]) -> ForkStatus:
    """Remove a fork if it is stray, under the locks that confirm it."""
    root = graph.root
    with root.locks.hold(list_with_ancestors(stray.branch)) as held:
        live = root.forks.names(root.layout.manifest)
        if stray.key == MANIFEST:
            if stray.branch in live:
                return ForkStatus.LEGITIMATE
            held.require()
            root.forks.remove_residue(root.layout.manifest, stray.branch, held)
            return ForkStatus.ORPHAN
        place = ForkPlace(stray.key, _places(root, branches)[stray.key], stray.branch)
        return reclaim_fork(root, held, place, live=live)
