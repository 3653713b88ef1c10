"""Build declared indexes automatically, after the write that made them lag.

Up to `OMNIGRAPH_INDEX_ROWS` rows of a table are indexed by the write itself, under its lock. For more of them
the lock is released first: segments are built while others write, and the lock is taken only to commit
one. Like all upkeep this needs no record and creates no commit: it changes how rows are stored, never which.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.graph.manifest import MAIN, ManifestState, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import repin
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.declared_indexes import VECTOR_ROWS, DeclaredIndex, IndexKind, PendingIndexes
from omnigraph.engine.upkeep.index_catch_up import (
    MOST_ROWS,
    DueIndex,
    NextSegment,
    can_append_texts,
    can_extend,
    count_vectors,
    find_due_indexes,
    next_segment,
)
from omnigraph.errors import BadRequest, CompileError, OmnigraphError, StorageFailure
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.progress import stage
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import fork_folder
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.indexes import (
    IndexExtension,
    IndexSpec,
    catch_up_text_indexes,
    read_coverage,
    stage_extensions,
)
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import Staged, commit_staged
from omnigraph.storage.tables import Table

SETTING = "OMNIGRAPH_INDEX_ROWS"
DEFAULT_ROWS = 1 << 17
MIN_ROWS_TO_CHECK = 1_024
"""A write of fewer rows does not look how far indexes reach: that would cost as much as the write."""
_AMORTISED = 8
"""After a write so many times its rows are indexed, at most: earlier writes may have left some behind."""
_ATTEMPTS = 4
"""So often a segment is built for a table that others move on meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeferredIndexes:
    """A table of which more is to be indexed than the lock should be held for."""

    written: int
    """How many rows the write added to it."""
    asked: tuple[DeclaredIndex, ...]
    """The indexes that it is to have."""


@dataclass(frozen=True, slots=True)
class IndexUpkeep:
    """What a write did about the indexes of its tables, and what is left of it."""

    pending: PendingIndexes = field(default_factory=dict)
    deferred: Mapping[str, DeferredIndexes] = field(default_factory=dict)
    """What is to be built once the lock is released, by table."""
    build: BuildParts | None = field(default=None, repr=False, compare=False)
    """Who builds these, if not this process."""


def rows_in_write() -> int:
    """Up to how many rows of a table a write indexes itself: `OMNIGRAPH_INDEX_ROWS`, 131,072 when not set."""
    value = os.environ.get(SETTING, str(DEFAULT_ROWS))
    if not (value.isascii() and value.isdigit()):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to a number of rows from 0 on")
    return int(value)


def find_due_on_table(
    asked: Sequence[DeclaredIndex], table: Table, *, dropped: bool = False
) -> list[DueIndex]:
    """Return the declared indexes of a table that are due.

    With few vectors comparing with all of them is faster than asking an index, so those wait for none.
    """
    found = find_due_indexes(asked, read_coverage(table), list_fragments(table), dropped=dropped)
    return [one for one in found if one.stored is not None or _has_enough(table, one.wish)]


def expects_indexes(root: Root, state: ManifestState, key: str, table: Table) -> bool:
    """Whether a table is to have its declared indexes however few rows it holds: it has one, or had one.

    A rewrite drops all of them, so an earlier version says it; for a renamed type, the table it had before.
    This is what both a write and `doctor` go by, so that they report the same as pending.
    """
    return _had_indexes(root, table) or any(
        _had_indexes(root, old) for old in _open_under_old_names(root, state, key)
    )


def _open_under_old_names(root: Root, state: ManifestState, key: str) -> Iterator[Table]:
    """Yield the dropped tables that a type had under other names, as the schemas of the graph have it."""
    kind, name = split_key(key)
    dropped = {known for known in state.tombstones if known not in state.entries()}
    renames = _read_renames(root) if any(known.startswith(f"{kind}:") for known in dropped) else []
    names = [name]
    for one in names:  # it grows: a type can be renamed again and again
        names += {old[kind, one] for old in renames if (kind, one) in old}.difference(names)
    for old in {table_key(kind, one) for one in names} & dropped & state.versions.keys():
        last = state.versions[old]
        table = _open_if_stored(root, root.layout.table(state.locations[old]), last.owner, last.version)
        if table is not None:
            yield table


