"""`optimize`: every table of a branch in few fragments and under complete indexes, in one commit.

New files are written before the branch's lock is taken, by this process or by tasks elsewhere; under it they
are put in place, and the indexes that need it are built over the result.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from omnigraph.engine.index_intent import Wish, wishes
from omnigraph.engine.indexing import lacking, vectors_in
from omnigraph.engine.lineage import Commit
from omnigraph.engine.load.engines import engine_for
from omnigraph.engine.load.runner import Runner
from omnigraph.engine.manifest import MAIN, Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Effect, Rearrange
from omnigraph.engine.root import Root
from omnigraph.engine.upkeep import compact_manifest
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, write
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.storage.index_files import find_astray
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, coverage
from omnigraph.storage.location import Location
from omnigraph.storage.rewriting import packed_tasks, rewrite_part, rewritten_parts
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CompactionPlan, Rewritten, fragments, plan_compaction, rewrite

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

    @property
    def moved(self) -> bool:
        """Whether anything was to be done."""
        return bool(self.indexes) or self.before != self.after


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What became of a branch."""

    branch: str
    commit: Commit | None
    """None when everything was in order."""
    tables: tuple[Optimized, ...]
    """The tables the branch has of its own, by key."""


@dataclass(frozen=True, slots=True)
class _Work:
    size: Size
    effect: Rearrange | None
    pending: tuple[str, ...]


def optimize(graph: OpenGraph, author: Author, engine: str = "local") -> OptimizeResult:
    """Put small fragments together and complete the indexes; no row changes, and readers notice nothing.

    Tables that a branch inherits are looked after where they belong. With another `engine` the new files of a
    table are written by its tasks, one table after another.
    """
    found: dict[str, _Work] = {}
    workers, rewriting = concurrency(), rewrite
    if elsewhere := engine_for(engine, 0):
        workers, rewriting = 1, partial(_rewritten_by, elsewhere.runner)

    def prepare(transaction: Transaction) -> Prepared:
        found.clear()
        found.update(_look(transaction, _owned(transaction, author.branch), workers, rewriting))
        effects: dict[str, Effect] = {key: work.effect for key, work in found.items() if work.effect}
        return Prepared("Optimize", effects, strict=False)

    receipt = write(graph, author, prepare)
    _tidy_manifest(graph, author.branch)
    entries = graph.load(author.branch).state.entries()
    told = (_told(graph, entries[key], work) for key, work in found.items())
    return OptimizeResult(author.branch, receipt.commit if receipt else None, tuple(told))


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


Rewriting = Callable[[CompactionPlan], Rewritten]
"""Writes the new files of a plan."""


def _look(transaction: Transaction, keys: list[str], workers: int, rewriting: Rewriting) -> dict[str, _Work]:
    with ThreadPoolExecutor(workers) as pool:
        done = pool.map(lambda key: _work(transaction, key, rewriting), keys)
        return dict(zip(keys, done, strict=True))


def _rewritten_by(runner: Runner, plan: CompactionPlan) -> Rewritten:
    """A task for each part of a plan; a single one is not worth the way."""
    if len(plan.tasks) < 2:
        return rewrite(plan)
    table = plan.table
    place = _Place(table.location.uri, table.branch, table.version)
    return rewritten_parts(plan, runner.each("rewrite", packed_tasks(plan), partial(_rewrite_part, place)))


@dataclass(frozen=True, slots=True)
class _Place:
    """A version of a table, as a task finds it."""

    uri: str
    branch: str | None
    version: int


def _rewrite_part(place: _Place, packed: bytes) -> bytes:
    location = Location(place.uri)
    table = Root.at(location).tables.open(location, place.version, branch=place.branch)
    return rewrite_part(table, packed)


def _work(transaction: Transaction, key: str, rewriting: Rewriting) -> _Work:
    table = transaction.table(key)
    size = _size(table)
    astray = find_astray(table)
    lost = astray.lost if astray else frozenset()
    stored = {name: index for name, index in coverage(table).items() if name not in lost}
    lacks = lacking(transaction, key, table, stored)
    specs = (*_stale(wishes(transaction.schema.catalog, key), table, stored), *lacks.build)
    if astray:
        # Mending them comes first, and moves the table: what is rewritten before would not fit any more.
        return _Work(size, Rearrange(table, None, specs), lacks.pending)
    plan = plan_compaction(table)
    if plan.is_empty and not specs:
        return _Work(size, None, lacks.pending)
    rewritten = None if plan.is_empty else rewriting(plan)
    return _Work(size, Rearrange(table, rewritten, specs), lacks.pending)


def _stale(asked: tuple[Wish, ...], table: Table, stored: Mapping[str, IndexCoverage]) -> list[IndexSpec]:
    """The declared indexes to be built anew: some rows are outside of them, or they are in pieces."""
    found = []
    for index in stored.values():
        wish = next((wish for wish in asked if wish.is_met_by(index)), None)
        if wish is None or (index.is_complete and index.segments == 1):
            continue
        vectors = vectors_in(table, wish)
        if vectors != 0:
            found.append(_named(wish.spec(vectors or 0), index.name))
    return found


def _named(spec: IndexSpec, name: str) -> IndexSpec:
    return IndexSpec(spec.column, spec.type, name, spec.options)


def _size(table: Table) -> Size:
    pieces = fragments(table)
    return Size(len(pieces), sum(one.bytes for one in pieces))


def _told(graph: OpenGraph, entry: Entry, work: _Work) -> Optimized:
    if work.effect is None:
        return Optimized(entry.key, work.size, work.size, pending=work.pending)
    root = graph.root
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    columns = tuple(spec.column for spec in work.effect.indexes)
    return Optimized(entry.key, work.size, _size(table), columns, work.pending)
