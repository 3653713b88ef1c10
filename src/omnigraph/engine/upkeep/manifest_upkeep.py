"""Keeping the manifest cheap, so that the thousandth commit costs what the tenth did.

Every publish adds a fragment, which makes reading the manifest slower, and a version, which makes finding
the newest one slower. Fragments are compacted. Old versions are collected: a row remembers the version that
made it, so the past is read from the newest version and no reader needs an old one.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from omnigraph.engine.graph.coordinator import Coordinator, LoadedBranch
from omnigraph.engine.graph.publish import Publication
from omnigraph.engine.upkeep.table_rewrite import find_newest_run
from omnigraph.errors import BadRequest, OmnigraphError, StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import (
    NOTHING,
    CollectionResult,
    collect_run,
    collect_versions,
    compact,
    preview_collection,
    split_into_runs,
    stage_barrier,
)

FRAGMENT_LIMIT = 16
"""Every publish adds a fragment, and reading the manifest costs as much as there are fragments."""
COLLECTED_AT_ONCE = 256
"""So many old versions are worth being collected; finding the newest of a few hundred costs nothing."""
IN_ONE_WRITE, WRITES_APART = 8, 4
"""In a folder so many are removed by one write, which costs about half of what the write itself does, and
then by none of the next few: still more than are made meanwhile, so that those out of date become fewer.
"""
AT_FIRST = 64
"""What the write removes that finds them, which has compacted everything anyway. Where each write is a
process of its own there is no next one to go on, so this must be more than came since the last such write.
"""
MOST_STORED = 8_192
"""In a bucket collecting reads all that are stored: of more than these it takes longer than a write may."""

SETTING = "OMNIGRAPH_CLEANUP_MIN_AGE"
_DEFAULT_AGE = "600"

_log = logging.getLogger(__name__)


def minimum_age() -> float:
    """For how many seconds a version has to be out of date before it goes: `OMNIGRAPH_CLEANUP_MIN_AGE`."""
    text = os.environ.get(SETTING, _DEFAULT_AGE)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadRequest(f"{SETTING} is '{text}'", remedy="set it to a number of seconds from 0 on")
    return seconds


def run_manifest_upkeep(coordinator: Coordinator, published: Publication) -> None:
    """What a publish may do for the manifest; callers hold the branch lock.

    The publish itself shows how many fragments there are: in most cases nothing more is asked.
    """
    table = published.loaded.table
    if table.fragment_count > FRAGMENT_LIMIT:
        compact_manifest(coordinator)
    elif coordinator.collection_runs and table.fragment_count % WRITES_APART == 0:
        with _log_failures(coordinator.branch):
            _collect_next_run(coordinator, table)


@contextmanager
def _log_failures(branch: str) -> Iterator[None]:
    """Log a failed collection instead of raising it: a later publish tries again."""
    try:
        yield
    except OmnigraphError as failure:
        _log.warning("old versions of the manifest of branch '%s' were not collected: %s", branch, failure)


def compact_manifest(coordinator: Coordinator, *, thorough: bool = False) -> bool:
    """Compact a branch's manifest once it has many fragments, and collect its old versions if these are many.

    Callers hold the branch lock. Rows, their ids and the versions that made them stay. A failure is
    logged: the next publish tries again. `thorough` does not wait for many.
    """
    try:
        loaded = coordinator.load()
        if loaded.table.fragment_count <= (1 if thorough else FRAGMENT_LIMIT):
            return False
        table = compact(loaded.table, only=None if thorough else _newest_fragments(loaded.table)).table
    except OmnigraphError as failure:
        _log.warning("the manifest of branch '%s' was not compacted: %s", coordinator.branch, failure)
        return False
    with _log_failures(coordinator.branch):
        _collect(coordinator, loaded, table, thorough=thorough)
    return True


def collect_manifest(coordinator: Coordinator, *, dry_run: bool = False) -> CollectionResult:
    """Collect the old versions of a branch's manifest however few they are; callers hold the branch lock.

    A dry run returns what that would remove, and needs no lock.
    """
    loaded = coordinator.load()
    table = loaded.table
    limit = _out_of_date(coordinator, loaded)
    old = [version for version in table.versions() if version < limit] if table.has_stable_row_ids else []
    old = _without_fork_points(coordinator, loaded, old) if old else []
    if dry_run or not old:
        return preview_collection(table, old)
    return _collect(coordinator, loaded, table, thorough=True)


def _collect(
    coordinator: Coordinator, loaded: LoadedBranch, table: Table, *, thorough: bool
) -> CollectionResult:
    """Collect the versions that have been out of date for long enough, after a compaction of everything.

    A publisher may have been asleep since before that, its lease lost. What it still writes must run into
    something that is stored: a publish into the barrier, a compaction into the fragments that this one,
    which leaves none of them, took away.
    """
    if not table.has_stable_row_ids:
        return NOTHING
    if coordinator.collection_runs and not thorough:
        return NOTHING  # other writes are at it
    limit = _out_of_date(coordinator, loaded)
    if not thorough and limit < max(COLLECTED_AT_ONCE, coordinator.collect_above):
        return NOTHING
    stored = table.versions()
    enough = 1 if thorough else _min_old_versions(table, stored)
    old = [version for version in stored if version < limit]
    if len(old) >= enough:
        old = _without_fork_points(coordinator, loaded, old)
    if len(old) < enough:
        # A listing costs as much as is stored: the next one waits until enough can be out of date.
        missing = COLLECTED_AT_ONCE if _are_too_many(table, stored) else enough - len(old)
        coordinator.collect_above = limit + missing
        return NOTHING
    table = compact(table).table
    if table.fragment_count != 1:
        return NOTHING
    table = commit_staged(stage_barrier(table))
    coordinator.collection_runs.clear()
    coordinator.collect_above = limit + COLLECTED_AT_ONCE
    if thorough or not table.location.is_local:
        return collect_versions(table, old)
    coordinator.collection_runs.extend(split_into_runs(stored, old, AT_FIRST, IN_ONE_WRITE))
    return _collect_next_run(coordinator, table)


def _collect_next_run(coordinator: Coordinator, table: Table) -> CollectionResult:
    """Remove the oldest of the versions that were found: all of them are below a barrier."""
    try:
        run = coordinator.collection_runs.popleft()
    except IndexError:
        return NOTHING  # a reader found another graph in the place of this one
    try:
        return collect_run(table, run)
    except StorageFailure as failure:
        # The others are listed again later.
        coordinator.collection_runs.clear()
        if failure.kind not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
            raise
        return NOTHING  # another process removed them


def _newest_fragments(table: Table) -> frozenset[int]:
    """The fragments to be put together after a publish: what came lately, seldom what was there before."""
    pieces = list_fragments(table)
    chosen = find_newest_run([one.rows for one in pieces], FRAGMENT_LIMIT // 2)
    return frozenset(pieces[at].id for at in chosen)


def _min_old_versions(table: Table, stored: Sequence[int]) -> int:
    """How many old versions must be there: to look for them costs as much as there are stored."""
    return len(stored) if _are_too_many(table, stored) else max(COLLECTED_AT_ONCE, len(stored) // 4)


def _are_too_many(table: Table, stored: Sequence[int]) -> bool:
    return len(stored) > MOST_STORED and not table.location.is_local


def _out_of_date(coordinator: Coordinator, loaded: LoadedBranch) -> int:
    """All versions below this one were replaced by commits long ago: how old they are does not matter."""
    moment = coordinator.root.clock() - int(minimum_age() * 1_000_000)
    replaced = (commit.version for commit in loaded.state.commits.values() if commit.created_at <= moment)
    return min(max(replaced, default=0), loaded.state.version)


def _without_fork_points(coordinator: Coordinator, loaded: LoadedBranch, old: list[int]) -> list[int]:
    """Those that no branch stands on."""
    root, here = coordinator.root, loaded.table.branch
    forks = root.forks.list(root.layout.manifest).values()
    needed = {fork.parent_version for fork in forks if fork.parent == here}
    return [version for version in old if version not in needed]
