"""Bringing graphs of older forms to the current one, one form at a time.

Main is migrated when a graph is opened for writing, any other branch at its first publish. Each step does
its work first and writes the stamp last, and finds out for itself how much is done: a crash, or another
process at the same work, changes nothing about the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from omnigraph import failpoints
from omnigraph.engine.coordinator import all_records, open_manifest
from omnigraph.engine.legacy import legacy_lineage
from omnigraph.engine.manifest import KEY, MAIN, STAMP, encode
from omnigraph.engine.root import Root
from omnigraph.engine.stamp import (
    CURRENT,
    checked_stamp,
    is_current,
    read_stamp,
    require_every_step,
    supported_forms,
)
from omnigraph.errors import PublishContention, StorageFailure, UnsupportedFormat
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.locks import Held
from omnigraph.storage.references import Fork
from omnigraph.storage.staging import Staged, commit_staged, stage_primary_key, stage_schema_metadata
from omnigraph.storage.tables import Table

ATTEMPTS = 5
RUN_PREFIX = "__run__"
"""Branches on which releases before format 3 prepared their writes."""

_LOST_RACES = frozenset({Trouble.CONTENTION, Trouble.CONFLICT, Trouble.MOVED, Trouble.DISPLACED})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """The branch being migrated, and the lock on it where the caller could hand it over."""

    root: Root
    branch: str
    held: Held | None

    def reopened(self) -> Table:
        return open_manifest(self.root, self.branch)

    def before_effect(self) -> None:
        if self.held is not None:
            self.held.require()


def migrate_main(root: Root) -> None:
    """Bring main's manifest to the current form; takes main's lock only when there is something to do."""
    if not is_current(open_manifest(root, MAIN)):
        with root.locks.hold([MAIN]) as held:
            current_manifest(root, MAIN, held)


def current_manifest(root: Root, branch: str, held: Held, newest: Table | None = None) -> Table:
    """The newest version of a branch's manifest, in the current form; `held` has the branch's lock.

    A new branch must start from it: the commits an older form keeps elsewhere are found by the branch's
    name, and there may be some of a deleted branch that had the same one. `newest` is the manifest where the
    caller has just asked for it.
    """
    try:
        return migrate_branch(root, branch, newest or open_manifest(root, branch), held)
    except StorageFailure as lost:
        if lost.kind != Trouble.CONTENTION:
            raise
        raise PublishContention(branch, ATTEMPTS) from lost


def migrate_branch(root: Root, branch: str, table: Table, held: Held | None = None) -> Table:
    """Bring one branch's manifest to the current form; callers hold the branch lock.

    Fails with `Contention` when others were faster too often; then nothing is lost, and a second attempt
    goes on where this one ended.
    """
    work = _Work(root, branch, held)
    while (found := checked_stamp(table)) < CURRENT:
        table = _stamped(work, _STEPS[found](work, table), found + 1)
    return table


# --- the steps -----------------------------------------------------------------------------------


def _mark_key(work: _Work, table: Table) -> Table:
    """1 to 2: the manifest knows its key, so that two writers of one row notice each other."""

    def marked(found: Table) -> bool:
        if found.primary_key not in ((), (KEY,)):
            raise UnsupportedFormat(
                f"the manifest of branch '{work.branch}' has the key {', '.join(found.primary_key)} "
                f"instead of {KEY}",
                found=read_stamp(found),
                supported=supported_forms(),
                remedy="restore the manifest from a backup",
            )
        return found.primary_key == (KEY,)

    return _committed(work, table, marked, lambda found: stage_primary_key(found, KEY))


def _sweep_runs(work: _Work, table: Table) -> Table:
    """2 to 3: no branches are left on which older releases prepared their writes.

    Main comes before every other branch, so once is enough: later, such a name is a user's own.
    """
    if work.branch == MAIN:
        runs = [fork for fork in _forks(work).values() if fork.name.startswith(RUN_PREFIX)]
        # A fork has one more entry in its identity than the one it was made from: children go first.
        for fork in sorted(runs, key=lambda run: (-len(run.identity), run.name)):
            work.before_effect()
            _delete(work.root, fork.name)
    return table


def _copy_lineage(work: _Work, table: Table) -> Table:
    """3 to 4: the commits are in the manifest itself, all of them or none."""
    for _ in range(ATTEMPTS):
        if all_records(table).commits:
            return table
        lineage = legacy_lineage(work.root, work.branch)
        if not lineage.commits:
            return table
        work.before_effect()
        try:
            return merge_rows(table, encode(lineage, {}), KEY).table.settled(table)
        except StorageFailure as lost:
            if lost.kind != Trouble.CONTENTION:
                raise
        table = work.reopened()
    raise _too_busy(table)


_STEPS: Mapping[int, Callable[[_Work, Table], Table]] = {1: _mark_key, 2: _sweep_runs, 3: _copy_lineage}
"""Each by the form it starts from."""

require_every_step(_STEPS)


# --- what they are made of -----------------------------------------------------------------------


def _stamped(work: _Work, table: Table, stamp: int) -> Table:
    def stage(found: Table) -> Staged:
        if stamp == CURRENT:
            failpoints.reach(failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE)
        return stage_schema_metadata(found, {STAMP: str(stamp)})

    return _committed(work, table, lambda found: read_stamp(found) >= stamp, stage)


def _committed(
    work: _Work, table: Table, done: Callable[[Table], bool], stage: Callable[[Table], Staged]
) -> Table:
    """The table once it is as wanted, by this commit or by another runner's."""
    for _ in range(ATTEMPTS):
        if done(table):
            return table
        work.before_effect()
        try:
            return commit_staged(stage(table))
        except StorageFailure as lost:
            table = work.reopened()
            if lost.kind not in _LOST_RACES and not done(table):
                raise
    if done(table):
        return table
    raise _too_busy(table)


def _forks(work: _Work) -> dict[str, Fork]:
    for _ in range(ATTEMPTS - 1):
        try:
            return work.root.forks.list(work.root.layout.manifest)
        except StorageFailure as vanished:
            # Another runner removed a branch between its name and its description.
            if vanished.kind not in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
                raise
    return work.root.forks.list(work.root.layout.manifest)


def _delete(root: Root, name: str) -> None:
    manifest = root.layout.manifest
    try:
        root.forks.delete(manifest, name)
    except StorageFailure as refused:
        if refused.kind == Trouble.IN_USE:
            _log.warning("branch '%s' stays: another branch was made from it", name)
        elif root.forks.find(manifest, name) is not None:
            raise


def _too_busy(table: Table) -> StorageFailure:
    return failure(Trouble.CONTENTION, "migrate", table.uri, f"{ATTEMPTS} attempts lost the race")
