"""Migrate graphs of older formats to the current one, one format at a time.

Main is migrated when a graph is opened for writing, any other branch at its first publish. Each step is
idempotent and writes the stamp last: a crash, or another process doing the same, does not change the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import open_manifest, read_all_records
from omnigraph.engine.graph.format_stamp import (
    CURRENT,
    is_current,
    read_stamp,
    require_every_step,
    require_supported_stamp,
    supported_formats,
)
from omnigraph.engine.graph.legacy_commits import read_legacy_commits
from omnigraph.engine.graph.manifest import KEY, MAIN, STAMP, encode
from omnigraph.engine.graph.root import Root
from omnigraph.errors import PublishContention, StorageFailure, UnsupportedFormat
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import Staged, commit_staged, stage_primary_key, stage_schema_metadata
from omnigraph.storage.tables import Table

ATTEMPTS = 5
RUN_PREFIX = "__run__"
"""Branches on which releases before format 3 prepared their writes."""

_LOST_RACES = frozenset(
    {
        TableFailureKind.CONTENTION,
        TableFailureKind.CONFLICT,
        TableFailureKind.MOVED,
        TableFailureKind.DISPLACED,
    }
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Migration:
    """The branch being migrated, and its lock if the caller passed it."""

    root: Root
    branch: str
    held: HeldLocks | None

    def reopen(self) -> Table:
        return open_manifest(self.root, self.branch)

    def before_effect(self) -> None:
        if self.held is not None:
            self.held.require()


def migrate_main(root: Root) -> None:
    """Migrate main's manifest to the current format; takes main's lock only when needed."""
    if not is_current(open_manifest(root, MAIN)):
        with root.locks.hold([MAIN]) as held:
            open_current_manifest(root, MAIN, held)


def open_current_manifest(root: Root, branch: str, held: HeldLocks, newest: Table | None = None) -> Table:
    """Open the newest version of a branch's manifest, migrated; `held` has the branch's lock.

    A new branch must start from it: older formats keep commits elsewhere, by branch name, and some may be of
    a deleted branch of the same name. `newest` is the manifest, if the caller just opened it.
    """
    try:
        return migrate_branch(root, branch, newest or open_manifest(root, branch), held)
    except StorageFailure as lost:
        if lost.kind != TableFailureKind.CONTENTION:
            raise
        raise PublishContention(branch, ATTEMPTS) from lost


def migrate_branch(root: Root, branch: str, table: Table, held: HeldLocks | None = None) -> Table:
    """Migrate one branch's manifest to the current format; callers hold the branch lock.

    Fails with `Contention` after too many lost races; a second attempt continues where this one ended.
    """
    work = _Migration(root, branch, held)
    if branch != MAIN and not is_current(table) and not read_all_records(table).commits:
        read_legacy_commits(root, branch)  # commits that cannot be carried over fail before the first stamp
    while (found := require_supported_stamp(table)) < CURRENT:
        table = _write_stamp(work, _STEPS[found](work, table), found + 1)
    return table


# --- the steps -----------------------------------------------------------------------------------


def _mark_key(work: _Migration, table: Table) -> Table:
    """1 to 2: declare the manifest's key, so that two writers of one row conflict."""

    def marked(found: Table) -> bool:
        if found.primary_key not in ((), (KEY,)):
            raise UnsupportedFormat(
                f"the manifest of branch '{work.branch}' has the key {', '.join(found.primary_key)} "
                f"instead of {KEY}",
                found=read_stamp(found),
                supported=supported_formats(),
                remedy="restore the manifest from a backup",
            )
        return found.primary_key == (KEY,)

    return _commit_until_done(work, table, marked, lambda found: stage_primary_key(found, KEY))


def _sweep_runs(work: _Migration, table: Table) -> Table:
    """2 to 3: delete the branches on which older releases prepared their writes.

    Main is migrated before every other branch, so once is enough: later, such a name is a user's own.
    """
    if work.branch == MAIN:
        forks = work.root.forks.list(work.root.layout.manifest).values()
        runs = [fork for fork in forks if fork.name.startswith(RUN_PREFIX)]
        # A fork has one more entry in its identity than the one it was made from: children go first.
        for fork in sorted(runs, key=lambda run: (-len(run.identity), run.name)):
            work.before_effect()
            _delete(work, fork.name)
    return table


def _copy_lineage(work: _Migration, table: Table) -> Table:
    """3 to 4: copy the commits into the manifest, all of them or none."""
    for _ in range(ATTEMPTS):
        if read_all_records(table).commits:
            return table
        lineage = read_legacy_commits(work.root, work.branch)
        if not lineage.commits:
            return table
        work.before_effect()
        try:
            return merge_rows(table, encode(lineage, {}), KEY).table.make_durable(table)
        except StorageFailure as lost:
            if lost.kind != TableFailureKind.CONTENTION:
                raise
        table = work.reopen()
    raise _contention(table)


_STEPS: Mapping[int, Callable[[_Migration, Table], Table]] = {1: _mark_key, 2: _sweep_runs, 3: _copy_lineage}
"""By the format each starts from."""

require_every_step(_STEPS)


# --- helpers -------------------------------------------------------------------------------------


def _write_stamp(work: _Migration, table: Table, stamp: int) -> Table:
    def stage(found: Table) -> Staged:
        if stamp == CURRENT:
            failpoints.reach(failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE)
        return stage_schema_metadata(found, {STAMP: str(stamp)})

    return _commit_until_done(work, table, lambda found: read_stamp(found) >= stamp, stage)


def _commit_until_done(
    work: _Migration, table: Table, done: Callable[[Table], bool], stage: Callable[[Table], Staged]
) -> Table:
    """Commit until `done` holds, by this process or another; returns the table."""
    for _ in range(ATTEMPTS):
        if done(table):
            return table
        work.before_effect()
        try:
            return commit_staged(stage(table))
        except StorageFailure as lost:
            table = work.reopen()
            if lost.kind not in _LOST_RACES and not done(table):
                raise
    if done(table):
        return table
    raise _contention(table)


def _delete(work: _Migration, name: str) -> None:
    root, manifest = work.root, work.root.layout.manifest
    try:
        root.forks.delete(manifest, name, work.held)
    except StorageFailure as refused:
        if refused.kind == TableFailureKind.IN_USE:
            _log.warning("branch '%s' stays: another branch was made from it", name)
        elif root.forks.find(manifest, name) is not None:
            raise


def _contention(table: Table) -> StorageFailure:
    return table_failure(
        TableFailureKind.CONTENTION, "migrate", table.uri, f"{ATTEMPTS} attempts lost the race"
    )
