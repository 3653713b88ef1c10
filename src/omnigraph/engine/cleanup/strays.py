"""Forks that no branch shows, and files of forks that were never finished or half removed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph import failpoints
from omnigraph.engine.branches import branch_name, with_those_above
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.forks import ForkPlace, Standing, reclaim
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.errors import InvalidName, OmnigraphError
from omnigraph.storage.location import Location
from omnigraph.storage.references import Fork

MANIFEST = "manifest"
"""What the files of a branch itself are told as, where those of a table have its key."""

_PARTS = frozenset({"_versions", "data", "_transactions", "_deletions", "_indices", "_refs"})
"""The folders of which a fork consists."""

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
    half = _half_made(root, root.layout.manifest, root.forks.list(root.layout.manifest))
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
    forks = root.forks.list(at)
    # The life of a fork begins with that of the one it was made from.
    for fork in sorted(forks.values(), key=lambda fork: (-len(fork.identity), -len(fork.name), fork.name)):
        loaded = branches.get(fork.name)
        pinned = None if loaded is None else loaded.state.versions.get(key)
        if loaded is None:
            yield Stray(key, fork.name, "its branch is gone")
        elif pinned is None or pinned.owner != fork.name:
            yield Stray(key, fork.name, "its branch does not show it")
    for name in _half_made(root, at, forks):
        yield Stray(key, name, "it was never finished, or half removed")


def _half_made(root: Root, at: Location, forks: Mapping[str, Fork]) -> list[str]:
    """The names under which files of forks are stored that are none; longer names first."""
    names = _stored(root, at / "tree", "")
    alone = (name for name in names if name not in forks and not _is_above(name, forks))
    return sorted((name for name in alone if _is_name(name)), key=lambda name: (-len(name), name))


def _stored(root: Root, at: Location, prefix: str) -> Iterator[str]:
    for folder in root.objects.list_folders(at):
        below = root.objects.list_folders(at / folder)
        if not _PARTS.isdisjoint(below):
            yield f"{prefix}{folder}"
        if not _PARTS.issuperset(below):
            yield from _stored(root, at / folder, f"{prefix}{folder}/")


def _is_above(name: str, forks: Mapping[str, Fork]) -> bool:
    return any(other.startswith(f"{name}/") for other in forks)


def _is_name(name: str) -> bool:
    """Whether a branch can be called so: anything else is not ours."""
    try:
        return branch_name(name) != MAIN and _PARTS.isdisjoint(name.split("/"))
    except InvalidName:
        return False


# --- removing ------------------------------------------------------------------------------------


def reclaim_strays(graph: OpenGraph, branches: Mapping[str, Loaded]) -> Reclaimed:
    """Remove what is left over, each under its branch's lock; what cannot go is told and fails nobody."""
    removed, left = [], []
    for stray in strays(graph, branches):
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
    return Reclaimed(tuple(removed), tuple(left))


def _reclaim(graph: OpenGraph, stray: Stray, branches: Mapping[str, Loaded]) -> Standing:
    """Remove one, if it is what it seems to be."""
    root = graph.root
    with root.locks.hold(with_those_above(stray.branch)) as held:
        live = root.forks.list(root.layout.manifest)
        if stray.key == MANIFEST:
            if stray.branch in live:
                return Standing.LEGITIMATE
            held.require()
            root.forks.remove_residue(root.layout.manifest, stray.branch)
            return Standing.ORPHAN
        place = ForkPlace(stray.key, _places(root, branches)[stray.key], stray.branch)
        return reclaim(root, held, place, live=list(live))