def _read_renames(root: Root) -> list[Mapping[tuple[TypeKind, str], str]]:
    """Return the hints about renamed types in every schema text that the graph recorded."""
    found = []
    for at in root.objects.list_dir(root.layout.past_schemas):
        # A damaged text says nothing here; `doctor --deep` reports it.
        with suppress(CompileError):
            found.append(compile_schema(root.objects.read_text(at)).renames.types)
    return found


def _had_indexes(root: Root, table: Table) -> bool:
    """Whether a version of a table has an index: this one, or an earlier one that is still stored."""
    if read_coverage(table):
        return True
    own = table.location if table.branch is None else fork_folder(table.location, table.branch)
    fork = None if table.branch is None else root.forks.find(table.location, table.branch)
    first = 0 if fork is None else fork.parent_version
    # Without files of an index no version has one, and none is opened.
    if root.objects.exists(own / "_indices"):
        for version in reversed([one for one in table.versions() if first < one < table.version]):
            before = _open_if_stored(root, table.location, table.branch, version)
            if before is not None and read_coverage(before):
                return True
    if fork is None:
        return False
    origin = _open_if_stored(root, table.location, fork.parent, fork.parent_version)
    return origin is not None and _had_indexes(root, origin)


def _open_if_stored(root: Root, at: Location, branch: str | None, version: int) -> Table | None:
    """Open a version of a table; None when cleanup removed it."""
    try:
        return root.tables.open(at, version, branch=branch)
    except StorageFailure as failure:
        if failure.kind is not TableFailureKind.NOT_FOUND:
            raise
        return None


def _has_enough(table: Table, wish: DeclaredIndex) -> bool:
    if wish.kind is not IndexKind.VECTOR:
        return True
    return table.count() >= VECTOR_ROWS and count_vectors(table, wish) >= VECTOR_ROWS


def columns_of(due: Sequence[DueIndex]) -> tuple[str, ...]:
    """The columns of indexes that are due."""
    return tuple(one.wish.column for one in due)


@dataclass(frozen=True, slots=True)
class IndexRound:
    """What is built for the indexes of a table at one go."""

    table: Table
    segments: tuple[NextSegment, ...] = ()
    texts: tuple[str, ...] = ()
    """The text indexes that take in the rows outside of them."""
    rows: int = 0
    """How many are read for the index that takes most."""

    def stage(self, build: BuildParts | None = None) -> Staged | None:
        """Write the files of the segments; the table does not move. None when there are none."""
        if not self.segments:
            return None
        try:
            return self._staged(self.segments, build)
        except StorageFailure as failure:
            # Lance indexes no vectors whose squares do not fit into 32 bits: others must not wait for them.
            others = [one for one in self.segments if one.due.wish.kind is not IndexKind.VECTOR]
            if not others or len(others) == len(self.segments):
                raise
            _log.warning("the vectors of %s are not indexed: %s", self.table.uri, failure)
            return self._staged(others, build)

    def _staged(self, segments: Sequence[NextSegment], build: BuildParts | None) -> Staged:
        return stage_extensions(self.table, [_extension(self.table, one) for one in segments], build)

    def commit_segments(self, staged: Staged | None, held: HeldLocks) -> Table:
        """The table under its new segments; callers hold the branch's lock."""
        table = self.table
        if staged is not None:
            held.require()
            table = commit_staged(staged)
        if self.texts:
            held.require()
            table = catch_up_text_indexes(table, self.texts)
        return table


def plan_round(table: Table, due: Sequence[DueIndex], *, most: int, budget: int) -> IndexRound:
    """What to build next: segments of `most` rows, and nothing that reads more than `budget` rows.

    A fragment is the least that can be indexed, so of scalars a whole one is taken in any case.
    """
    pieces = list_fragments(table)
    segments, texts, rows = [], [], 0
    for one in due:
        if (
            one.wish.kind is IndexKind.TEXT
            and one.stored is not None
            and can_append_texts(table, one.wish, one.stored, pieces)
        ):
            texts.append(one.stored.name)
            rows = max(rows, one.outside)
            continue
        segment = next_segment(one, pieces, most=most, whole=_is_whole(table, one))
        if segment.rows <= (max(budget, MOST_ROWS) if one.wish.kind is IndexKind.SCALAR else budget):
            segments.append(segment)
            rows = max(rows, segment.rows)
    return IndexRound(table, tuple(segments), tuple(texts), rows)


