"""A graph that is open: its branches' coordinators, its schema, and how targets become snapshots."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from omnigraph.engine import lineage
from omnigraph.engine.columns import table_schema
from omnigraph.engine.coordinator import Coordinator, Loaded, lance_branch, open_manifest, records_at
from omnigraph.engine.layout import table_keys
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import EMPTY, MAIN, Entry
from omnigraph.engine.migrations import migrate_main
from omnigraph.engine.root import Root
from omnigraph.engine.schema_files import LiveSchema, past_source, read_schema
from omnigraph.engine.snapshot import Snapshot, snapshot_of
from omnigraph.engine.stamp import checked_stamp
from omnigraph.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphNotFound,
    HistoricalVersionReclaimed,
    SchemaContractBroken,
    StorageFailure,
    VersionNotFound,
)
from omnigraph.lang.dates import datetime_text
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.probe import probe
from omnigraph.storage.references import Identity
from omnigraph.storage.tables import Table

_KEPT_CATALOGS = 64
_KEPT_PROOFS = 1024


@dataclass(frozen=True, slots=True)
class AtCommit:
    """The graph as one commit left it."""

    commit_id: str


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A branch at a version of its manifest."""

    branch: str
    version: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A branch at a moment, in microseconds since 1970."""

    branch: str
    moment: int


@dataclass(frozen=True, slots=True)
class AtBranch:
    """A branch as it is now."""

    branch: str = MAIN


Target = AtBranch | AtCommit | AtVersion | AtTime


class OpenGraph:
    """One graph and what is known of it so far; safe to share between threads."""

    def __init__(self, root: Root, *, read_only: bool) -> None:
        self.root = root
        self.read_only = read_only
        self._coordinators: dict[str, Coordinator] = {}
        self._snapshots: dict[str, tuple[Loaded, Snapshot]] = {}
        self._catalogs: OrderedDict[tuple[str, Identity, int], Catalog] = OrderedDict()
        self._proofs: OrderedDict[tuple[str, str], tuple[Identity, Identity]] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, root: Root, *, read_only: bool = False) -> OpenGraph:
        """Open a graph; read-write proves the store and brings main to the current form."""
        _refuse_half_made(root)
        if read_only:
            checked_stamp(open_manifest(root, MAIN))
        else:
            probe(root.objects, root.layout.root)
            migrate_main(root)
        opened = cls(root, read_only=read_only)
        opened.schema()
        return opened

    # --- branches and schema ---------------------------------------------------------------------

    def coordinator(self, branch: str) -> Coordinator:
        """The coordinator of a branch; whether the branch exists shows when it is asked."""
        with self._lock:
            found = self._coordinators.get(branch)
            if found is None:
                found = Coordinator(self.root, branch, keeps=not self.read_only)
                self._coordinators[branch] = found
            return found

    def forget(self, branch: str) -> None:
        """Drop what is known of a branch."""
        with self._lock:
            self._coordinators.pop(branch, None)
            self._snapshots.pop(branch, None)

    def load(self, branch: str) -> Loaded:
        """A branch as it is now."""
        coordinator = self.coordinator(branch)
        breaks = coordinator.breaks
        try:
            loaded = coordinator.load()
        except BranchNotFound:
            self.forget(branch)
            raise
        if coordinator.breaks != breaks and "origin" in vars(self):
            self._look_whose_place_it_is()
        return loaded

    def schema(self) -> LiveSchema:
        """The accepted schema as it is now."""
        return read_schema(self.root)

    def branch_names(self) -> list[str]:
        """Main, then the others by name."""
        return [MAIN, *sorted(self.root.forks.names(self.root.layout.manifest))]

    @cached_property
    def origin(self) -> str:
        """Which graph this is, by its first commit: the place may have held another one before."""
        commits = self.load(MAIN).state.commits.values()
        return min(commits, key=lambda commit: commit.order).id if commits else ""

    def _look_whose_place_it_is(self) -> None:
        """Drop what is known of a graph in whose place another one was made."""
        known = vars(self).pop("origin", None)
        if known in (None, self.origin):
            return
        self.root.tables.forget()
        with self._lock:
            self._catalogs.clear()
            self._coordinators = {MAIN: self._coordinators[MAIN]}

    # --- targets ---------------------------------------------------------------------------------

    def snapshot(self, target: Target) -> Snapshot:
        """The snapshot a target means."""
        match target:
            case AtBranch(branch=branch):
                return self._newest(branch, self.load(branch))
            case AtVersion(branch=branch, version=version):
                return self._at_version(branch, version)
            case AtTime(branch=branch, moment=moment):
                return self._at_time(branch, moment)
            case AtCommit(commit_id=commit_id):
                return self._at_commit(commit_id)

    def _newest(self, branch: str, loaded: Loaded) -> Snapshot:
        """The snapshot of a state; the same one until the branch moves."""
        with self._lock:
            known = self._snapshots.get(branch)
        if known is not None and known[0] is loaded:
            return known[1]
        made = snapshot_of(branch, loaded.state, loaded.identity)
        with self._lock:
            self._snapshots[branch] = (loaded, made)
        return made

    def _at_version(self, branch: str, version: int) -> Snapshot:
        loaded = self.load(branch)
        if not 1 <= version <= loaded.state.version:
            raise VersionNotFound(branch, version)
        if version == loaded.state.version:
            return snapshot_of(branch, loaded.state, loaded.identity)
        passed = self.coordinator(branch).passed(version, loaded.identity)
        if passed is not None:
            return passed
        try:
            records = records_at(self.root, loaded.table, version)
        except StorageFailure as failure:
            if failure.kind != Trouble.NOT_FOUND:
                raise
            raise HistoricalVersionReclaimed(self.root.layout.manifest.name, version) from failure
        # Commits that a migration copied in are older than their rows.
        shown = [commit for commit in loaded.state.commits.values() if commit.version <= version]
        return snapshot_of(branch, EMPTY.plus(replace(records, commits=shown), version), loaded.identity)

    def _at_time(self, branch: str, moment: int) -> Snapshot:
        state = self.load(branch).state
        found = lineage.at_time(state.commits, state.head.id if state.head else None, moment)
        if found is None:
            raise VersionNotFound(branch, f"at {datetime_text(moment // 1000)}")
        return self._at_version(branch, found.version)

    def _at_commit(self, commit_id: str) -> Snapshot:
        branch, commit = self.find_commit(commit_id)
        return self._at_version(branch, commit.version)

    def shows(self, snapshot: Snapshot, table: Table) -> bool:
        """Whether a table that was opened for a snapshot is of the life that its branch had then.

        The branch is asked last: if it lives still, it did when the table was opened. No fork changes its
        branch, so once is enough.
        """
        if table.branch is None:
            return True
        at, life = (snapshot.branch, table.uri), table.life
        with self._lock:
            if life is not None and self._proofs.get(at) == (snapshot.life, life):
                return True
        manifest, branch = self.root.layout.manifest, lance_branch(snapshot.branch)
        if self.root.forks.identity(manifest, branch) != snapshot.life:
            return False
        if life is not None:
            with self._lock:
                self._proofs[at] = snapshot.life, life
                while len(self._proofs) > _KEPT_PROOFS:
                    self._proofs.popitem(last=False)
        return True

    # --- commits ---------------------------------------------------------------------------------

    def find_commit(self, commit_id: str) -> tuple[str, Commit]:
        """A commit and a branch whose manifest shows it: the branches in use first, then the others."""
        for branch in self._likely_branches():
            # A branch may be deleted while the others are searched.
            with suppress(BranchNotFound):
                found = self.load(branch).state.commits.get(commit_id)
                if found is not None:
                    return branch, found
        raise CommitNotFound(commit_id)

    def _likely_branches(self) -> Iterator[str]:
        with self._lock:
            known = list(self._coordinators)
        tried = set()
        for branch in (MAIN, *known):
            if branch not in tried:
                tried.add(branch)
                yield branch
        yield from (branch for branch in self.branch_names() if branch not in tried)

    def catalog_at(self, snapshot: Snapshot) -> Catalog:
        """The schema that held when a snapshot was current; looked up once, for it never changes."""
        key = (snapshot.branch, snapshot.life, snapshot.version)
        with self._lock:
            found = self._catalogs.get(key)
        if found is None:
            found = self._read_catalog(snapshot)
            with self._lock:
                self._catalogs[key] = found
                while len(self._catalogs) > _KEPT_CATALOGS:
                    self._catalogs.popitem(last=False)
        return found

    def _read_catalog(self, snapshot: Snapshot) -> Catalog:
        live = self.schema()
        if snapshot.commit is None:
            return live.catalog
        state = self.load(snapshot.branch).state
        source = past_source(self.root, state.commits, snapshot.commit.id)
        if source is None and snapshot.commit != state.head:
            self._require_fit(snapshot, live.catalog)
        return live.catalog if source in (None, live.source) else _compiled(source)

    def _require_fit(self, snapshot: Snapshot, catalog: Catalog) -> None:
        """Fail where the accepted schema is not that of a snapshot, and no other one is on record."""
        found = {key: self._columns(entry) for key, entry in snapshot.entries.items()}
        if found != {key: set(table_schema(catalog, key).names) for key in table_keys(catalog)}:
            raise SchemaContractBroken(
                f"the schema of snapshot '{snapshot.id}' is not on record: an older release changed it since",
                remedy="read a newer commit; the rows of a type can be read without its schema",
            )

    def _columns(self, entry: Entry) -> set[str]:
        try:
            table = self.root.tables.open(
                self.root.layout.table(entry.path), entry.version, branch=entry.owner
            )
        except StorageFailure as failure:
            if failure.kind not in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
                raise
            raise HistoricalVersionReclaimed(entry.key, entry.version) from failure
        return set(table.schema.names)


@lru_cache(maxsize=_KEPT_CATALOGS)
def _compiled(source: str) -> Catalog:
    return compile_schema(source)


def _refuse_half_made(root: Root) -> None:
    layout = root.layout
    if root.objects.exists(layout.manifest_versions):
        return
    if any(root.objects.exists(at) for at in (layout.schema_source, layout.init_claim, layout.manifest)):
        raise GraphNotFound(
            root.uri, reason="its initialisation did not finish; `omnigraph init --force` starts anew"
        )
    raise GraphNotFound(root.uri)
