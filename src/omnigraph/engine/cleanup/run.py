"""`cleanup`: remove what is past, as far as a policy and everybody who still needs it allow.

First everything is looked at, and any doubt refuses the whole cleanup but that of stray forks: a write that
cannot be recovered, a table that somebody changed past the door, a branch that cannot be read. From then on
each table is on its own.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ulid import ULID

from omnigraph.engine.cleanup.collect import Cleaned, Old, collect, is_gone, old_versions, preview
from omnigraph.engine.cleanup.dropped import DroppedTable, dropped_tables, remove_dropped
from omnigraph.engine.cleanup.in_vain import remove_in_vain, tables_in_vain
from omnigraph.engine.cleanup.needed import Needed, needed_versions, read_branches
from omnigraph.engine.cleanup.policy import Policy
from omnigraph.engine.cleanup.strays import MANIFEST, Reclaimed, Stray, reclaim_strays, strays
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.optimize import concurrency
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.drift import settle_drift
from omnigraph.engine.recovery.sweep import recover_branch, sweep
from omnigraph.engine.schema_apply.lock import clear_if_free
from omnigraph.engine.upkeep import collect_manifest
from omnigraph.errors import BranchNotFound, OmnigraphError, SchemaApplyBlocked, StorageFailure, WriterBusy
from omnigraph.progress import stage
from omnigraph.storage.locks import Held

_PARTIAL_AGE = 86_400.0
"""A file on its way to its name is there for a moment; after a day nobody comes back for it."""


_LOAD_AGE = 7 * 86_400.0
"""Longer than any load takes: its files may be all there is of it so far."""


@dataclass(frozen=True, slots=True, repr=False)
class CleanupResult:
    """What went, or in a dry run would go."""

    policy: Policy
    dry_run: bool
    tables: tuple[Cleaned, ...]
    """The tables that branches have of their own."""
    manifests: tuple[Cleaned, ...]
    """The history of each branch: only how it was stored at earlier times goes, never a commit."""
    forks: tuple[Stray, ...] = ()
    """Forks of tables that no branch shows, or files of such."""
    forks_left: tuple[Stray, ...] = ()
    """Those that could not be removed, and why."""
    dropped: tuple[DroppedTable, ...] = ()
    """Tables of dropped types."""
    derived_files: int = 0
    """Files of `__derived` that no read can use any more."""
    derived_bytes: int = 0
    loads: tuple[str, ...] = ()
    """Loads that were cut off long ago, whose files were still waiting."""
    in_vain: tuple[str, ...] = ()
    """The places of tables that a change of the schema made long ago, and that no branch ever showed."""

    def __repr__(self) -> str:
        would = ", a dry run" if self.dry_run else "" if self.ok else ", not all that was to go"
        return f"<CleanupResult {self.versions_removed} versions, {self.bytes_removed} bytes{would}>"

    @property
    def versions_removed(self) -> int:
        """How many versions went, of tables and manifests."""
        return sum(one.versions_removed for one in self._each())

    @property
    def bytes_removed(self) -> int:
        """How much room they took; without forks, whose files are not counted."""
        gone = sum(one.bytes for one in self.dropped if one.failure is None)
        return gone + self.derived_bytes + sum(one.bytes_removed for one in self._each())

    @property
    def ok(self) -> bool:
        """Whether all that was to go went."""
        failures = [*(one.failure for one in self._each()), *(one.failure for one in self.dropped)]
        return not self.forks_left and not any(failures)

    def _each(self) -> tuple[Cleaned, ...]:
        return (*self.tables, *self.manifests)


def cleanup(graph: OpenGraph, policy: Policy, *, dry_run: bool = False) -> CleanupResult:
    """Remove old versions of tables, forks of branches that are gone, and what failed writes left."""
    if not dry_run:
        _refuse_during_schema_apply(graph)
        _settle_in_spite_of_strays(graph)
    found = _reclaimed(graph, dry_run=dry_run)
    branches, needed, olds = _look(graph, policy)
    with stage("cleanup", tasks=len(olds)) as cleaning:
        tell = partial(cleaning.advance, tasks=1)
        tables = (preview if dry_run else collect)(graph, olds, concurrency(), tell)
    dropped = dropped_tables(graph, branches, needed)
    manifests = [_manifest(graph, branch, dry_run=dry_run) for branch in branches]
    if not dry_run:
        dropped = remove_dropped(graph, dropped)
        _discard_partial(graph)
    loads = abandoned_loads(graph)
    in_vain = tables_in_vain(graph, branches.values())
    if not dry_run:
        in_vain = remove_in_vain(graph, in_vain)
        for load in loads:
            graph.root.objects.delete_prefix(graph.root.layout.staging / load)
        # Handles of versions that are gone would only fail later.
        graph.root.tables.forget()
    return CleanupResult(
        policy,
        dry_run,
        tuple(tables),
        tuple(manifests),
        found.removed,
        found.left,
        tuple(dropped),
        loads=tuple(loads),
        in_vain=tuple(in_vain),
    )


def _reclaimed(graph: OpenGraph, *, dry_run: bool) -> Reclaimed:
    branches = read_branches(graph)
    return Reclaimed(tuple(strays(graph, branches))) if dry_run else reclaim_strays(graph, branches)


def _look(graph: OpenGraph, policy: Policy) -> tuple[dict[str, Loaded], Needed, list[Old]]:
    """All branches, what they need, and what nobody does; begins anew when one is deleted meanwhile."""
    while True:
        branches = read_branches(graph)
        try:
            needed = needed_versions(branches, policy, graph.root.clock())
            return branches, needed, old_versions(graph, branches, needed)
        except StorageFailure:
            if not any(is_gone(graph, branch) for branch in branches):
                raise


def _refuse_during_schema_apply(graph: OpenGraph) -> None:
    if not clear_if_free(graph):
        raise SchemaApplyBlocked(
            "cleanup is unavailable while schema apply is in progress", remedy="try again when it is done"
        )


def _settle_in_spite_of_strays(graph: OpenGraph) -> None:
    """Where a branch cannot be brought in order, stray forks go all the same: they may be in the way."""
    try:
        _settle(graph)
    except WriterBusy:
        raise
    except OmnigraphError as error:
        try:
            _reclaimed(graph, dry_run=False)
        except OmnigraphError as second:
            raise error from second
        _settle(graph)


def _settle(graph: OpenGraph) -> None:
    """Bring every branch in order; raises where only a person can."""
    if sidecar.operations(graph.root):
        sweep(graph, only_forward=False)
    for branch in graph.branch_names():
        # It may be deleted while the others are settled.
        with suppress(BranchNotFound), graph.root.locks.hold([branch]) as held:
            _settle_one(graph, branch, held)


def _settle_one(graph: OpenGraph, branch: str, held: Held) -> None:
    recover_branch(graph, branch, held)
    owner = None if branch == MAIN else branch
    entries = graph.load(branch).state.entries().values()
    settle_drift(graph, branch, held, [entry for entry in entries if entry.owner == owner])


def _manifest(graph: OpenGraph, branch: str, *, dry_run: bool) -> Cleaned:
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
        return Cleaned(MANIFEST, branch, stored)  # deleted since it was read
    except OmnigraphError as error:
        return Cleaned(MANIFEST, branch, stored, failure=error.message)
    return Cleaned(MANIFEST, branch, stored, done.versions, done.bytes, done.files)


def abandoned_loads(graph: OpenGraph) -> list[str]:
    """The folders of loads that began so long ago that nobody can still be at work on them."""
    limit = graph.root.clock() / 1_000_000 - _LOAD_AGE
    names = graph.root.objects.list_folders(graph.root.layout.staging)
    return sorted(name for name in names if _begun(name) < limit)


def _begun(load: str) -> float:
    """When a load began, in seconds since 1970; never, for a folder that is none of ours."""
    try:
        return ULID.from_str(load).timestamp
    except ValueError:
        return math.inf


def _discard_partial(graph: OpenGraph) -> None:
    layout = graph.root.layout
    for folder in (layout.root, layout.recovery, layout.past_schemas, layout.derived):
        graph.root.objects.discard_partial(folder, _PARTIAL_AGE)
