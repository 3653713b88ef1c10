"""Which versions of tables the branches of a graph still need.

A branch needs what it shows now, what the commits show that a policy keeps, and what a merge with another
branch would start at. All of it is told by its manifest: each row of that remembers the version of the
manifest which first had it, so it is known what every commit showed without going back to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from omnigraph import failpoints
from omnigraph.engine.cleanup.bases import merge_bases
from omnigraph.engine.cleanup.policy import Policy
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import CREATED_AT, MAIN, TOMBSTONE, VERSION
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.schema_apply.lock import LOCK_BRANCH
from omnigraph.errors import BranchNotFound, OmnigraphError, Unavailable
from omnigraph.storage.references import Fork

ENDLESS = 1 << 63

_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """One owner's versions of a table."""

    path: str
    owner: str | None
    """The branch whose fork it is; None for main."""

    @property
    def branch(self) -> str:
        """The branch whose lock protects it."""
        return MAIN if self.owner is None else self.owner


@dataclass(frozen=True, slots=True)
class Needed:
    """What must stay of every place."""

    versions: Mapping[Place, frozenset[int]]
    recent: Mapping[Place, int]
    """From this version on all stay, also those that nobody ever saw.

    A write that was prepared a while ago asks what was done to its tables since, version by version.
    """

    def of(self, place: Place, shown: int) -> tuple[frozenset[int], int]:
        """The versions that stay, and the one from which on all do; `shown` is the one published now."""
        return self.versions.get(place, frozenset()), min(self.recent.get(place, shown), shown)


Span = tuple[int, int]
"""Versions of a manifest: from one up to, and without, another."""

_Scanned = tuple[int, int, str | None]
"""The version of the manifest that first had a row, the version of a table in it, and the owner of that."""


def read_branches(graph: OpenGraph) -> dict[str, Loaded]:
    """Every branch as it is now; without each of them nobody knows what may go.

    All of them are there from the first look to the last. Otherwise one that was read already might have
    taken over what another one showed, which is gone before it is read.
    """
    for _ in range(_LOOKS):
        live = _live(graph)
        found = {branch: loaded for branch in (MAIN, *sorted(live)) if (loaded := _read(graph, branch))}
        if _live(graph) == live:
            return found
    raise Unavailable(
        "nothing is cleaned up while branches are made and deleted all the time", remedy="try again"
    )


def _live(graph: OpenGraph) -> dict[str, Fork]:
    """The lives of all branches but main; the lock of a schema change is nobody's branch."""
    forks = graph.root.forks.list(graph.root.layout.manifest)
    return {name: fork for name, fork in forks.items() if name != LOCK_BRANCH}


def _read(graph: OpenGraph, branch: str) -> Loaded | None:
    try:
        failpoints.reach(failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT)
        return graph.load(branch)
    except BranchNotFound:
        return None  # deleted since it was listed
    except OmnigraphError as error:
        raise Unavailable(
            f"nothing is cleaned up while branch '{branch}' cannot be read: {error.message}",
            remedy="make the branch readable or delete it, then try again",
        ) from error


def needed_versions(branches: Mapping[str, Loaded], policy: Policy, now: int) -> Needed:
    """What must stay, by place."""
    bases = merge_bases([loaded.state for loaded in branches.values()])
    recently = Policy(1, None, policy.minimum_age)
    versions: defaultdict[Place, set[int]] = defaultdict(set)
    recent: dict[Place, int] = {}
    for branch, loaded in branches.items():
        rows = list(_rows(loaded))
        for place, version in _shown(rows, _kept_spans(loaded, policy, bases, now)):
            versions[place].add(version)
        for place, version in _shown(rows, _kept_spans(loaded, recently, frozenset(), now)):
            # Only the branch that moves a table; what others show of it may be from long ago.
            if place.branch == branch:
                recent[place] = min(version, recent.get(place, version))
    return Needed({place: frozenset(found) for place, found in versions.items()}, recent)


# --- which versions of a manifest ----------------------------------------------------------------


def _kept_spans(loaded: Loaded, policy: Policy, bases: frozenset[str], now: int) -> list[Span]:
    """What stays readable of a branch, in order; tables may be stored otherwise between two commits."""
    chain = sorted(loaded.state.commits.values(), key=lambda commit: commit.order)
    if not chain:
        return [(loaded.state.version, ENDLESS)]
    kept = policy.kept(chain, now)
    ends = [*(commit.version for commit in chain[1:]), ENDLESS]
    spans = []
    for commit, stays, end in zip(chain, kept, ends, strict=True):
        if stays:
            spans.append((commit.version, max(end, commit.version + 1)))
        elif commit.id in bases:
            spans.append((commit.version, commit.version + 1))
    return spans


# --- which versions of tables --------------------------------------------------------------------


def _shown(rows: Iterable[_Row], spans: Sequence[Span]) -> Iterator[tuple[Place, int]]:
    """The versions of tables that a manifest shows in some spans of its own versions."""
    ends = [end for _, end in spans]
    for row in rows:
        # The first span that ends after the row came; it counts if it begins before the row was replaced.
        at = bisect_left(ends, row.came + 1)
        if at < len(spans) and spans[at][0] < row.gone:
            yield row.place, row.version


@dataclass(frozen=True, slots=True)
class _Row:
    """A published version of a table, and the versions of the manifest that show it."""

    place: Place
    version: int
    came: int
    gone: int


def _rows(loaded: Loaded) -> Iterator[_Row]:
    published, dropped = _scanned(loaded, VERSION), _scanned(loaded, TOMBSTONE)
    for key, rows in published.items():
        path = loaded.state.locations.get(key)
        if path is None:
            continue
        if not loaded.table.has_stable_row_ids:
            # A manifest of an old release does not remember when a row came: then every one is needed.
            yield from (_Row(Place(path, owner), version, 0, ENDLESS) for _, version, owner in rows)
            continue
        drop, until, _ = max(dropped.get(key, []), default=(ENDLESS, -1, None))
        visible = _visible(rows)
        ends = [*(came for came, _, _ in visible[1:]), ENDLESS]
        for (came, version, owner), end in zip(visible, ends, strict=True):
            yield _Row(Place(path, owner), version, came, min(end, drop) if version <= until else end)


def _visible(rows: Iterable[_Scanned]) -> list[_Scanned]:
    """In the order they came, without those below one that came before: nobody ever saw them."""
    found: list[_Scanned] = []
    for row in sorted(rows, key=lambda row: row[:2]):
        if not found or row[1] >= found[-1][1]:
            found.append(row)
    return found


def _scanned(loaded: Loaded, kind: str) -> dict[str, list[_Scanned]]:
    """The rows of a kind, by table."""
    stable = loaded.table.has_stable_row_ids
    columns = ["table_key", "table_version", "table_branch", *([CREATED_AT] if stable else [])]
    rows = loaded.table.scan(columns, where=f"object_type = '{kind}'", ordered=False)
    keys, versions, owners = (rows.column(name).to_pylist() for name in columns[:3])
    came = rows.column(CREATED_AT).to_pylist() if stable else [0] * rows.num_rows
    found: defaultdict[str, list[_Scanned]] = defaultdict(list)
    for key, *row in zip(keys, came, versions, owners, strict=True):
        found[key].append((row[0], row[1], row[2]))
    return found
