"""The manifest of one branch, kept open with its state in memory.

A coordinator knows the state of its branch at some version. Loading the current state costs one probe; when
the manifest moved, only the rows written since are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.format_stamp import is_current, require_supported_stamp
from omnigraph.engine.graph.legacy_commits import read_legacy_commits
from omnigraph.engine.graph.manifest import (
    ADDRESS,
    COLUMNS,
    CREATED_AT,
    EMPTY_STATE,
    MAIN,
    UPDATED_AT,
    VERSION,
    ManifestState,
    Records,
    TableVersion,
    decode,
    decode_published,
)
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot, make_snapshot
from omnigraph.engine.graph.state_cache import MIN_FRAGMENTS, read_cached_state, write_cached_state
from omnigraph.errors import BranchNotFound, GraphNotFound, ReadSetChanged, StorageFailure
from omnigraph.storage.concurrency import Together
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.fragments import list_data_file_names
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import VersionRun

_MAX_INCARNATIONS = 3
"""How often a branch may be re-created during one read of it."""
_MAX_PAST_STATES = 16
"""How many past states of a branch are cached: most reads of the past are of recent versions."""


@dataclass(frozen=True, slots=True)
class LoadedBranch:
    """A manifest handle and the state it shows."""

    table: Table
    state: ManifestState
    identity: Incarnation
    """The incarnation of the branch; a name that was deleted and created again has another one."""
    head_address: int | None = None
    """The address of the branch's head row in the table; None when unknown."""


def lance_branch(branch: str) -> str | None:
    """Return the name of a graph branch on the manifest dataset; None for main."""
    return None if branch == MAIN else branch


