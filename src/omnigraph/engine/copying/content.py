"""The files that a cut of a graph needs.

Of every fork all versions are taken up to the one that the cut shows, with the files that these name.
Skipped: versions that no branch shows yet, records of interrupted writes, locks and leases, staged files of
running loads, checksums of files, and derived data. All else below the root is taken as it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatch

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.saved_bases import list_saved_commits, saved_versions
from omnigraph.engine.commit.recovery.removals import SUFFIX as REMOVAL
from omnigraph.engine.copying.cut import Cut
from omnigraph.engine.graph.layout import ENTITY_FOLDERS
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.cleanup.needed_versions import (
    OwnedTable,
    find_merge_bases,
    find_needed_versions,
    read_tagged,
)
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.storage.failures import not_found
from omnigraph.storage.location import Location
from omnigraph.storage.references import list_fork_names, reference_location
from omnigraph.storage.upkeep import list_referenced_files
from omnigraph.storage.version_files import FOLDER, version_of

PIPELINES = "__pipelines"
_SKIPPED = frozenset(
    {"__locks", "__recovery", "__staging", "__derived", "__probe", "__init_claim.json", "__place.json"}
    | {"__copy.json", "__checksums"}
)
"""At the root: locks, work in progress, and files that belong to the location."""
_SKIPPED_BELOW = ("*.staging", f"{PIPELINES}/*/lease.json")
_TABLE = ".lance"
_TRANSACTION = re.compile(r"([0-9]+)-.*\.txn")

_MAIN_REFERENCE = b""
"""What identifies the fork of main, which is never deleted."""

_Forks = dict[str | None, int]
"""The newest version of every fork of a table that is taken, by the branch whose fork it is."""


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A version file of a table, which records its place; equal ones hold the same version."""

    table: str
    """The path of its table."""
    reference: bytes
    """The reference of its fork: a branch that was deleted and created again has another one."""


@dataclass(frozen=True, slots=True)
class CopyContent:
    """What a copy consists of; files by their names below the root."""

    data: Mapping[str, int]
    """Files that never change, with their bytes."""
    versions: Mapping[str, VersionFile]
    control: Mapping[str, bytes]
    """Small files, with what they held when they were read."""

    def names(self) -> frozenset[str]:
        """Return the names of all files."""
        return frozenset((*self.data, *self.versions, *self.control))


@dataclass(frozen=True, slots=True)
class ContentMemo:
    """What earlier looks at the same graph found, so that a later one costs what is new since."""

    missing: set[tuple[OwnedTable, int]] = field(default_factory=set)
    """Versions that were missing: what a second look does not find either is gone from the original."""
    needed: dict[tuple[str, VersionFile], tuple[str, ...]] = field(default_factory=dict)
    """The files that a version needs, by the name of its version file."""


def read_pipelines(root: Root) -> dict[str, bytes]:
    """The records of pipelines; read before the cut, so that none is ahead of what the cut holds."""
    names = (f"{PIPELINES}/{name}" for name in root.objects.list_all(root.layout.root / PIPELINES))
    return _read(root, (name for name in names if not _is_skipped(name)))


def read_tags(root: Root) -> dict[str, bytes]:
    """The files of tags; read before the cut, so that none names a commit that the cut does not hold."""
    folder = root.layout.tags.name
    return _read(root, (f"{folder}/{at.name}" for at in root.objects.list_dir(root.layout.tags)))


def list_content(graph: OpenGraph, cut: Cut, memo: ContentMemo) -> CopyContent:
    """The files of a cut; fails with NotFound when one of them was removed meanwhile."""
    # Not only what branches show, but also what a merge of any two of them would start at.
    bases = find_merge_bases({branch: loaded.state for branch, loaded in cut.branches.items()})
    tagged, pinned = read_tagged(graph, skip_broken=True)
    pinned += saved_versions(graph, list_saved_commits(graph) & bases)
    policy = CleanupPolicy(1, None, 0.0)
    needed = find_needed_versions(cut.branches, policy, graph.root.clock(), bases | tagged, pinned).versions
    found = _ContentBuilder(graph.root, _shown_now(graph, cut), needed, memo)
    for path, forks in sorted(_forks_by_table(graph, cut).items()):
        found.add_table(path, forks)
    found.add_others()
    return CopyContent(found.data, found.versions, {**found.control, **cut.schema})


