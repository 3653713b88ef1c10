"""One branch's manifest, kept open and warm.

A coordinator knows the state of its branch at some version. Asking for the current state costs one
probe; when the manifest moved, only the rows written since are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph.engine.kept_state import WORTH_KEEPING, keep_state, kept_state
from omnigraph.engine.legacy import legacy_lineage
from omnigraph.engine.manifest import COLUMNS, CREATED_AT, EMPTY, MAIN, UPDATED_AT, Records, State, decode
from omnigraph.engine.root import Root
from omnigraph.engine.snapshot import Snapshot, snapshot_of
from omnigraph.engine.stamp import checked_stamp, is_current
from omnigraph.errors import BranchNotFound, GraphNotFound, ReadSetChanged, StorageFailure
from omnigraph.storage.collecting import Run
from omnigraph.storage.fragments import file_names
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.references import Identity
from omnigraph.storage.tables import Table

_LIVES = 3
"""How often a branch may be made anew during one read of it."""
_PASSED = 16
"""So many states of a branch are remembered once it has moved on: mostly the past is a short while ago."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A manifest handle and the state it shows."""

    table: Table
    state: State
    identity: Identity
    """Which life of the branch this is; a name that was deleted and made again has another one."""


def lance_branch(branch: str) -> str | None:
    """The name of a graph branch on the manifest dataset; main has none."""
    return None if branch == MAIN else branch


class Coordinator:
    """The warm manifest state of one branch; safe to share between threads."""

    def __init__(self, root: Root, branch: str, *, keeps: bool = False) -> None:
        """With `keeps`, what took long to read is put on file."""
        self.root = root
        self.branch = branch
        self._keeps = keeps
        self._known: Loaded | None = None
        self._current: Loaded | None = None
        self._passed: OrderedDict[int, State] = OrderedDict()
        self.breaks = 0
        """How often what was found was no later state of what was known before."""
        self.worth_collecting = 0
        """Old versions of the manifest are not looked for before those below this one are out of date."""
        self.collecting: deque[Run] = deque()
        """Those that were found, and that later writes are to remove."""
        self._lock = threading.Lock()

    def load(self) -> Loaded:
        """The branch as it is now."""
        with self._lock:
            return self._moved_to(self._fresh())

    def adopt(self, loaded: Loaded) -> None:
        """Take over a state that a publish of this process just made."""
        with self._lock:
            known = self._known
            if (
                known is None
                or known.identity != loaded.identity
                or known.state.version < loaded.state.version
            ):
                if known is not None and known is self._current and _is_next(known, loaded):
                    self._current = loaded  # a publish leaves the form as it is, and nothing came between
                self._moved_to(loaded)

    @property
    def is_warm(self) -> bool:
        """Whether asking for the branch as it is now takes no more than a probe, unless it moved."""
        with self._lock:
            return self._known is not None

    def passed(self, version: int, life: Identity) -> Snapshot | None:
        """The branch as it was at a version, where this process was there; for anything else None."""
        with self._lock:
            if self._known is None or self._known.identity != life:
                return None
            found = self._passed.get(version)
        return None if found is None else snapshot_of(self.branch, found, life)

    def _moved_to(self, loaded: Loaded) -> Loaded:
        known, self._known = self._known, loaded
        if known is loaded:
            return loaded
        if known is None or not _goes_on(known, loaded):
            self.breaks += known is not None
            self.worth_collecting = 0
            self.collecting.clear()
            self._passed.clear()
            return loaded
        # A snapshot needs no more than this, and the commits of a long history are many.
        self._passed[known.state.version] = replace(known.state, commits={})
        while len(self._passed) > _PASSED:
            self._passed.popitem(last=False)
        return loaded

    def forget(self) -> None:
        """Read everything anew next time."""
        with self._lock:
            self._known = None

    def _fresh(self) -> Loaded:
        known = self._known
        # In an older form commits are written apart from the manifest: its version does not tell of them.
        if known is not None and self.has_current_form(known):
            advanced = self._advanced(known)
            if advanced is not None:
                return advanced
        return self._opened()

    def has_current_form(self, known: Loaded) -> bool:
        """Whether a manifest is in the form of this release; asked once for each that is known."""
        if self._current is known:
            return True
        if not is_current(known.table):
            return False
        self._current = known
        return True

    def _advanced(self, known: Loaded) -> Loaded | None:
        """What is known and the rows since then; None when that is not the branch as it is now."""
        try:
            found = self._with_newer_rows(known)
        except StorageFailure as failure:
            if self._identity() == known.identity and not _is_gone(failure):
                raise
            return None
        # Asked last: a branch that is still the same now was the same while it was read.
        return found if self._identity() == known.identity else None

    def _with_newer_rows(self, known: Loaded) -> Loaded | None:
        table = known.table.latest()
        if table.version == known.state.version:
            return known
        checked_stamp(table)
        more = changed_since(table, known.state.version)
        if table.version < known.state.version or not known.state.leads_to(more):
            # Another graph was made in the place of the one that is known.
            return None
        return Loaded(table, known.state.plus(more, table.version), known.identity)

    def _opened(self) -> Loaded:
        """Everything read anew, until the branch was not deleted and made again meanwhile."""
        for life in range(_LIVES):
            identity = self._identity()
            try:
                found = self._open(identity)
            except (BranchNotFound, StorageFailure) as failure:
                again = _is_gone(failure) and life + 1 < _LIVES
                if self._identity() == identity and not again:
                    raise
                continue
            if self._identity() == identity:
                return found
        raise ReadSetChanged(f"branch:{self.branch}", expected="one life", actual="made anew again and again")

    def _identity(self) -> Identity:
        """Main lives as long as its graph; any other branch is asked for, in one read."""
        if self.branch == MAIN:
            return ()
        fork = self.root.forks.find(self.root.layout.manifest, self.branch)
        if fork is None:
            raise BranchNotFound(self.branch)
        return fork.identity

    def _open(self, identity: Identity) -> Loaded:
        table = open_manifest(self.root, self.branch, followed=True)
        if self.branch == MAIN and table.has_stable_row_ids and is_current(table):
            return Loaded(table, self._state_of_main(table), identity)
        records = all_records(table)
        if not is_current(table) and not records.commits:
            lineage = legacy_lineage(self.root, self.branch)
            records = replace(records, commits=lineage.commits, heads=lineage.heads)
        return Loaded(table, EMPTY.plus(records, table.version), identity)

    def _state_of_main(self, table: Table) -> State:
        """What all rows say; of many fragments only those are read that the state on file does not know."""
        files = file_names(table)
        kept = kept_state(self.root) if len(files) >= WORTH_KEEPING else None
        unread = None if kept is None else kept.unread(files)
        if kept is not None and unread is not None:
            if not unread:
                return kept.at(table.version)
            found = kept.plus(_rows(table, None, unread), table.version)
            if found is not None:
                return self._kept(found, files, len(unread))
        return self._kept(EMPTY.plus(all_records(table), table.version), files, len(files))

    def _kept(self, state: State, files: Mapping[int, str], read: int) -> State:
        """A state that is on file from now on, if it took long to read."""
        if self._keeps and read >= WORTH_KEEPING:
            keep_state(self.root, state, files)
        return state


