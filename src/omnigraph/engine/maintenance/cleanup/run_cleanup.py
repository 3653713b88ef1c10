"""`cleanup`: remove history that the policy does not keep and that no branch, merge or reader needs.

First everything is checked, and any doubt refuses the whole cleanup except that of stray forks: a write that
cannot be recovered, a table modified outside omnigraph, a branch that cannot be read. After that, a table
that fails does not stop the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.kept_commits import find_unneeded_commits, remove_unneeded_commits
from omnigraph.engine.branches.saved_bases import (
    find_unneeded_bases,
    list_saved_commits,
    remove_bases,
    saved_versions,
)
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.drift import find_drift, resolve_drift
from omnigraph.engine.commit.recovery.sweep import recover_branch, sweep
from omnigraph.engine.commit.schema_lock import recover_stale_lock_if_free
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.export_marks import remove_expired_marks
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.merge_pins import list_pinned_commits, remove_expired_pins
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.cleanup.claims import Claims, find_branches_at_old_commits
from omnigraph.engine.maintenance.cleanup.needed_versions import (
    NeededVersions,
    find_merge_bases,
    find_needed_versions,
    read_branches,
    read_tagged,
    tips_between,
)
from omnigraph.engine.maintenance.cleanup.old_versions import (
    CleanedTable,
    OldVersions,
    find_old_versions,
    is_branch_gone,
    preview_removal,
    remove_old_versions,
)
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.staged_files import find_staged_loads, remove_staged_loads
from omnigraph.engine.maintenance.cleanup.stray_forks import (
    MANIFEST,
    StrayFork,
    StrayForkRemoval,
    find_stray_forks,
    remove_stray_forks,
)
from omnigraph.engine.maintenance.cleanup.unneeded_tables import (
    DroppedTable,
    find_dropped_tables,
    find_removable_orphans,
    remove_dropped_tables,
    remove_orphan_tables,
)
from omnigraph.engine.maintenance.optimize import read_concurrency
from omnigraph.engine.upkeep.manifest_upkeep import collect_manifest
from omnigraph.errors import BranchNotFound, OmnigraphError, SchemaApplyBlocked, StorageFailure, WriterBusy
from omnigraph.progress import stage
from omnigraph.storage.locks import HeldLocks

_PARTIAL_AGE = 86_400.0
"""A temporary file lives for seconds; after a day its writer is gone."""


@dataclass(frozen=True, slots=True, repr=False)
class CleanupResult:
    """What was removed, or in a dry run would be."""

    policy: CleanupPolicy
    dry_run: bool
    tables: tuple[CleanedTable, ...]
    """The tables that branches own."""
    manifests: tuple[CleanedTable, ...]
    """The manifest of each branch: only old versions of its storage are removed, never a commit."""
    forks: tuple[StrayFork, ...] = ()
    """Forks of tables that no branch publishes, or files of such."""
    forks_left: tuple[StrayFork, ...] = ()
    """Stray forks that could not be removed, and why."""
    dropped: tuple[DroppedTable, ...] = ()
    """Tables of dropped types."""
    derived_files: int = 0
    """Files of `__derived` that no read can use any more."""
    derived_bytes: int = 0
    loads: tuple[str, ...] = ()
    """Loads that were interrupted long ago, whose staged files were left."""
    staged_bytes: int = 0
    """How many bytes those files took."""
    orphan_tables: tuple[str, ...] = ()
    """Tables made by a schema change long ago and never published by a branch; their paths."""
    bases: tuple[str, ...] = ()
    """Commits of deleted branches whose saved content no merge can need as its base any more."""

    def __repr__(self) -> str:
        would = ", a dry run" if self.dry_run else "" if self.ok else ", incomplete"
        return f"<CleanupResult {self.versions_removed} versions, {self.bytes_removed} bytes{would}>"

    @property
    def in_vain(self) -> tuple[str, ...]:
        """The earlier name of `orphan_tables`."""
        return self.orphan_tables

    @property
    def versions_removed(self) -> int:
        """How many versions of tables and manifests were removed."""
        return sum(one.versions_removed for one in self._each())

    @property
    def bytes_removed(self) -> int:
        """How many bytes they took; without forks, whose files are not counted."""
        gone = sum(one.bytes for one in self.dropped if one.failure is None)
        return gone + self.derived_bytes + self.staged_bytes + sum(one.bytes_removed for one in self._each())

    @property
    def ok(self) -> bool:
        """Whether everything to remove was removed."""
        failures = [*(one.failure for one in self._each()), *(one.failure for one in self.dropped)]
        return not self.forks_left and not any(failures)

    def _each(self) -> tuple[CleanedTable, ...]:
        return (*self.tables, *self.manifests)


def cleanup(
    graph: OpenGraph, policy: CleanupPolicy, *, dry_run: bool = False, actor: str | None = None
) -> CleanupResult:
    """Remove old versions of tables, forks of deleted branches, and what failed writes left."""
    graph.permissions.require_admin(actor, dry_run=dry_run)
    if not dry_run:
        _refuse_during_schema_apply(graph)
        _recover_despite_strays(graph)
    found = _remove_strays(graph, dry_run=dry_run)
    began_at_old = find_branches_at_old_commits(graph)
    branches, needed, olds, bases, tagged = _find_removable(graph, policy)
    claims = Claims(tagged, began_at_old)
    with stage("cleanup", tasks=len(olds)) as cleaning:
        advance = partial(cleaning.advance, tasks=1)
        act = preview_removal if dry_run else partial(remove_old_versions, claims=claims)
        tables = act(graph, olds, read_concurrency(), advance)
    dropped = find_dropped_tables(graph, branches, needed)
    manifests = [_clean_manifest(graph, branch, dry_run=dry_run) for branch in branches]
    if not dry_run:
        dropped = remove_dropped_tables(graph, dropped, claims)
        _discard_partial(graph)
    loads = find_staged_loads(graph, policy.staged_older_than)
    orphans = find_removable_orphans(graph, branches.values())
    unneeded = find_unneeded_bases(graph, bases)
    if not dry_run:
        remove_unneeded_commits(graph, find_unneeded_commits(graph))
        remove_bases(graph, unneeded, [loaded.identity for loaded in branches.values()])
        orphans = remove_orphan_tables(graph, orphans)
        remove_expired_pins(graph)
        remove_expired_marks(graph)
        remove_staged_loads(graph, loads)
        # Handles of removed versions would only fail later.
        graph.root.tables.forget()
        if graph.root.tables.access.checksums is not None:
            graph.root.tables.access.checksums.prune()
    return CleanupResult(
        policy,
        dry_run,
        tuple(tables),
        tuple(manifests),
        found.removed,
        found.left,
        tuple(dropped),
        loads=tuple(one.load for one in loads),
        staged_bytes=sum(one.bytes for one in loads),
        orphan_tables=tuple(orphans),
        bases=unneeded,
    )


def _remove_strays(graph: OpenGraph, *, dry_run: bool) -> StrayForkRemoval:
    branches = read_branches(graph)
    return (
        StrayForkRemoval(tuple(find_stray_forks(graph, branches)))
        if dry_run
        else remove_stray_forks(graph, branches)
    )


def _find_removable(
    graph: OpenGraph, policy: CleanupPolicy
) -> tuple[dict[str, LoadedBranch], NeededVersions, list[OldVersions], frozenset[str], frozenset[str]]:
    """Return all branches, what they need, what none of them needs, the merge bases and the tagged commits.

    Branches are read twice. What is removed was not needed at either read: the second finds every merge that
    was published between, and the pins those in progress. It starts again when a branch is deleted meanwhile,
    or when the content of a deleted branch is saved.
    """
    while True:
        now, earlier, taken = graph.root.clock(), read_branches(graph), list_pinned_commits(graph)
        branches, kept = read_branches(graph), list_saved_commits(graph)
        # After the branches: a commit of a branch that was deleted meanwhile is kept by now.
        tagged, pinned = read_tagged(graph)
        states = {branch: loaded.state for branch, loaded in branches.items()}
        bases = find_merge_bases(states, taken.union(tips_between(earlier, branches)))
        try:
            pinned += saved_versions(graph, kept & bases)
            needed = find_needed_versions(branches, policy, now, bases | tagged, pinned)
            needed |= find_needed_versions(_moved_branches(earlier, branches), policy, now, bases | tagged)
            olds = find_old_versions(graph, branches, needed)
        except StorageFailure:
            if not any(is_branch_gone(graph, branch, loaded.identity) for branch, loaded in branches.items()):
                raise
            continue
        if list_saved_commits(graph) == kept:
            return branches, needed, olds, bases, tagged


def _moved_branches(
    earlier: Mapping[str, LoadedBranch], now: Mapping[str, LoadedBranch]
) -> dict[str, LoadedBranch]:
    """Return the branches of an earlier read that have new commits since."""
    return {
        branch: loaded
        for branch, loaded in earlier.items()
        if branch in now
        and loaded.identity == now[branch].identity
        and loaded.state.version != now[branch].state.version
    }


def _refuse_during_schema_apply(graph: OpenGraph) -> None:
    if not recover_stale_lock_if_free(graph):
        raise SchemaApplyBlocked(
            "cleanup is unavailable while schema apply is in progress", remedy="try again when it is done"
        )


def _recover_despite_strays(graph: OpenGraph) -> None:
    """Recover all branches; if that fails, remove stray forks, which may be the cause, and try again."""
    try:
        _recover_branches(graph)
    except WriterBusy:
        raise
    except OmnigraphError as error:
        try:
            _remove_strays(graph, dry_run=False)
        except OmnigraphError as second:
            raise error from second
        _recover_branches(graph)


def _recover_branches(graph: OpenGraph) -> None:
    """Recover every branch; raises where only a person can decide."""
    if sidecar.operations(graph.root):
        sweep(graph, only_forward=False)
    for branch in graph.branch_names():
        # It may be deleted while the others are recovered.
        with suppress(BranchNotFound), graph.root.locks.hold([branch]) as held:
            _recover_one(graph, branch, held)


def _recover_one(graph: OpenGraph, branch: str, held: HeldLocks) -> None:
    recover_branch(graph, branch, held)
    owner = None if branch == MAIN else branch
    entries = graph.load(branch).state.entries().values()
    drifted = find_drift(graph, [entry for entry in entries if entry.owner == owner])
    resolve_drift(graph, branch, held, drifted)


def _clean_manifest(graph: OpenGraph, branch: str, *, dry_run: bool) -> CleanedTable:
    coordinator = graph.coordinator(branch)
    stored = 0
    try:
        stored = len(coordinator.load().table.versions())
        if dry_run:
            done = collect_manifest(coordinator, dry_run=True)
        else:
            with graph.root.locks.hold([branch]):
                done = collect_manifest(coordinator)
    except BranchNotFound:
        return CleanedTable(MANIFEST, branch, stored)  # deleted since it was read
    except OmnigraphError as error:
        return CleanedTable(MANIFEST, branch, stored, failure=error.message)
    return CleanedTable(MANIFEST, branch, stored, done.versions, done.bytes, done.files)


def _discard_partial(graph: OpenGraph) -> None:
    layout = graph.root.layout
    for folder in (layout.root, layout.recovery, layout.past_schemas, layout.derived):
        graph.root.objects.discard_partial(folder, _PARTIAL_AGE)
