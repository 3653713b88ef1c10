"""`optimize`: every table of a branch in few fragments and under complete indexes, in one commit.

New files are written before the branch's lock is taken, by this process or by tasks elsewhere; under it they
are put in place, and the indexes that need it are built over the result.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.plan import Effect, PhaseFailpoints
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.ensure_indexes import (
    find_missing_on_table,
    usable_indexes,
    write_skipping_drift,
)
from omnigraph.engine.tasks.runner import Runner, select_engine
from omnigraph.engine.upkeep.declared_indexes import declared_indexes
from omnigraph.engine.upkeep.index_catch_up import (
    LaggingIndex,
    TablePlace,
    build_parts_with,
    find_lagging_indexes,
    find_refusal,
)
from omnigraph.engine.upkeep.manifest_upkeep import compact_manifest
from omnigraph.engine.upkeep.table_rewrite import RewriteTable
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction
from omnigraph.errors import BadRequest, OmnigraphError, TableDrift
from omnigraph.progress import stage
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.index_files import find_misplaced_indexes
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.indexes import IndexCoverage, RefusedIndex
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import (
    CompactionPlan,
    RewrittenFragments,
    pack_tasks,
    plan_compaction,
    rewrite_fragments,
    rewrite_part,
    unpack_results,
)

SETTING = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
_PHASES = PhaseFailpoints(before_publish=failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table."""

    fragments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OptimizedTable:
    """What was done to one table."""

    key: str
    before: TableSize
    after: TableSize
    indexes: tuple[str, ...] = ()
    """The columns whose indexes were built."""
    pending: tuple[str, ...] = ()
    """Columns that have no value yet to build an index from."""
    refused: tuple[RefusedIndex, ...] = ()
    """Indexes that cannot be built from the values of their column; searches do without them."""
    fragments_removed: int = 0
    fragments_added: int = 0
    version: int = 0
    """The version that the branch shows."""
    head: int = 0
    """The newest version of the table."""
    skipped: str | None = None
    """Why it was skipped, if it was: the code of an error."""

    @property
    def moved(self) -> bool:
        """Whether anything was done."""
        return bool(self.indexes) or self.before != self.after


@dataclass(frozen=True, slots=True, repr=False)
class OptimizeResult:
    """What was done to a branch."""

    branch: str
    commit: Commit | None
    """None when nothing had to be done."""
    tables: tuple[OptimizedTable, ...]
    """The tables the branch has of its own, by key."""

    def __repr__(self) -> str:
        moved = sum(one.moved for one in self.tables)
        commit = "no commit" if self.commit is None else f"commit {self.commit.id}"
        return f"<OptimizeResult of '{self.branch}': {moved} of {len(self.tables)} tables moved, {commit}>"


@dataclass(frozen=True, slots=True)
class _TableWork:
    size: TableSize
    fragments: frozenset[int]
    effect: RewriteTable | None
    pending: tuple[str, ...]
    refused: list[RefusedIndex]
    """Known beforehand, and those that the effect adds."""

    @property
    def indexes(self) -> tuple[str, ...]:
        """The columns whose indexes were built."""
        left_out = {one.column for one in self.refused}
        columns = () if self.effect is None else self.effect.columns
        return tuple(column for column in columns if column not in left_out)


def optimize(graph: OpenGraph, author: Author, engine: str = "local") -> OptimizeResult:
    """Compact small fragments and complete the indexes; no row changes, and readers are not affected.

    Tables that a branch inherits are optimized on their own branch. With another `engine`, its tasks write
    the new files and build the indexes, one table after another.
    """
    graph.permissions.require_admin(author.actor)
    workers, executors = read_concurrency(), _Executors()
    if elsewhere := select_engine(engine, 0):
        workers, runner = 1, elsewhere.runner
        executors = _Executors(partial(_rewrite_by, runner), partial(build_parts_with, runner))

    upkeep = _Optimize(author.branch, workers, executors)
    receipt, skipped = write_skipping_drift(graph, author, upkeep)
    _compact_manifest(graph, author.branch)
    entries = graph.load(author.branch).state.entries()
    reports = {key: _report(graph, entries[key], work) for key, work in upkeep.found.items()}
    reports |= {key: _report_skipped(graph, entries[key], drift) for key, drift in skipped.items()}
    tables = tuple(reports[key] for key in sorted(reports))
    return OptimizeResult(author.branch, receipt.commit if receipt else None, tables)


class _Optimize:
    """What is to be done for each table of a branch, as of the last attempt."""

    def __init__(self, branch: str, workers: int, executors: _Executors) -> None:
        self._branch = branch
        self._workers = workers
        self._executors = executors
        self.found: dict[str, _TableWork] = {}
        self.skipped: dict[str, TableDrift] = {}

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        owned = [key for key in _owned_tables(transaction, self._branch) if key not in self.skipped]
        self.found = dict(_plan_tables(transaction, owned, self._workers, self._executors))
        effects: dict[str, Effect] = {key: work.effect for key, work in self.found.items() if work.effect}
        return PreparedWrite("Optimize", effects, strict=False, phases=_PHASES)