class Coordinator:
    """The cached manifest state of one branch; safe to share between threads."""

    def __init__(self, root: Root, branch: str, *, caches_on_disk: bool = False) -> None:
        """With `caches_on_disk`, a state that took long to read is written to the state cache."""
        self.root = root
        self.branch = branch
        self._caches_on_disk = caches_on_disk
        self._known: LoadedBranch | None = None
        self._current: LoadedBranch | None = None
        self._past_states: OrderedDict[int, ManifestState] = OrderedDict()
        self.discontinuities = 0
        """How often a read found a state that does not continue the known one."""
        self.collect_above = 0
        """Old manifest versions are listed again only once all versions below this one are out of date."""
        self.collection_runs: deque[VersionRun] = deque()
        """Old manifest versions that later writes are to remove."""
        self.unchecked: set[str] = set()
        """Tables of recovered writes: the next write checks their indexes."""
        self._lock = threading.Lock()

    def load(self) -> LoadedBranch:
        """Return the branch as it is now."""
        with self._lock:
            return self._remember(self._read_current())

    def adopt(self, loaded: LoadedBranch) -> None:
        """Adopt a state that a publish of this process just made."""
        with self._lock:
            known = self._known
            if (
                known is None
                or known.identity != loaded.identity
                or known.state.version < loaded.state.version
            ):
                if known is not None and known is self._current and _is_direct_successor(known, loaded):
                    self._current = loaded  # a publish keeps the format, and nothing came between
                self._remember(loaded)

    @property
    def is_warm(self) -> bool:
        """Whether a state is known, so that loading the branch costs one probe unless it moved."""
        with self._lock:
            return self._known is not None

    @property
    def known(self) -> LoadedBranch | None:
        """The state that this process saw last; the branch may have moved since."""
        with self._lock:
            return self._known

    def recall_snapshot(self, version: int, incarnation: Incarnation) -> Snapshot | None:
        """Return the branch at a past version, if this process has seen it."""
        with self._lock:
            if self._known is None or self._known.identity != incarnation:
                return None
            found = self._past_states.get(version)
        return None if found is None else make_snapshot(self.branch, found, incarnation)

    def _remember(self, loaded: LoadedBranch) -> LoadedBranch:
        known, self._known = self._known, loaded
        if known is loaded:
            return loaded
        if known is None or not _continues(known, loaded):
            self.discontinuities += known is not None
            self.collect_above = 0
            self.collection_runs.clear()
            self._past_states.clear()
            return loaded
        # A snapshot needs no commits, and a long history has many.
        self._past_states[known.state.version] = replace(known.state, commits={}, merged={})
        while len(self._past_states) > _MAX_PAST_STATES:
            self._past_states.popitem(last=False)
        return loaded

    def forget(self) -> None:
        """Discard the known state, so that the next load reads everything."""
        with self._lock:
            self._known = None

    def _read_current(self) -> LoadedBranch:
        known = self._known
        # In older formats commits are not in the manifest, so its version does not show new ones.
        if known is not None and self.has_current_format(known):
            newer = self._read_newer(known)
            if newer is not None:
                return newer
        return self._read_all()

    def has_current_format(self, known: LoadedBranch) -> bool:
        """Whether a manifest has the format of this release; checked once for each."""
        if self._current is known:
            return True
        if not is_current(known.table):
            return False
        self._current = known
        return True

    def _read_newer(self, known: LoadedBranch) -> LoadedBranch | None:
        """Return the known state plus the rows since; None when the branch was replaced."""
        if self.branch != MAIN and not self.root.layout.root.is_local:
            return self._read_newer_far(known)
        try:
            found = self._apply_newer_rows(known)
        except StorageFailure as failure:
            if self._identity() == known.identity and not _is_gone(failure):
                raise
            return None
        # Checked last: a branch with the same incarnation now had it while it was read.
        return found if self._identity() == known.identity else None

    def _read_newer_far(self, known: LoadedBranch) -> LoadedBranch | None:
        """The same with both questions at once: in a bucket a name is not used again for a while.

        So a branch with the same incarnation had it while its newest version was looked for. If there are new
        rows, it is asked again after they were read.
        """
        with Together(self.root.layout.root) as calls:
            identity = calls.add(self._identity)
            table = calls.add(partial(_latest, known.table))
        if identity.answer != known.identity:
            return None
        newest = table.answer
        if isinstance(newest, Table) and newest.version == known.state.version:
            return known
        try:
            if isinstance(newest, StorageFailure):
                raise newest
            found = self._apply_newer_rows(known, newest)
        except StorageFailure as failure:
            if self._identity() == known.identity and not _is_gone(failure):
                raise
            return None
        return found if self._identity() == known.identity else None

    def _apply_newer_rows(self, known: LoadedBranch, newest: Table | None = None) -> LoadedBranch | None:
        table = newest or known.table.latest()
        if table.version == known.state.version:
            return known
        require_supported_stamp(table)
        more = read_changed_records(table, known.state.version)
        if table.version < known.state.version or not known.state.is_continued_by(more):
            # Another graph was created at this location.
            return None
        state, address = known.state.plus(more, table.version), more.head_addresses.get(self.branch)
        return LoadedBranch(table, state, known.identity, address)

    def _read_all(self) -> LoadedBranch:
        """Read the whole manifest, again if the branch was deleted and re-created meanwhile."""
        for attempt in range(_MAX_INCARNATIONS):
            identity = self._identity()
            try:
                found = self._open(identity)
            except (BranchNotFound, StorageFailure) as failure:
                again = _is_gone(failure) and attempt + 1 < _MAX_INCARNATIONS
                if self._identity() == identity and not again:
                    raise
                continue
            if self._identity() == identity:
                return found
        raise ReadSetChanged(
            f"branch:{self.branch}", expected="one incarnation", actual="re-created repeatedly"
        )

    def _identity(self) -> Incarnation:
        """Return the incarnation of the branch, with one read; main has a single one."""
        if self.branch == MAIN:
            return ()
        fork = self.root.forks.find(self.root.layout.manifest, self.branch)
        if fork is None:
            raise BranchNotFound(self.branch)
        return fork.identity

    def _open(self, identity: Incarnation) -> LoadedBranch:
        table = open_manifest(self.root, self.branch, followed=True)
        if self.branch == MAIN and table.has_stable_row_ids and is_current(table):
            return LoadedBranch(table, self._read_main_state(table), identity)
        records = read_all_records(table)
        address = records.head_addresses.get(self.branch)
        if not is_current(table) and not records.commits:
            lineage = read_legacy_commits(self.root, self.branch)
            records = replace(records, commits=lineage.commits, heads=lineage.heads)
        return LoadedBranch(table, EMPTY_STATE.plus(records, table.version), identity, address)

    def _read_main_state(self, table: Table) -> ManifestState:
        """Return the state of main, reading only the fragments that the cached state does not cover."""
        files = list_data_file_names(table)
        cached = read_cached_state(self.root) if len(files) >= MIN_FRAGMENTS else None
        unread = None if cached is None else cached.unread(files)
        if cached is not None and unread is not None:
            if not unread:
                return cached.at(table.version)
            found = cached.plus(_rows(table, None, unread), table.version)
            if found is not None:
                return self._cache(found, files, len(unread))
        return self._cache(EMPTY_STATE.plus(read_all_records(table), table.version), files, len(files))

    def _cache(self, state: ManifestState, files: Mapping[int, str], read: int) -> ManifestState:
        """Write a state to the cache if it took long to read; returns it."""
        if self._caches_on_disk and read >= MIN_FRAGMENTS:
            write_cached_state(self.root, state, files)
        return state


