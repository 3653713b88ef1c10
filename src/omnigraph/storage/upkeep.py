"""Keep a table cheap: compact its fragments, and collect versions that are no longer needed.

Lance's own removal leaves a file that is younger than the versions that stay, since it may belong to a change
under way. After a copy all files look young. Where rows must go, the files are removed by name.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from pathlib import Path
from typing import Any

from lance import LanceOperation
from lance.optimize import Compaction, CompactionOptions, CompactionTask, RewriteResult

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.durability import require_complete_files
from omnigraph.storage.failures import LANCE_RAISES, TableFailureKind, classify_lance_error
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.index_files import find_misplaced_indexes
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.staging import Staged, build_transaction, commit_staged
from omnigraph.storage.tables import Table, checkout_newest
from omnigraph.storage.version_files import data_file_name, version_files

TARGET_ROWS = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Which fragments of a table a compaction would merge."""

    table: Table
    tasks: tuple[Any, ...] = field(repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.tasks

    @property
    def fragments(self) -> frozenset[int]:
        """The fragments that would be replaced."""
        return frozenset(int(one.id) for task in self.tasks for one in task.fragments)


@dataclass(frozen=True, slots=True)
class RewrittenFragments:
    """New files that hold the rows of old fragments; the table itself has not moved."""

    table: Table
    results: tuple[Any, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The table after a compaction and how many fragments it took away and added."""

    table: Table
    fragments_removed: int
    fragments_added: int


@dataclass(frozen=True, slots=True)
class CollectionResult:
    """What a version cleanup removed."""

    versions: int
    bytes: int
    files: int
    failed: int = 0
    """Files that could not be removed."""


NOTHING = CollectionResult(0, 0, 0)


def plan_compaction(
    table: Table, *, target_rows: int = TARGET_ROWS, only: Collection[int] | None = None
) -> CompactionPlan:
    """What a compaction would do, of these fragments or of all; reads nothing but the table's description.

    Only neighbours are put together, and only those that the same indexes cover.
    """
    with table.access.call("plan_compaction", table.uri):
        left_out = [] if only is None else [one.id for one in list_fragments(table) if one.id not in only]
        plan = Compaction.plan(table.native, _compaction_options(target_rows, left_out))
        return CompactionPlan(table, tuple(plan.tasks))


def rewrite_fragments(plan: CompactionPlan) -> RewrittenFragments:
    """Write the new files of a plan; no lock is needed, the table does not move."""
    table = plan.table
    results = []
    for task in plan.tasks:
        with table.access.call("rewrite", table.uri):
            result = task.execute(table.native)
            require_complete_files("rewrite", table.location, table.uri, result)
        results.append(result)
    return RewrittenFragments(table, tuple(results))


def commit_compaction(rewritten: RewrittenFragments) -> CompactionResult:
    """Put the new files in place: the table moves by two versions and keeps rows, row ids and indexes.

    A fork moves by one more when a B-tree that it inherited became its own. Fails with `Conflict` when a
    commit touched those fragments since; even then the table has moved by one version, with the rows it had.
    """
    table = rewritten.table
    table.before_commit()
    with table.access.call("commit_compaction", table.uri):
        native = copy.copy(table.native)
        metrics = Compaction.commit(native, list(rewritten.results))
        moved = table.with_handle(checkout_newest(native))
    moved = _stage_index_repair(moved.make_durable(table))
    return CompactionResult(moved, metrics.fragments_removed, metrics.fragments_added)


def _stage_index_repair(table: Table) -> Table:
    astray = None if table.branch is None else find_misplaced_indexes(table)
    return table if astray is None else commit_staged(astray.stage_repair())


def compact(
    table: Table, *, target_rows: int = TARGET_ROWS, only: Collection[int] | None = None
) -> CompactionResult:
    """Plan, rewrite and commit in one go; nothing to do leaves the table where it is."""
    plan = plan_compaction(table, target_rows=target_rows, only=only)
    if plan.is_empty:
        return CompactionResult(table, 0, 0)
    return commit_compaction(rewrite_fragments(plan))


def stage_barrier(table: Table) -> Staged:
    """Stage an empty change that conflicts with every change of rows staged before it, and they with it.

    Lance looks for conflicts in the versions since the one a change was prepared on, as far as these are
    stored. Of two swaps of a row the later one goes unnoticed, and both rows stay, once the versions between
    them are collected; unless it meets a barrier.
    """
    return Staged(table, build_transaction(table, LanceOperation.Project(table.native.lance_schema)))


def collect_versions(table: Table, versions: Sequence[int]) -> CollectionResult:
    """Remove exactly these versions and the files only they need; it reads every version that is stored.

    The newest version and what a fork stands on stay. Files no version names yet stay too: they may
    belong to a change that is staged and not committed. Only after seven days they count as left behind, and
    go with whatever else goes; to remove these alone, name the newest version. Writers that may
    still write on one of these versions have to be kept out first, see `stage_barrier`.
    """
    if not versions:
        return NOTHING
    with table.access.call("collect", table.uri):
        done = copy.copy(table.native).cleanup_old_versions(
            versions=sorted(versions), delete_unverified=False, error_if_tagged_old_versions=False
        )
    return _to_result(done)


def preview_collection(table: Table, versions: Sequence[int]) -> CollectionResult:
    """Return what `collect_versions` would remove; it reads as much and removes nothing."""
    if not versions:
        return NOTHING
    with table.access.call("preview_collection", table.uri):
        done = copy.copy(table.native).explain_cleanup_old_versions(
            versions=sorted(versions), delete_unverified=False, error_if_tagged_old_versions=False
        )
    return _to_result(done.stats)


def _to_result(done: Any) -> CollectionResult:
    files = done.data_files_removed + done.deletion_files_removed + done.index_files_removed
    files += done.transaction_files_removed
    return CollectionResult(done.old_versions, done.bytes_removed, files, done.failed_deletes)


def _compaction_options(target_rows: int, left_out: Sequence[int]) -> CompactionOptions:
    return CompactionOptions(
        target_rows_per_fragment=target_rows, excluded_fragment_ids=list(left_out) or None
    )


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Consecutive versions to be removed, and their neighbours on either side."""

    below: int | None
    versions: tuple[int, ...]
    above: int


def split_into_runs(
    stored: Sequence[int], old: Collection[int], first: int, most: int
) -> Iterator[VersionRun]:
    """Yield the old versions in runs of at most `most`, oldest first; the newest version is never in one.

    `first` is the size of the first run, which may be larger.
    """
    doomed = set(old) - {stored[-1]} if stored else set()
    below = None
    for goes, group in groupby(range(len(stored)), key=lambda at: stored[at] in doomed):
        places = list(group)
        if not goes:
            below = stored[places[-1]]
            continue
        while places:
            chosen, places = places[:first], places[first:]
            yield VersionRun(below, tuple(stored[at] for at in chosen), stored[chosen[-1] + 1])
            first = most


def collect_run(table: Table, run: VersionRun) -> CollectionResult:
    """Remove exactly these versions and the files that only they name; the table is in a folder.

    Fails with `NotFound` when another process removed some of them. Writers that may still build on one of
    them must be kept out first, see `stage_barrier`.
    """
    own = Path(table.uri)
    with table.access.call("collect", table.uri):
        neighbours = [version for version in (run.below, run.above) if version is not None]
        needed = {file for version in neighbours for file in _list_files(_checkout_version(table, version))}
        doomed = {version: _checkout_version(table, version) for version in run.versions}
        files = {file for native in doomed.values() for file in _list_files(native)} - needed
        # Files first: as long as a version is stored, the run after an interruption finds its files by it.
        freed = [_remove_file(own / file) for file in sorted(files)]
        for version, native in doomed.items():
            transaction = _transaction_files(native)
            freed += [_remove_file(own / file) for file in (*transaction, *version_files(version))]
    return CollectionResult(len(doomed), sum(freed), sum(map(bool, freed)) - len(doomed))


def _checkout_version(table: Table, version: int) -> Any:
    # A handle is locked while it reads, and this one is shared: use a copy.
    return copy.copy(table.native).checkout_version(version)


def _list_files(native: Any) -> Iterator[str]:
    """Yield the data and deletion files that a version names as its table's own."""
    for fragment in native.get_fragments():
        stored = fragment.metadata
        yield from (f"data/{data_file_name(file)}" for file in stored.files if file.base_id is None)
        deleted = stored.deletion_file
        if deleted is not None and deleted.base_id is None:
            yield deleted.path(stored.id)


def _transaction_files(native: Any) -> Iterator[str]:
    try:
        made = native.read_transaction(native.version)
    except LANCE_RAISES as error:
        if classify_lance_error(error) not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
            raise
        return  # it was removed before its version, which is too old to name it
    if made is not None:
        yield f"_transactions/{made.read_version}-{made.uuid}.txn"


def _remove_file(file: Path) -> int:
    """Remove a file and return how many bytes that freed; 0 where there was none."""
    try:
        size = os.stat(file).st_size  # noqa: PTH116
        os.unlink(file)  # noqa: PTH108
    except FileNotFoundError:
        return 0
    return size


# Declared in the documentation of Lance only.
_task: Callable[[str], Any] = CompactionTask.from_json  # type: ignore[attr-defined]
_result: Callable[[str], Any] = RewriteResult.from_json  # type: ignore[attr-defined]


def pack_tasks(plan: CompactionPlan) -> list[str]:
    """Return the tasks of a plan as JSON, each for a process that has the same version of the table open."""
    return [task.json() for task in plan.tasks]


def rewrite_part(table: Table, packed: str) -> str:
    """Write the new files of one part; the table does not move."""
    with table.access.call("rewrite", table.uri):
        result = _task(packed).execute(table.native)
        require_complete_files("rewrite", table.location, table.uri, result)
    return str(result.json())


def unpack_results(plan: CompactionPlan, packed: Iterable[str]) -> RewrittenFragments:
    """What all parts wrote, to be put in place at once."""
    return RewrittenFragments(plan.table, tuple(_result(one) for one in packed))


def list_referenced_files(table: Table, version: int) -> frozenset[str]:
    """The files with rows, and with deleted rows, that a version reads; relative to the table itself."""
    with table.access.call("read_version", table.uri):
        # While it reads, no other thread can use the handle, and others share this one.
        native = copy.copy(table.native).checkout_version(version)
        return frozenset(_list_needed(native, table.branch))


def collect_with_files(objects: ObjectStore, table: Table, versions: Collection[int]) -> CollectionResult:
    """Remove versions of main with all files that only they need, however young; forks keep theirs.

    Files go first: as long as a version is stored, the next run of an interrupted removal finds them by it.
    """
    stay = set(table.versions()).difference(versions)
    doomed = _files_of(table, versions) - _files_of(table, stay)
    table.access.announce("collect", table.uri)
    for name in sorted(doomed):
        objects.delete(table.location / name)
        objects.delete_prefix(table.location / name.removesuffix(".lance"))
    return collect_versions(table, sorted(versions))


def _files_of(table: Table, versions: Iterable[int]) -> set[str]:
    return {name for version in versions for name in list_referenced_files(table, version)}


def _list_needed(native: Any, branch: str | None) -> Iterator[str]:
    folders = {base.id: _fork_folder(base.name) for base in native.base_paths().values()}
    own = _fork_folder(branch)
    for fragment in native.get_fragments():
        stored = fragment.metadata
        for file in stored.files:
            yield f"{own if file.base_id is None else folders[file.base_id]}data/{data_file_name(file)}"
        deleted = stored.deletion_file
        if deleted is not None:
            yield f"{own if deleted.base_id is None else folders[deleted.base_id]}{deleted.path(stored.id)}"


def _fork_folder(branch: str | None) -> str:
    return "" if branch is None else f"tree/{branch}/"
