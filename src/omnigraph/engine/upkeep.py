"""Keeping the manifest cheap, so that the thousandth commit costs what the tenth did.

Every publish adds a fragment, which makes writes dearer, and a version, which makes looking for the newest
one dearer. Fragments are put together. Old versions are collected: a row remembers the version that made
it, so the past is read from the newest version and nobody comes back to an old one.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping

from omnigraph.engine.coordinator import Coordinator, Loaded
from omnigraph.engine.publish import Changes, ExactHead, Lineage, Publication, publish
from omnigraph.engine.tiers import latest
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.storage.fragments import fragments
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import (
    NOTHING,
    Collected,
    collect_versions,
    compact,
    preview_collection,
    stage_barrier,
)

FRAGMENT_LIMIT = 16
"""Every publish adds a fragment, and a write costs as much as there are fragments."""
COLLECTED_AT_ONCE = 256
"""So many old versions are worth being collected; finding the newest of a few hundred costs nothing."""
MOST_STORED = 8_192
"""Collecting reads all versions that are stored: of more than these it takes longer than a write may."""

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


def compact_manifest(coordinator: Coordinator, *, thorough: bool = False) -> bool:
    """Compact a branch's manifest once it has many fragments, and collect its old versions if these are many.

    Callers hold the branch lock. Rows, their ids and the versions that made them stay. A failure is no news
    for whoever published just before: the next publish tries again. `thorough` does not wait for many.
    """
    try:
        loaded = coordinator.load()
        if loaded.table.fragment_count <= (1 if thorough else FRAGMENT_LIMIT):
            return False
        table = compact(loaded.table, only=None if thorough else _latest(loaded.table)).table
    except OmnigraphError as failure:
        _log.warning("the manifest of branch '%s' was not compacted: %s", coordinator.branch, failure)
        return False
    try:
        _collect(coordinator, loaded, table, thorough=thorough)
    except OmnigraphError as failure:
        _log.warning(
            "old versions of the manifest of branch '%s' were not collected: %s", coordinator.branch, failure
        )
    return True


def collect_manifest(coordinator: Coordinator, *, dry_run: bool = False) -> Collected:
    """Collect the old versions of a branch's manifest however few they are; callers hold the branch lock.

    A dry run tells what that would remove, and needs no lock.
    """
    loaded = coordinator.load()
    table = loaded.table
    limit = _out_of_date(coordinator, loaded)
    old = [version for version in table.versions() if version < limit] if table.has_stable_row_ids else []
    old = _free(coordinator, loaded, old) if old else []
    if dry_run or not old:
        return preview_collection(table, old)
    return _collect(coordinator, loaded, table, thorough=True)


def _collect(coordinator: Coordinator, loaded: Loaded, table: Table, *, thorough: bool) -> Collected:
    """Collect the versions that have been out of date for long enough, after a compaction of everything.

    A publisher may have been asleep since before that, its lease lost. What it still writes must run into
    something that is stored: a publish into the barrier, a compaction into the fragments that this one,
    which leaves none of them, took away.
    """
    if not table.has_stable_row_ids:
        return NOTHING
    limit = _out_of_date(coordinator, loaded)
    if not thorough and limit < max(COLLECTED_AT_ONCE, coordinator.worth_collecting):
        return NOTHING
    stored = table.versions()
    enough = 1 if thorough else _enough(len(stored))
    old = [version for version in stored if version < limit]
    if len(old) >= enough:
        old = _free(coordinator, loaded, old)
    if len(old) < enough:
        # A listing costs as much as is stored: the next one waits until enough can be out of date.
        missing = COLLECTED_AT_ONCE if len(stored) > MOST_STORED else enough - len(old)
        coordinator.worth_collecting = limit + missing
        return NOTHING
    table = compact(table).table
    if table.fragment_count != 1:
        return NOTHING
    return collect_versions(commit_staged(stage_barrier(table)), old)


def _latest(table: Table) -> frozenset[int]:
    """The fragments to be put together after a publish: what came lately, seldom what was there before."""
    pieces = fragments(table)
    chosen = latest([one.rows for one in pieces], FRAGMENT_LIMIT // 2)
    return frozenset(pieces[at].id for at in chosen)


def _enough(stored: int) -> int:
    """How many old versions must be there. All that are stored are read, so what one costs has a limit."""
    return stored if stored > MOST_STORED else max(COLLECTED_AT_ONCE, stored // 4)


def _out_of_date(coordinator: Coordinator, loaded: Loaded) -> int:
    """All versions below this one were replaced by commits long ago: how old they are does not matter."""
    moment = coordinator.root.clock() - int(minimum_age() * 1_000_000)
    replaced = (commit.version for commit in loaded.state.commits.values() if commit.created_at <= moment)
    return min(max(replaced, default=0), loaded.state.version)


def _free(coordinator: Coordinator, loaded: Loaded, old: list[int]) -> list[int]:
    """Those that no branch stands on."""
    root, here = coordinator.root, loaded.table.branch
    forks = root.forks.list(root.layout.manifest).values()
    needed = {fork.parent_version for fork in forks if fork.parent == here}
    return [version for version in old if version not in needed]


def publish_and_tidy(
    coordinator: Coordinator,
    held: Held,
    changes: Changes,
    lineage: Lineage,
    *,
    expected: Mapping[str, int] | None = None,
    precondition: ExactHead | None = None,
) -> Publication:
    """Publish under the branch lock that is held, then compact the manifest where that is due."""
    held.require()
    done = publish(coordinator, changes, lineage, expected=expected, precondition=precondition)
    # The publish itself shows how many fragments there are: in most cases nothing more is asked.
    if done.loaded.table.fragment_count > FRAGMENT_LIMIT and held.still_held():
        compact_manifest(coordinator)
    return done