def _is_whole(table: Table, due: DueIndex) -> bool:
    """Whether an index has to be one segment: of texts always, of vectors where ours would not fit."""
    if due.wish.kind is IndexKind.TEXT:
        return True
    return due.stored is not None and not can_extend(table, due.wish, due.stored)


def _extension(table: Table, one: NextSegment) -> IndexExtension:
    wish = one.due.wish
    spec = wish.spec(count_vectors(table, wish, one.fragments))
    return IndexExtension(
        IndexSpec(spec.column, spec.type, one.name, spec.options), one.fragments, one.replaced
    )


# --- after the lock ------------------------------------------------------------------------------


def build_deferred_indexes(graph: OpenGraph, branch: str, upkeep: IndexUpkeep) -> PendingIndexes:
    """Build what a write left to be done once its lock is free; returns what is still pending after it.

    A failure never reaches the writer: its rows are committed, and the next look finds the same again.
    """
    pending = dict(upkeep.pending)
    if not upkeep.deferred:
        return pending
    with stage("index", tasks=len(upkeep.deferred)) as progress:
        for key, owed in upkeep.deferred.items():
            left = _complete(_Completion(graph, branch, key, owed.asked, upkeep.build), owed.written)
            if left is not None:
                pending[key] = left
            progress.advance(tasks=1)
    return {key: columns for key, columns in pending.items() if columns}


def _complete(work: _Completion, written: int) -> tuple[str, ...] | None:
    """Build the indexes of a table; returns what is still due, or None when unknown."""
    try:
        return work.run(max(rows_in_write(), _AMORTISED * written))
    except OmnigraphError as failure:
        _log.warning("indexes of %s on branch '%s' are not complete: %s", work.key, work.branch, failure)
    except Exception:  # noqa: BLE001 - the write stands: a caller that gets a failure would write it again
        _log.exception("completing the indexes of %s on branch '%s' failed", work.key, work.branch)
    try:
        return work.left()
    except OmnigraphError:
        return None


@dataclass(frozen=True, slots=True)
class _Completion:
    """The indexes of one table, completed round by round."""

    graph: OpenGraph
    branch: str
    key: str
    asked: Sequence[DeclaredIndex]
    build: BuildParts | None

    def run(self, budget: int) -> tuple[str, ...]:
        """Build segments until none is due or the budget of rows is spent; returns what is still due."""
        attempts = 0
        while True:
            table = self._table()
            # What a rewrite dropped was due for this call, however few rows there are.
            due = [] if table is None else find_due_on_table(self.asked, table, dropped=True)
            if table is None or not due:
                return ()
            most = MOST_ROWS if self.build is None else sum(one.rows for one in list_fragments(table))
            chosen = plan_round(table, due, most=most, budget=budget)
            if not chosen.rows or attempts == _ATTEMPTS:
                return columns_of(due)
            if self._lands(chosen):
                budget -= chosen.rows
                if budget <= 0:
                    return self.left()
            else:
                attempts += 1

    def left(self) -> tuple[str, ...]:
        """What is due."""
        table = self._table()
        return () if table is None else columns_of(find_due_on_table(self.asked, table, dropped=True))

    def _table(self) -> Table | None:
        """The table as the branch shows it; None when it has none of its own any more."""
        entry = self.graph.load(self.branch).state.entries().get(self.key)
        if entry is None or (entry.owner or MAIN) != self.branch:
            return None
        root = self.graph.root
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)

    def _lands(self, chosen: IndexRound) -> bool:
        """Build without the lock and put in place with it; False when the table moved on meanwhile."""
        staged = chosen.stage(self.build)
        table = chosen.table
        with self.graph.root.locks.hold([self.branch]) as held:
            shown = self._table()
            if shown is None or (shown.uri, shown.version) != (table.uri, table.version):
                return False
            try:
                after = chosen.commit_segments(staged, held)
            except StorageFailure as failure:
                if failure.kind in (TableFailureKind.MOVED, TableFailureKind.CONFLICT):
                    return False
                raise
            moved = TableVersion(self.key, after.version, table.branch, table.count())
            held.require()
            repin(self.graph.coordinator(self.branch), [moved], expected={self.key: table.version})
        return True