def _latest(table: Table) -> Table | StorageFailure:
    try:
        return table.latest()
    except StorageFailure as failure:
        return failure


def _is_direct_successor(before: LoadedBranch, after: LoadedBranch) -> bool:
    return before.identity == after.identity and before.state.version + 1 == after.state.version


def _continues(before: LoadedBranch, after: LoadedBranch) -> bool:
    """Whether a state is a later one of the same branch, so that the earlier one is part of its history.

    It is not when another graph was created at this location, nor when a table version passed to another
    owner: then the history is in the tables of the new owner.
    """
    was, now = before.state, after.state
    if before.identity != after.identity or was.version >= now.version:
        return False
    if was.head is not None and was.head.id not in now.commits:
        return False
    return all(
        (found := now.versions.get(key)) is not None and (found.version > one.version or found == one)
        for key, one in was.versions.items()
    )


def _is_gone(failure: Exception) -> bool:
    """Whether the version that was read has been collected meanwhile: a reader may be paused for long."""
    return isinstance(failure, StorageFailure) and failure.kind in (
        TableFailureKind.RECLAIMED,
        TableFailureKind.NOT_FOUND,
    )


def open_manifest(root: Root, branch: str, *, followed: bool = False) -> Table:
    """Open the newest version of a branch's manifest; `followed` when newer ones will be loaded from it."""
    try:
        return root.tables.tip(root.layout.manifest, branch=lance_branch(branch), followed=followed)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
        if branch == MAIN:
            raise GraphNotFound(root.uri) from failure
        raise BranchNotFound(branch) from failure


def read_all_records(table: Table) -> Records:
    """Read every row of a manifest."""
    return decode(_rows(table, None))


def read_changed_records(table: Table, version: int) -> Records:
    """Read the rows that were added or rewritten after a version, and maybe older ones."""
    # Manifests made by old releases may not remember when a row was written.
    where = f"{UPDATED_AT} > {version}" if table.has_stable_row_ids else None
    return decode(_rows(table, where))


def read_records_at(root: Root, table: Table, version: int) -> Records:
    """Read the rows of an earlier version from a later one, by the version that created each row.

    Rows are never removed. Where they do not record their creation, the earlier version itself is read.
    """
    if table.has_stable_row_ids:
        return _created_until(table, version)
    return read_all_records(_check_out(root, table.branch, version))


def read_published_versions(table: Table, key: str) -> list[tuple[int, TableVersion]] | None:
    """Return the versions of a table that a branch published, each with the manifest version of its publish.

    None when the manifest does not record when its rows were written.
    """
    if not table.has_stable_row_ids:
        return None
    where = f"object_type = '{VERSION}' AND table_key = '{key}'"
    return decode_published(table.scan((*COLUMNS, CREATED_AT), where=where, ordered=False))


def _created_until(table: Table, version: int) -> Records:
    where = f"{CREATED_AT} <= {version}"
    try:
        return decode(_rows(table, where))
    except StorageFailure as failure:
        if not _is_gone(failure):
            raise
        return decode(_rows(table.latest(), where))


def _check_out(root: Root, branch: str | None, version: int) -> Table:
    manifest = root.layout.manifest
    fork = root.forks.find(manifest, branch) if branch is not None else None
    if fork is not None and version < fork.parent_version:
        return _check_out(root, fork.parent, version)
    return root.tables.open(manifest, version, branch=branch)


def _rows(table: Table, where: str | None, fragments: Sequence[int] | None = None) -> pa.Table:
    columns = (*COLUMNS, ADDRESS, CREATED_AT) if table.has_stable_row_ids else (*COLUMNS, ADDRESS)
    return table.scan(columns, where=where, ordered=False, fragments=fragments)