def _is_next(before: Loaded, after: Loaded) -> bool:
    return before.identity == after.identity and before.state.version + 1 == after.state.version


def _goes_on(before: Loaded, after: Loaded) -> bool:
    """Whether a branch simply moved on, so that what it was before is a part of its past as it stands.

    Another graph may have been made in its place. And a version of a table may have passed from one owner to
    another: then the past is where the new owner has it.
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
    """Whether what was read is old by now and was collected meanwhile: a reader may sleep for long."""
    return isinstance(failure, StorageFailure) and failure.kind in (Trouble.RECLAIMED, Trouble.NOT_FOUND)


def open_manifest(root: Root, branch: str, *, followed: bool = False) -> Table:
    """The newest version of a branch's manifest; `followed` where newer ones will be asked for."""
    try:
        return root.tables.tip(root.layout.manifest, branch=lance_branch(branch), followed=followed)
    except StorageFailure as failure:
        if failure.kind != Trouble.NOT_FOUND:
            raise
        if branch == MAIN:
            raise GraphNotFound(root.uri) from failure
        raise BranchNotFound(branch) from failure


def all_records(table: Table) -> Records:
    """Every row of a manifest."""
    return decode(_rows(table, None))


def changed_since(table: Table, version: int) -> Records:
    """The rows that were added or rewritten after a version, and maybe older ones."""
    # Manifests made by old releases may not remember when a row was written.
    where = f"{UPDATED_AT} > {version}" if table.has_stable_row_ids else None
    return decode(_rows(table, where))


def records_at(root: Root, table: Table, version: int) -> Records:
    """The rows of an earlier version, read from a later one: rows only ever come, so creation tells.

    Where rows do not remember their creation, the earlier version itself is read.
    """
    if table.has_stable_row_ids:
        return _created_until(table, version)
    return all_records(_checked_out(root, table.branch, version))


def _created_until(table: Table, version: int) -> Records:
    where = f"{CREATED_AT} <= {version}"
    try:
        return decode(_rows(table, where))
    except StorageFailure as failure:
        if not _is_gone(failure):
            raise
        return decode(_rows(table.latest(), where))


def _checked_out(root: Root, branch: str | None, version: int) -> Table:
    manifest = root.layout.manifest
    fork = root.forks.find(manifest, branch) if branch is not None else None
    if fork is not None and version < fork.parent_version:
        return _checked_out(root, fork.parent, version)
    return root.tables.open(manifest, version, branch=branch)


def _rows(table: Table, where: str | None, fragments: Sequence[int] | None = None) -> pa.Table:
    columns: Sequence[str] = (*COLUMNS, CREATED_AT) if table.has_stable_row_ids else COLUMNS
    return table.scan(columns, where=where, ordered=False, fragments=fragments)
