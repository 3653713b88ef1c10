"""Forks that no branch shows, and files of forks that were never finished or half removed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from omnigraph import failpoints
from omnigraph.engine.branches import branch_name
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.forks import ForkPlace, Standing, reclaim
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.errors import InvalidName, OmnigraphError
from omnigraph.storage.fork_files import PARTS, is_inside_a_part, with_those_above
from omnigraph.storage.forks import innermost_first
from omnigraph.storage.location import Location

MANIFEST = "manifest"
"""What the files of a branch itself are told as, where those of a table have its key."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stray:
    """A fork, or files of one, that nothing shows."""

    key: str
    branch: str
    reason: str
    """Why it may go, or why it could not."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What became of them."""

    removed: tuple[Stray, ...] = ()
    left: tuple[Stray, ...] = ()


def strays(graph: OpenGraph, branches: Mapping[str, Loaded]) -> list[Stray]:
    """What seems to be left over, those that stand on others first; only a lock can make sure."""
    root = graph.root
    tables = stored_tables(root, branches).items()
    found = [stray for key, at in tables for stray in strays_of(root, branches, key, at)]
    return [*found, *half_made_branches(root)]


def half_made_branches(root: Root) -> list[Stray]:
    """Branches of which there are files, and which are none."""
    half = _half_made(root, root.layout.manifest, root.forks.names(root.layout.manifest))
    return [Stray(MANIFEST, name, "its branch was never finished, or half deleted") for name in half]


def stored_tables(root: Root, branches: Mapping[str, Loaded]) -> dict[str, Location]:
    """Every table that is there by key, dropped ones too, until they are removed."""
    shown = {key for loaded in branches.values() for key in loaded.state.entries()}
    places = _places(root, branches)
    return {key: at for key, at in places.items() if key in shown or root.tables.exists(at)}


def _places(root: Root, branches: Mapping[str, Loaded]) -> dict[str, Location]:
    known = {key: path for loaded in branches.values() for key, path in loaded.state.locations.items()}
    return {key: root.layout.table(path) for key, path in sorted(known.items())}


def strays_of(root: Root, branches: Mapping[str, Loaded], key: str, at: Location) -> Iterator[Stray]:
    """What seems to be left over at one table."""
    found = root.forks.survey(at)
    for name in innermost_first(found):
        loaded = branches.get(name)
        pinned = None if loaded is None else loaded.state.versions.get(key)
        if loaded is None:
            yield Stray(key, name, "its branch is gone")
        elif pinned is None or pinned.owner != name:
            yield Stray(key, name, "its branch does not show it")
    for name in _half_made(root, at, found.names):
        yield Stray(key, name, "it was never finished, or half removed")


def _half_made(root: Root, at: Location, forks: Collection[str]) -> list[str]:
    """The names under which files of forks are stored that are none; longer names first."""
    names = (name for name in _stored(root, at / "tree", "") if name not in forks and _is_name(name))
    alone = (name for name in names if not _is_above(name, forks) or root.forks.has_residue(at, name, forks))
    return sorted(alone, key=lambda name: (-len(name), name))


def _stored(root: Root, at: Location, prefix: str) -> Iterator[str]:
    for folder in root.objects.list_folders(at):
        below = root.objects.list_folders(at / folder)
        if not PARTS.isdisjoint(below):
            yield f"{prefix}{folder}"
        if not PARTS.issuperset(below):
            yield from _stored(root, at / folder, f"{prefix}{folder}/")


def _is_above(name: str, forks: Collection[str]) -> bool:
    return any(other.startswith(f"{name}/") for other in forks)


def _is_name(name: str) -> bool:
    """Whether a branch can be called so, and the files cannot be those of one above: else it is not ours."""
    try:
        return branch_name(name) != MAIN and not is_inside_a_part(name)
    except InvalidName:
        return False


# --- removing ------------------------------------------------------------------------------------


def reclaim_strays(graph: OpenGraph, branches: Mapping[str, Loaded]) -> Reclaimed:
    """Remove what is left over, each under its branch's lock; what cannot go is told and fails nobody."""
    removed: list[Stray] = []
    left: list[Stray] = []
    tried: set[tuple[str, str]] = set()
    gone = -1
    # What was hidden by the files of one that is gone by now is found by a second look.
    while gone < len(removed):
        gone = len(removed)
        for stray in strays(graph, branches):
            if (stray.key, stray.branch) not in tried:
                tried.add((stray.key, stray.branch))
                _reclaim_one(graph, stray, branches, removed, left)
    return Reclaimed(tuple(removed), tuple(left))


def _reclaim_one(
    graph: OpenGraph, stray: Stray, branches: Mapping[str, Loaded], removed: list[Stray], left: list[Stray]
) -> None:
    try:
        failpoints.reach(failpoints.CLEANUP_RECONCILE_FORK)
        standing = _reclaim(graph, stray, branches)
        why = "whether its branch needs it cannot be told"
    except OmnigraphError as error:
        standing, why = Standing.INDETERMINATE, error.message
    if standing is Standing.ORPHAN:
        removed.append(stray)
    elif standing is Standing.INDETERMINATE:
        _log.warning("the files of '%s' for branch '%s' are left: %s", stray.key, stray.branch, why)
        left.append(Stray(stray.key, stray.branch, why))
    # Otherwise it is none: somebody was just writing for the first time, or making a branch.


def _reclaim(graph: OpenGraph, stray: Stray, branches: Mapping[str, Loaded]) -> Standing:
    """Remove one, if it is what it seems to be."""
    root = graph.root
    with root.locks.hold(with_those_above(stray.branch)) as held:
        live = root.forks.names(root.layout.manifest)
        if stray.key == MANIFEST:
            if stray.branch in live:
                return Standing.LEGITIMATE
            held.require()
            root.forks.remove_residue(root.layout.manifest, stray.branch)
            return Standing.ORPHAN
        place = ForkPlace(stray.key, _places(root, branches)[stray.key], stray.branch)
        return reclaim(root, held, place, live=live)
