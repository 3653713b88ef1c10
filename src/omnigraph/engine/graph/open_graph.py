"""An open graph: its branch coordinators, its schema, and snapshots of read targets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.graph import lineage
from omnigraph.engine.graph.coordinator import (
    Coordinator,
    LoadedBranch,
    lance_branch,
    open_manifest,
    read_records_at,
)
from omnigraph.engine.graph.format_stamp import require_supported_stamp
from omnigraph.engine.graph.layout import table_keys
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import EMPTY_STATE, MAIN, ManifestState, TableEntry
from omnigraph.engine.graph.migrations import migrate_main
from omnigraph.engine.graph.permissions import Permissions
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import (
    LiveSchema,
    find_past_schema,
    read_identified_schema,
    read_schema,
    refuse_unfinished_copy,
)
from omnigraph.engine.graph.snapshot import Snapshot, make_snapshot
from omnigraph.engine.graph.table_types import table_schema
from omnigraph.engine.graph.tags import looks_like_commit, parse_tag_name, read_kept_commit, read_tag
from omnigraph.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphNotFound,
    HistoricalVersionReclaimed,
    InvalidName,
    SchemaContractBroken,
    StorageFailure,
    VersionNotFound,
)
from omnigraph.lang.dates import format_datetime
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog, Granularity
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.references import Incarnation
from omnigraph.storage.stores import require_safe_writes
from omnigraph.storage.tables import Table

_MAX_CATALOGS = 64
_MAX_PROOFS = 1024


@dataclass(frozen=True, slots=True)
class AtCommit:
    """The graph at one commit."""

    commit_id: str
    """Its id, or the name of a tag."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A branch at a version of its manifest."""

    branch: str
    version: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A branch at a time, in microseconds since 1970."""

    branch: str
    moment: int


@dataclass(frozen=True, slots=True)
class AtBranch:
    """A branch as it is now."""

    branch: str = MAIN


ReadTarget = AtBranch | AtCommit | AtVersion | AtTime


class OpenGraph:
    """One graph and its caches; safe to share between threads."""

    def __init__(self, root: Root, *, read_only: bool) -> None:
        self.root = root
        self.read_only = read_only
        self.permissions = Permissions()
        """Asked at the head of every writer."""
        self.embedding: EmbedSettings | None = None
        """How texts are embedded; None leaves it to the environment."""
        self.merge_granularity: Granularity | None = None
        """What contradicts in a merge, where neither the call nor the type says; None means `row`."""
        self.has_current_schema_files = True
        """Whether the schema files had the shape this release writes when the graph was opened."""
        self.last_schema: LiveSchema | None = None
        """The schema as it was read last; another process may have changed it since."""
        self._coordinators: dict[str, Coordinator] = {}
        self._snapshots: dict[str, tuple[LoadedBranch, Snapshot]] = {}
        self._catalogs: OrderedDict[tuple[str, Incarnation, int], Catalog] = OrderedDict()
        self._proofs: OrderedDict[tuple[str, str], tuple[Incarnation, Incarnation]] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, root: Root, *, read_only: bool = False) -> OpenGraph:
        """Open a graph; read-write probes the store and migrates main to the current format."""
        _refuse_incomplete(root)
        if read_only:
            require_supported_stamp(open_manifest(root, MAIN))
        else:
            require_safe_writes(root.objects, root.layout.root)
            migrate_main(root)
        opened = cls(root, read_only=read_only)
        if read_only:
            opened.schema()
        else:
            found = read_identified_schema(root)
            opened.has_current_schema_files, opened.last_schema = found.is_current, found.schema
        return opened

    # --- branches and schema ---------------------------------------------------------------------

    def coordinator(self, branch: str) -> Coordinator:
        """Return the coordinator of a branch; the branch may not exist."""
        with self._lock:
            found = self._coordinators.get(branch)
            if found is None:
                found = Coordinator(self.root, branch, caches_on_disk=not self.read_only)
                self._coordinators[branch] = found
            return found

    def forget(self, branch: str) -> None:
        """Drop the caches of a branch."""
        with self._lock:
            self._coordinators.pop(branch, None)
            self._snapshots.pop(branch, None)

    def load(self, branch: str) -> LoadedBranch:
        """Return a branch as it is now."""
        coordinator = self.coordinator(branch)
        breaks = coordinator.discontinuities
        try:
            loaded = coordinator.load()
        except BranchNotFound:
            self.forget(branch)
            raise
        if coordinator.discontinuities != breaks and "origin" in vars(self):
            self._check_origin()
        return loaded

    def load_with(self, branch: str, commit_id: str | None) -> LoadedBranch:
        """Return a state of a branch that has a commit: the known one if it does, else the current one."""
        known = self.coordinator(branch).known
        if commit_id is not None and known is not None and commit_id in known.state.commits:
            return known
        return self.load(branch)

    def schema(self) -> LiveSchema:
        """The accepted schema as it is now."""
        self.last_schema = found = read_schema(self.root)
        return found

    def branch_names(self) -> list[str]:
        """Main, then the others by name."""
        return [MAIN, *sorted(self.root.forks.names(self.root.layout.manifest))]

    @cached_property
    def origin(self) -> str:
        """The id of the first commit, which identifies the graph: the location may be reused."""
        commits = self.load(MAIN).state.commits.values()
        return min(commits, key=lambda commit: commit.order).id if commits else ""

    def _check_origin(self) -> None:
        """Drop all caches if another graph was created at this location."""
        known = vars(self).pop("origin", None)
        if known in (None, self.origin):
            return
        self.root.tables.forget()
        with self._lock:
            self._catalogs.clear()
            self._coordinators = {MAIN: self._coordinators[MAIN]}

    # --- targets ---------------------------------------------------------------------------------

    def snapshot(self, target: ReadTarget) -> Snapshot:
        """Return the snapshot of a target."""
        match target:
            case AtBranch(branch=branch):
                return self._current_snapshot(branch, self.load(branch))
            case AtVersion(branch=branch, version=version):
                return self._at_version(branch, version)
            case AtTime(branch=branch, moment=moment):
                return self._at_time(branch, moment)
            case AtCommit(commit_id=commit_id):
                return self._at_commit(commit_id)

    def _current_snapshot(self, branch: str, loaded: LoadedBranch) -> Snapshot:
        """Return the snapshot of a state; the same object until the branch moves."""
        with self._lock:
            known = self._snapshots.get(branch)
        if known is not None and known[0] is loaded:
            return known[1]
        made = make_snapshot(branch, loaded.state, loaded.identity)
        with self._lock:
            self._snapshots[branch] = (loaded, made)
        return made

    def _at_version(self, branch: str, version: int) -> Snapshot:
        loaded = self.load(branch)
        if not 1 <= version <= loaded.state.version:
            raise VersionNotFound(branch, version)
        if version == loaded.state.version:
            return make_snapshot(branch, loaded.state, loaded.identity)
        recent = self.coordinator(branch).recall_snapshot(version, loaded.identity)
        if recent is not None:
            return recent
        try:
            records = read_records_at(self.root, loaded.table, version)
        except StorageFailure as failure:
            if failure.kind != TableFailureKind.NOT_FOUND:
                raise
            raise HistoricalVersionReclaimed(self.root.layout.manifest.name, version) from failure
        # Commits that a migration copied in are older than their rows.
        shown = [commit for commit in loaded.state.commits.values() if commit.version <= version]
        return make_snapshot(
            branch, EMPTY_STATE.plus(replace(records, commits=shown), version), loaded.identity
        )

    def _at_time(self, branch: str, moment: int) -> Snapshot:
        state = self.load(branch).state
        found = lineage.find_commit_at(state.commits, state.head.id if state.head else None, moment)
        if found is None:
            raise VersionNotFound(branch, f"at {format_datetime(moment // 1000)}")
        return self._at_version(branch, found.version)

    def _at_commit(self, commit_id: str) -> Snapshot:
        found = self._find_on_branches(self.resolve_commit_id(commit_id))
        if found is not None:
            return self._at_version(found[0], found[1].version)
        kept = read_kept_commit(self.root, self.resolve_commit_id(commit_id))
        if kept is None:
            raise CommitNotFound(commit_id)
        return kept.snapshot

    def is_from_incarnation(self, snapshot: Snapshot, table: Table) -> bool:
        """Whether a table opened for a snapshot belongs to the incarnation of its branch at that time.

        The branch is checked last: if its incarnation still exists, it did when the table was opened. A fork
        never changes its branch, so one check is enough.
        """
        if table.branch is None:
            return True
        at, incarnation = (snapshot.branch, table.uri), table.incarnation
        with self._lock:
            if incarnation is not None and self._proofs.get(at) == (snapshot.incarnation, incarnation):
                return True
        manifest, branch = self.root.layout.manifest, lance_branch(snapshot.branch)
        if self.root.forks.identity(manifest, branch) != snapshot.incarnation:
            return False
        if incarnation is not None:
            with self._lock:
                self._proofs[at] = snapshot.incarnation, incarnation
                while len(self._proofs) > _MAX_PROOFS:
                    self._proofs.popitem(last=False)
        return True

    # --- commits ---------------------------------------------------------------------------------

    def find_commit(self, named: str) -> tuple[str, Commit]:
        """Find a commit, by its id or a tag, and a branch that shows it."""
        commit_id = self.resolve_commit_id(named)
        found = self._find_on_branches(commit_id)
        if found is not None:
            return found
        kept = read_kept_commit(self.root, commit_id)
        if kept is not None and kept.snapshot.commit is not None:
            raise BranchNotFound(kept.snapshot.branch, hint=f": commit '{commit_id}' was on it")
        raise CommitNotFound(named)

    def get_commit(self, named: str) -> Commit:
        """Return a commit, by its id or a tag; also a tagged one whose branch was deleted."""
        commit_id = self.resolve_commit_id(named)
        found = self._find_on_branches(commit_id)
        if found is not None:
            return found[1]
        kept = read_kept_commit(self.root, commit_id)
        if kept is None:
            raise CommitNotFound(named)
        return kept.history[commit_id]

    def resolve_commit_id(self, named: str) -> str:
        """Return the id of the commit that a tag names; the text itself where it is no tag."""
        if looks_like_commit(named):
            return named
        try:
            found = read_tag(self.root, parse_tag_name(named))
        except InvalidName:
            return named
        return named if found is None else found.commit_id

    def _find_on_branches(self, commit_id: str) -> tuple[str, Commit] | None:
        """Find a commit and a branch that shows it; branches in use are searched first."""
        for branch in self._likely_branches():
            # A branch may be deleted while the others are searched.
            with suppress(BranchNotFound):
                found = self.load(branch).state.commits.get(commit_id)
                if found is not None:
                    return branch, found
        return None

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
        """Return the schema of a snapshot; cached, because it never changes."""
        key = (snapshot.branch, snapshot.incarnation, snapshot.version)
        with self._lock:
            found = self._catalogs.get(key)
        if found is None:
            found = self._read_catalog(snapshot)
            with self._lock:
                self._catalogs[key] = found
                while len(self._catalogs) > _MAX_CATALOGS:
                    self._catalogs.popitem(last=False)
        return found

    def _read_catalog(self, snapshot: Snapshot) -> Catalog:
        live = self.schema()
        if snapshot.commit is None:
            return live.catalog
        state = self._state_with(snapshot)
        record = find_past_schema(self.root, state.commits, snapshot.commit.id)
        if record is not None and record.commit_id == snapshot.commit.id:
            return self._compile_or_reuse(record.source, live)
        if snapshot.commit == state.head:
            # Without a record of its own the head has the accepted schema.
            return live.catalog
        recorded = live.catalog if record is None else self._compile_or_reuse(record.source, live)
        if record is None or self._was_changed_elsewhere(state, live):
            return self._choose_catalog(snapshot, recorded, live.catalog)
        return recorded

    def _state_with(self, snapshot: Snapshot) -> ManifestState:
        """Return the state of the branch that shows a snapshot; main's with its commits if it is gone."""
        with suppress(BranchNotFound):
            loaded = self.load(snapshot.branch)
            if loaded.identity == snapshot.incarnation:
                return loaded.state
        kept = None if snapshot.commit is None else read_kept_commit(self.root, snapshot.commit.id)
        if kept is None:
            return self.load(snapshot.branch).state
        main = self.load(MAIN).state
        return replace(main, commits={**main.commits, **kept.history})

    @staticmethod
    def _compile_or_reuse(source: str, live: LiveSchema) -> Catalog:
        return live.catalog if source == live.source else _compile(source)

    def _was_changed_elsewhere(self, state: ManifestState, live: LiveSchema) -> bool:
        """Whether the newest record is not the accepted schema: another implementation writes none."""
        record = None if state.head is None else find_past_schema(self.root, state.commits, state.head.id)
        return (
            record is None
            or self._compile_or_reuse(record.source, live).fingerprint != live.catalog.fingerprint
        )

    def _choose_catalog(self, snapshot: Snapshot, *catalogs: Catalog) -> Catalog:
        """Return the first of these schemas that matches the columns of a snapshot's tables."""
        found = {key: self._columns(entry) for key, entry in snapshot.entries.items()}
        for catalog in catalogs:
            if found == {key: set(table_schema(catalog, key).names) for key in table_keys(catalog)}:
                return catalog
        raise SchemaContractBroken(
            f"the schema of snapshot '{snapshot.id}' is not on record: an older release, or another "
            "implementation, changed it since",
            remedy="read a newer commit; the rows of a type can be read without its schema",
        )

    def _columns(self, entry: TableEntry) -> set[str]:
        try:
            table = self.root.tables.open(
                self.root.layout.table(entry.path), entry.version, branch=entry.owner
            )
        except StorageFailure as failure:
            if failure.kind not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
                raise
            raise HistoricalVersionReclaimed(entry.key, entry.version) from failure
        return set(table.schema.names)


@lru_cache(maxsize=_MAX_CATALOGS)
def _compile(source: str) -> Catalog:
    return compile_schema(source)


def _refuse_incomplete(root: Root) -> None:
    layout = root.layout
    if root.objects.exists(layout.manifest_versions):
        return
    refuse_unfinished_copy(root)
    if any(root.objects.exists(at) for at in (layout.schema_source, layout.init_claim, layout.manifest)):
        raise GraphNotFound(
            root.uri, reason="its initialisation did not finish; `omnigraph init --force` starts again"
        )
    raise GraphNotFound(root.uri)