def _compact_manifest(graph: OpenGraph, branch: str) -> None:
    """Compact the manifest; a failure is only logged, because the tables are done."""
    try:
        with graph.root.locks.hold([branch]):
            compact_manifest(graph.coordinator(branch), thorough=True)
    except OmnigraphError as failure:
        _log.warning("the manifest of branch '%s' was not compacted: %s", branch, failure)


def read_concurrency() -> int:
    """Return how many tables are processed at once: `OMNIGRAPH_MAINTENANCE_CONCURRENCY`, 8 when not set."""
    value = os.environ.get(SETTING, "8")
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to a number from 1 on")
    return int(value)


def _owned_tables(transaction: Transaction, branch: str) -> list[str]:
    owner = None if branch == MAIN else branch
    return [key for key, entry in transaction.base.entries.items() if entry.owner == owner]


@dataclass(frozen=True, slots=True)
class _Executors:
    """What writes the new files of a plan, and what builds indexes; by default this process."""

    rewrite: Callable[[CompactionPlan], RewrittenFragments] = rewrite_fragments
    build: BuildParts | None = None


def _plan_tables(
    transaction: Transaction, keys: list[str], workers: int, executors: _Executors
) -> dict[str, _TableWork]:
    with stage("optimize", tasks=len(keys)) as optimizing:

        def look(key: str) -> _TableWork:
            done = _plan_table(transaction, key, executors)
            optimizing.advance(tasks=1)
            return done

        if workers == 1:
            # In this thread, which Ctrl-C interrupts: then tasks elsewhere are stopped.
            return {key: look(key) for key in keys}
        with ThreadPoolExecutor(workers) as pool:
            return dict(zip(keys, pool.map(look, keys), strict=True))


def _rewrite_by(runner: Runner, plan: CompactionPlan) -> RewrittenFragments:
    """Rewrite with a task for each part of a plan; a single part is rewritten here."""
    if len(plan.tasks) < 2:
        return rewrite_fragments(plan)
    task = partial(_rewrite_part, TablePlace.of(plan.table))
    return unpack_results(plan, runner.each("rewrite", pack_tasks(plan), task))


def _rewrite_part(place: TablePlace, packed: str) -> str:
    return rewrite_part(place.table(), packed)


def _plan_table(transaction: Transaction, key: str, executors: _Executors) -> _TableWork:
    table = transaction.table(key)
    size, pieces = _size(table), _fragment_ids(table)
    astray = find_misplaced_indexes(table)
    stored = usable_indexes(table, astray)
    lacks = find_missing_on_table(transaction, key, table, stored)
    refused = list(lacks.refused)
    due = _keep_buildable(
        table,
        find_lagging_indexes(
            declared_indexes(transaction.schema.catalog, key), stored, list_fragments(table)
        ),
        stored,
        refused,
    )
    effect = RewriteTable(table, None, lacks.build, due, executors.build, refused.append)
    if astray:
        # Repairing them comes first, and adds a version: fragments rewritten before would not fit any more.
        return _TableWork(size, pieces, effect, lacks.pending, refused)
    plan = plan_compaction(table)
    if plan.is_empty and not effect.columns:
        return _TableWork(size, pieces, None, lacks.pending, refused)
    rewritten = None if plan.is_empty else executors.rewrite(plan)
    return _TableWork(size, pieces, replace(effect, rewritten=rewritten), lacks.pending, refused)


def _keep_buildable(
    table: Table,
    due: Sequence[LaggingIndex],
    stored: Mapping[str, IndexCoverage],
    refused: list[RefusedIndex],
) -> tuple[LaggingIndex, ...]:
    """Return the indexes that can be extended to new rows; the others are added to `refused`."""
    every = frozenset(one.id for one in list_fragments(table))
    found = []
    for one in due:
        refusal = find_refusal(table, one.wish, every - stored[one.name].covered)
        if refusal is None:
            found.append(one)
        else:
            refused.append(refusal)
    return tuple(found)


def _size(table: Table) -> TableSize:
    pieces = list_fragments(table)
    return TableSize(len(pieces), sum(one.bytes for one in pieces))


def _fragment_ids(table: Table) -> frozenset[int]:
    return frozenset(one.id for one in list_fragments(table))


def _report_skipped(graph: OpenGraph, entry: TableEntry, drift: TableDrift) -> OptimizedTable:
    size = _size(_open_published(graph, entry))
    return OptimizedTable(entry.key, size, size, version=entry.version, head=drift.head, skipped=drift.code)


def _open_published(graph: OpenGraph, entry: TableEntry) -> Table:
    place = graph.root.layout.table(entry.path)
    return graph.root.tables.open(place, entry.version, branch=entry.owner)


def _report(graph: OpenGraph, entry: TableEntry, work: _TableWork) -> OptimizedTable:
    table = _open_published(graph, entry)
    now = _fragment_ids(table)
    return OptimizedTable(
        entry.key,
        work.size,
        work.size if work.effect is None else _size(table),
        work.indexes,
        work.pending,
        tuple(work.refused),
        len(work.fragments - now),
        len(now - work.fragments),
        entry.version,
        table.latest_version(),
    )
