"""Keeping a table cheap: fewer fragments, and no versions that nobody asks for any more."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lance.optimize import Compaction, CompactionOptions

from omnigraph.storage.tables import Table, newest
from omnigraph.storage.whole import require_whole

TARGET_ROWS = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Which fragments of a table would be put together."""

    table: Table
    tasks: tuple[Any, ...] = field(repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.tasks


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New files that hold the rows of old fragments; the table itself has not moved."""

    table: Table
    results: tuple[Any, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The table after a compaction and how many fragments it took away and added."""

    table: Table
    fragments_removed: int
    fragments_added: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What a version cleanup removed."""

    versions: int
    bytes: int
    files: int


def plan_compaction(table: Table, *, target_rows: int = TARGET_ROWS) -> CompactionPlan:
    """What a compaction would do; reads and writes nothing but the table's description."""
    with table.access.call("plan_compaction", table.uri):
        plan = Compaction.plan(table.native, _choices(target_rows))
        return CompactionPlan(table, tuple(plan.tasks))


def rewrite(plan: CompactionPlan) -> Rewritten:
    """Write the new files of a plan; no lock is needed, the table does not move."""
    table = plan.table
    results = []
    for task in plan.tasks:
        with table.access.call("rewrite", table.uri):
            result = task.execute(table.native)
            require_whole("rewrite", table.location, table.uri, result)
        results.append(result)
    return Rewritten(table, tuple(results))


def commit_compaction(rewritten: Rewritten) -> Compacted:
    """Put the new files in place: the table moves by two versions and keeps rows, row ids and indexes.

    Fails with `Conflict` when a commit touched those fragments since; even then the table has moved by one
    version, with the rows it had.
    """
    table = rewritten.table
    with table.access.call("commit_compaction", table.uri):
        native = copy.copy(table.native)
        metrics = Compaction.commit(native, list(rewritten.results))
        moved = table.moved(newest(native))
    return Compacted(moved.settled(table), metrics.fragments_removed, metrics.fragments_added)


def compact(table: Table, *, target_rows: int = TARGET_ROWS) -> Compacted:
    """Plan, rewrite and commit in one go; nothing to do leaves the table where it is."""
    plan = plan_compaction(table, target_rows=target_rows)
    if plan.is_empty:
        return Compacted(table, 0, 0)
    return commit_compaction(rewrite(plan))


def collect_versions(table: Table, versions: Sequence[int]) -> Collected:
    """Remove exactly these versions and the files only they need.

    The newest version and what a fork stands on stay. Files no version names yet stay too: they may
    belong to a change that is staged and not committed.
    """
    if not versions:
        return Collected(0, 0, 0)
    with table.access.call("collect", table.uri):
        done = copy.copy(table.native).cleanup_old_versions(
            versions=sorted(versions), delete_unverified=False, error_if_tagged_old_versions=False
        )
    files = done.data_files_removed + done.deletion_files_removed + done.index_files_removed
    return Collected(done.old_versions, done.bytes_removed, files + done.transaction_files_removed)


def _choices(target_rows: int) -> CompactionOptions:
    return CompactionOptions(target_rows_per_fragment=target_rows)