def _shown_now(graph: OpenGraph, cut: Cut) -> frozenset[OwnedTable]:
    """What must be there; of what branches only showed in the past, cleanup may have removed some."""
    manifest = graph.root.layout.manifest.name
    shown = {OwnedTable(manifest, loaded.table.branch) for loaded in cut.branches.values()}
    entries = (entry for loaded in cut.branches.values() for entry in loaded.state.entries().values())
    return frozenset(shown | {OwnedTable(entry.path, entry.owner) for entry in entries})


# --- which tables ----------------------------------------------------------------------------------


def _forks_by_table(graph: OpenGraph, cut: Cut) -> dict[str, _Forks]:
    root = graph.root
    manifests = {loaded.table.branch: loaded.table.version for loaded in cut.branches.values()}
    found: dict[str, _Forks] = {root.layout.manifest.name: manifests}
    for place, version in cut.tables.items():
        found.setdefault(place.path, {})[place.owner] = version
    for path, forks in found.items():
        _add_parents(root, root.layout.table(path), forks)
    for name in root.objects.list_folders(root.layout.root):
        if name.endswith(_TABLE):
            found[name] = _newest_of_all(root, root.layout.table(name))
    return found


def _add_parents(root: Root, table: Location, forks: _Forks) -> None:
    """Add the forks that others were made from, as far as these need them."""
    waiting = [name for name in forks if name is not None]
    while waiting:
        fork = root.forks.find(table, waiting.pop())
        if fork is None:
            continue  # what it showed was cleaned up
        if fork.parent is not None and fork.parent not in forks:
            waiting.append(fork.parent)
        forks[fork.parent] = max(fork.parent_version, forks.get(fork.parent, 0))


def _newest_of_all(root: Root, table: Location) -> _Forks:
    """Tables beside the graph: what was recovered, and the commits of old formats."""
    branches: list[str | None] = [None, *sorted(list_fork_names(root.objects, table))]
    return {branch: root.tables.tip(table, branch=branch).version for branch in branches}


