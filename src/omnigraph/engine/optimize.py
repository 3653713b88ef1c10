"""`optimize`: every table of a branch in few fragments and under complete indexes, in one commit.

New files are written before the branch's lock is taken, by this process or by tasks elsewhere; under it they
are put in place, and the indexes that need it are built over the result.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from omnigraph.engine.catching_up import lagging
from omnigraph.engine.index_intent import wishes
from omnigraph.engine.indexing import lacking, usable
from omnigraph.engine.leaving_out import write_the_rest
from omnigraph.engine.lineage import Commit
from omnigraph.engine.load.engines import engine_for
from omnigraph.engine.load.runner import Runner
from omnigraph.engine.manifest import MAIN, Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Effect, Rearrange
from omnigraph.engine.root import Root
from omnigraph.engine.upkeep import compact_manifest
from omnigraph.engine.write.transaction import Author, Prepared, Transaction
from omnigraph.errors import BadRequest, OmnigraphError, TableDrift
from omnigraph.progress import stage
from omnigraph.storage.fragments import fragments
from omnigraph.storage.index_files import find_astray
from omnigraph.storage.index_parts import BuildParts, BuiltPart, IndexPart, build_part
from omnigraph.storage.location import Location
from omnigraph.storage.rewriting import packed_tasks, rewrite_part, rewritten_parts
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CompactionPlan, Rewritten, plan_compaction, rewrite

SETTING = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Size:
    """What a table takes."""

    fragments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Optimized:
    """What was done to one table."""

    key: str
    before: Size
    after: Size
    indexes: tuple[str, ...] = ()
    """The columns whose indexes were built."""
    pending: tuple[str, ...] = ()
    """Columns that have no value yet to build an index from."""
    fragments_removed: int = 0
    fragments_added: int = 0
    version: int = 0
    """The version that the branch shows."""
    head: int = 0
    """The newest version of the table."""
    skipped: str | None = None
    """Why it was left out, if it was: the code of an error."""

    @property
    def moved(self) -> bool:
        """Whether anything was to be done."""
        return bool(self.indexes) or self.before != self.after


@dataclass(frozen=True, slots=True, repr=False)
class OptimizeResult:
    """What became of a branch."""

    branch: str
    commit: Commit | None
    """None when everything was in order."""
    tables: tuple[Optimized, ...]
    """The tables the branch has of its own, by key."""

    def __repr__(self) -> str:
        moved = sum(one.moved for one in self.tables)
        commit = "no commit" if self.commit is None else f"commit {self.commit.id}"
        return f"<OptimizeResult of '{self.branch}': {moved} of {len(self.tables)} tables moved, {commit}>"


@dataclass(frozen=True, slots=True)
class _Work:
    size: Size
    fragments: frozenset[int]
    effect: Rearrange | None
    pending: tuple[str, ...]


def optimize(graph: OpenGraph, author: Author, engine: str = "local") -> OptimizeResult:
    """Put small fragments together and complete the indexes; no row changes, and readers notice nothing.

    Tables that a branch inherits are looked after where they belong. With another `engine` the new files
    of a table are written, and its indexes are built, by tasks of that; one table after another.
    """
    found: dict[str, _Work] = {}
    workers, hands = concurrency(), _Hands()
    if elsewhere := engine_for(engine, 0):
        workers, runner = 1, elsewhere.runner
        hands = _Hands(partial(_rewritten_by, runner), partial(_built_by, runner))

    def prepare(transaction: Transaction, left_out: Collection[str]) -> Prepared:
        found.clear()
        owned = [key for key in _owned(transaction, author.branch) if key not in left_out]
        found.update(_look(transaction, owned, workers, hands))
        effects: dict[str, Effect] = {key: work.effect for key, work in found.items() if work.effect}
        return Prepared("Optimize", effects, strict=False)

    receipt, skipped = write_the_rest(graph, author, prepare)
    _tidy_manifest(graph, author.branch)
    entries = graph.load(author.branch).state.entries()
    told = {key: _told(graph, entries[key], work) for key, work in found.items()}
    told |= {key: _left_out(graph, entries[key], drift) for key, drift in skipped.items()}
    tables = tuple(told[key] for key in sorted(told))
    return OptimizeResult(author.branch, receipt.commit if receipt else None, tables)


def _tidy_manifest(graph: OpenGraph, branch: str) -> None:
    """The tables are done by now, whatever becomes of this."""
    try:
        with graph.root.locks.hold([branch]):
            compact_manifest(graph.coordinator(branch), thorough=True)
    except OmnigraphError as failure:
        _log.warning("the manifest of branch '%s' was not compacted: %s", branch, failure)


def concurrency() -> int:
    """How many tables are worked on at once: `OMNIGRAPH_MAINTENANCE_CONCURRENCY`, 8 when not set."""
    value = os.environ.get(SETTING, "8")
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to a number from 1 on")
    return int(value)


def _owned(transaction: Transaction, branch: str) -> list[str]:
    owner = None if branch == MAIN else branch
    return [key for key, entry in transaction.base.entries.items() if entry.owner == owner]


@dataclass(frozen=True, slots=True)
class _Hands:
    """Who writes the new files of a plan, and who builds indexes; this process, if nobody else."""

    rewrite: Callable[[CompactionPlan], Rewritten] = rewrite
    build: BuildParts | None = None


def _look(transaction: Transaction, keys: list[str], workers: int, hands: _Hands) -> dict[str, _Work]:
    with stage("optimize", tasks=len(keys)) as optimizing:

        def look(key: str) -> _Work:
            done = _work(transaction, key, hands)
            optimizing.advance(tasks=1)
            return done

        if workers == 1:
            # In this thread, where Ctrl-C is heard: tasks elsewhere are then stopped.
            return {key: look(key) for key in keys}
        with ThreadPoolExecutor(workers) as pool:
            return dict(zip(keys, pool.map(look, keys), strict=True))


def _rewritten_by(runner: Runner, plan: CompactionPlan) -> Rewritten:
    """A task for each part of a plan; a single one is not worth the way."""
    if len(plan.tasks) < 2:
        return rewrite(plan)
    task = partial(_rewrite_part, _Place.of(plan.table))
    return rewritten_parts(plan, runner.each("rewrite", packed_tasks(plan), task))


def _built_by(runner: Runner, table: Table, parts: Sequence[IndexPart]) -> Iterable[BuiltPart]:
    """A task for each part of an index."""
    return runner.each("index", parts, partial(_build_part, _Place.of(table)))


@dataclass(frozen=True, slots=True)
class _Place:
    """A version of a table, as a task finds it."""

    uri: str
    branch: str | None
    version: int

    @classmethod
    def of(cls, table: Table) -> _Place:
        """Where a table stands."""
        return cls(table.location.uri, table.branch, table.version)

    def table(self) -> Table:
        """The table, opened anew."""
        location = Location(self.uri)
        return Root.at(location).tables.open(location, self.version, branch=self.branch)


def _rewrite_part(place: _Place, packed: bytes) -> bytes:
    return rewrite_part(place.table(), packed)


def _build_part(place: _Place, part: IndexPart) -> BuiltPart:
    return build_part(place.table(), part)


def _work(transaction: Transaction, key: str, hands: _Hands) -> _Work:
    table = transaction.table(key)
    size, pieces = _size(table), _numbers(table)
    astray = find_astray(table)
    stored = usable(table, astray)
    lacks = lacking(transaction, key, table, stored)
    effect = Rearrange(
        table,
        None,
        lacks.build,
        lagging(wishes(transaction.schema.catalog, key), stored, fragments(table)),
        hands.build,
    )
    if astray:
        # Mending them comes first, and moves the table: what is rewritten before would not fit any more.
        return _Work(size, pieces, effect, lacks.pending)
    plan = plan_compaction(table)
    if plan.is_empty and not effect.columns:
        return _Work(size, pieces, None, lacks.pending)
    rewritten = None if plan.is_empty else hands.rewrite(plan)
    return _Work(size, pieces, replace(effect, rewritten=rewritten), lacks.pending)


def _size(table: Table) -> Size:
    pieces = fragments(table)
    return Size(len(pieces), sum(one.bytes for one in pieces))


def _numbers(table: Table) -> frozenset[int]:
    return frozenset(one.id for one in fragments(table))


def _left_out(graph: OpenGraph, entry: Entry, drift: TableDrift) -> Optimized:
    size = _size(_published(graph, entry))
    return Optimized(entry.key, size, size, version=entry.version, head=drift.head, skipped=drift.code)


def _published(graph: OpenGraph, entry: Entry) -> Table:
    place = graph.root.layout.table(entry.path)
    return graph.root.tables.open(place, entry.version, branch=entry.owner)


def _told(graph: OpenGraph, entry: Entry, work: _Work) -> Optimized:
    table = _published(graph, entry)
    now = _numbers(table)
    return Optimized(
        entry.key,
        work.size,
        work.size if work.effect is None else _size(table),
        () if work.effect is None else work.effect.columns,
        work.pending,
        len(work.fragments - now),
        len(now - work.fragments),
        entry.version,
        table.latest_version(),
    )