# --- which files -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _ContentBuilder:
    root: Root
    shown: frozenset[OwnedTable]
    needed: Mapping[OwnedTable, frozenset[int]]
    memo: ContentMemo
    data: dict[str, int] = field(default_factory=dict)
    versions: dict[str, VersionFile] = field(default_factory=dict)
    control: dict[str, bytes] = field(default_factory=dict)

    def add_table(self, path: str, forks: _Forks) -> None:
        table = self.root.layout.table(path)
        listed = _Listing(self.root.objects.list_all(table))
        for owner, newest in forks.items():
            body = self._add_reference(table, path, owner)
            if body is not None:
                self._add_fork(table, owner, newest, VersionFile(path, body), listed)

    def _add_reference(self, table: Location, path: str, owner: str | None) -> bytes | None:
        """Add the reference of a fork and return it; a branch that is being deleted has none any more."""
        if owner is None:
            return _MAIN_REFERENCE
        at = reference_location(table, owner)
        body = self.root.objects.read_bytes_if_exists(at)
        if body is None:
            self._require_past(path, owner, at.uri)
            return None
        self.control[f"{path}{at.uri.removeprefix(table.uri)}"] = body
        return body

    def _add_fork(
        self, table: Location, owner: str | None, newest: int, file: VersionFile, listed: _Listing
    ) -> None:
        path = file.table
        inside = "" if owner is None else f"tree/{owner}/"
        stored = {
            version: name
            for name in listed.directly_in(f"{inside}{FOLDER}")
            if (version := version_of(name.rpartition("/")[2])) is not None and version <= newest
        }
        if newest not in stored:
            self._require_past(path, owner, f"{table.uri}/{inside}{FOLDER}")
        for version in self.needed.get(OwnedTable(path, owner), frozenset()) - stored.keys():
            if (OwnedTable(path, owner), version) not in self.memo.missing:
                self.memo.missing.add((OwnedTable(path, owner), version))
                raise not_found(f"{table.uri}/{inside}{FOLDER}: version {version}")
        if not stored:
            return
        opened = self.root.tables.open(table, max(stored), branch=owner)
        for version, name in stored.items():
            self.versions[f"{path}/{name}"] = file
            if (f"{path}/{name}", file) not in self.memo.needed:
                self.memo.needed[f"{path}/{name}", file] = tuple(list_referenced_files(opened, version))
            for needed in self.memo.needed[f"{path}/{name}", file]:
                self._add_data(path, needed, listed, opened.uri)
        for name in _beside(inside, newest, listed):
            self.data[f"{path}/{name}"] = listed.sizes[name]

    def _add_data(self, path: str, name: str, listed: _Listing, uri: str) -> None:
        if f"{path}/{name}" in self.data:
            return
        if name not in listed.sizes:
            raise not_found(f"{uri}: {name}")
        # Lance keeps the large values of a data file in a folder of its name.
        for one in (name, *listed.below(name.removesuffix(".lance"))):
            self.data[f"{path}/{one}"] = listed.sizes[one]

    def _require_past(self, path: str, owner: str | None, uri: str) -> None:
        if OwnedTable(path, owner) in self.shown:
            raise not_found(uri)

    def add_others(self) -> None:
        """Add what is no table and not skipped: past schemas, notes of vectors, files of later releases."""
        root, layout = self.root, self.root.layout
        tables = {*ENTITY_FOLDERS, layout.manifest.name}
        for folder in root.objects.list_folders(layout.root):
            if folder not in tables | _SKIPPED | {PIPELINES} and not folder.endswith(_TABLE):
                listed = root.objects.list_all(layout.root / folder)
                # Tags themselves can move: they were read before the cut.
                fixed = (name for name in listed if folder != layout.tags.name or "/" in name)
                self.data.update({f"{folder}/{name}": listed[name] for name in fixed})
        names = (at.name for at in root.objects.list_dir(layout.root))
        self.control.update(_read(root, (name for name in names if not _is_skipped(name))))
        # Pending removals of schema changes apply to the copy, too.
        records = (f"{layout.recovery.name}/{at.name}" for at in root.objects.list_dir(layout.recovery))
        self.control.update(_read(root, (name for name in records if name.endswith(REMOVAL))))


class _Listing:
    """The files below a table, with the folders that they are in."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._below: defaultdict[str, list[str]] = defaultdict(list)
        for name in sizes:
            folder = name
            while folder := folder.rpartition("/")[0]:
                self._below[folder].append(name)

    def below(self, folder: str) -> list[str]:
        """The files of a folder, at any depth."""
        return self._below.get(folder, [])

    def directly_in(self, folder: str) -> Iterator[str]:
        """The files of a folder itself."""
        return (name for name in self.below(folder) if "/" not in name[len(folder) + 1 :])


def _beside(inside: str, newest: int, listed: _Listing) -> Iterator[str]:
    """Indexes, and the transactions that led to the versions; files of a build under way do no harm."""
    yield from listed.below(f"{inside}_indices")
    for name in listed.directly_in(f"{inside}_transactions"):
        made = _TRANSACTION.fullmatch(name.rpartition("/")[2])
        if made is not None and int(made[1]) < newest:
            yield name


def _read(root: Root, names: Iterable[str]) -> dict[str, bytes]:
    found = {name: root.objects.read_bytes_if_exists(root.layout.root / name) for name in names}
    return {name: body for name, body in found.items() if body is not None}


def _is_skipped(path: str) -> bool:
    return path.partition("/")[0] in _SKIPPED or any(fnmatch(path, one) for one in _SKIPPED_BELOW)
