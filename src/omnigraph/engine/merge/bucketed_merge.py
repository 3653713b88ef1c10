"""Merge a table with more changes than fit in memory: in buckets of ids, by tasks.

A task gets the rows of some ids on the base and both branches, decides on them as in memory, writes the
resulting rows to files, and returns only what the constraint checks need: ids, ends of edges and unique
values. Whole rows are only in the memory of a task, a portion at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.comparison import SidePart, TableComparison, count_buckets, emit_rows
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import PAIRS_SCHEMA, RowPairs
from omnigraph.engine.commit.plan import Effect
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import ID, SYSTEM_COLUMNS, TableType
from omnigraph.engine.load.replaced_rows import match_pieces
from omnigraph.engine.merge.choices import EntityChoice, MergeChoices
from omnigraph.engine.merge.conflict import (
    GivenUpSummary,
    MergeConflict,
    RuleViolation,
    find_value_violations,
)
from omnigraph.engine.merge.patched_side import compare_patched, patched_ids
from omnigraph.engine.merge.row_rule import MergeSides
from omnigraph.engine.merge.table_merge import BranchChanges, InMemoryMerge, MergeTask
from omnigraph.engine.merge.target_change import (
    RowPortion,
    TargetChange,
    find_deletions,
    iter_changed_rows,
    override_entities,
)
from omnigraph.engine.tasks.runner import Runner
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Piece, Pieces, write_pieces

PIECE_BYTES = 64 * 2**20
"""Rows are written once they take so much memory."""

_BASE_OF_THEIRS, _BASE_OF_OURS, _SOURCE, _TARGET = "base of theirs", "base of ours", "source", "target"
_PATCHED_THEIRS, _PATCHED_OURS = "patched theirs", "patched ours"
_KNOWN, _DECIDED = "known?", "decided?"
"""What a row is, beside its columns; no property can have such a name."""


@dataclass(frozen=True, slots=True)
class PatchedPart:
    """Entities whose base row is in another table."""

    tag: str
    pairs: pa.Table = field(repr=False)

    def read(self) -> pa.Table:
        """The rows that hold them, on both sides."""
        return self.pairs


@dataclass(frozen=True, slots=True)
class BucketJob:
    """The merge of one table, as its tasks get it; it is pickled."""

    task: MergeTask
    theirs: TableComparison
    ours: TableComparison | None
    """None when the target did not change the type at all."""
    preview: bool
    """Whether decided conflicts are returned too."""
    scratch: str | None = None
    """The folder for the rows, below the staging folder; None when no rows are written."""
    skip_ids: pa.Array | None = field(default=None, repr=False)
    """Entities that a choice overrides: neither written nor deleted here."""

    @property
    def root(self) -> Root:
        """The root of the graph, in the process that runs a task."""
        return self.task.sides.target.graph.root

    @property
    def place(self) -> Location:
        """The folder for the rows."""
        return self.root.layout.staging / f"{self.scratch}/rows/{fnv1a64(self.task.target.key)}"

    def parts(self) -> list[SidePart | PatchedPart]:
        """What there is to read, in tasks."""
        ours = [] if self.ours is None else self.ours.parts(_BASE_OF_OURS, _TARGET)
        return [*self.theirs.parts(_BASE_OF_THEIRS, _SOURCE), *ours, *self._patched_parts()]

    def _patched_parts(self) -> Iterator[PatchedPart]:
        """The entities that the base has from other tables, compared beforehand: they are few."""
        base = self.task.sides.base
        ids = patched_ids(base, base)
        if len(ids):
            yield PatchedPart(_PATCHED_THEIRS, compare_patched(base, self.task.sides.source, ids))
            yield PatchedPart(_PATCHED_OURS, compare_patched(base, self.task.sides.target, ids))

    def pairs(
        self, comparison: TableComparison, rows: Mapping[str, pa.Table], tags: tuple[str, str, str]
    ) -> RowPairs:
        """The entities of a bucket that differ between the base and a branch."""
        base, other, patched = tags
        stored = comparison.compare_bucket(rows.get(base), rows.get(other))
        ids = patched_ids(self.task.sides.base, self.task.sides.base)
        if not len(ids):
            return stored
        kept = stored.table.filter(pa.array(~is_among(stored.table.column(ID), ids)))
        table = pa.concat_tables(
            [kept.select(PAIRS_SCHEMA.names), rows.get(patched, PAIRS_SCHEMA.empty_table())]
        )
        return RowPairs(self.task.sides.base, stored.right, table.sort_by(ID))

    def estimate_rows(self) -> int:
        """Estimate how many rows may differ."""
        return self.theirs.estimate_rows() + (0 if self.ours is None else self.ours.estimate_rows())


@dataclass(frozen=True, slots=True)
class ContestedEntity:
    """A contested entity; `is_named` if a choice names it."""

    conflict: MergeConflict
    is_open: bool
    is_named: bool


@dataclass(frozen=True, slots=True)
class MergedBucket:
    """The merged entities of one bucket, without their rows."""

    changed: int
    """How many entities the source changed."""
    ruled: pa.Table = field(repr=False)
    """The rows that the target gets, with the columns that rules need."""
    deleted: pa.ChunkedArray = field(repr=False)
    violations: tuple[RuleViolation, ...]
    pieces: tuple[Piece, ...]
    resolved_count: int
    entities: tuple[ContestedEntity, ...]
    contested: pa.Array = field(repr=False)
    """The ids of entities that the branches disagree on, where a decision can be about them."""
    given_up: GivenUpSummary = field(default_factory=GivenUpSummary)
    by_branch: BranchChanges = field(default_factory=BranchChanges)


# --- in the tasks --------------------------------------------------------------------------------


def merge_bucket(job: BucketJob, rows: Mapping[str, pa.Table]) -> MergedBucket:
    """Merge the entities of a bucket, and write the resulting rows."""
    theirs = job.pairs(job.theirs, rows, (_BASE_OF_THEIRS, _SOURCE, _PATCHED_THEIRS))
    ours = None if job.ours is None else job.pairs(job.ours, rows, (_BASE_OF_OURS, _TARGET, _PATCHED_OURS))
    merge = InMemoryMerge.of(replace(job.task, sides=job.task.sides.number_by_place()), theirs, ours)
    writer = _Writer(job)
    for some in iter_changed_rows(job.task.target, merge.sides, merge.delta, merge.decisions):
        writer.add(some)
    writer.finish()
    gone = find_deletions(merge.delta, merge.decisions)
    return MergedBucket(
        theirs.table.num_rows,
        pa.concat_tables(writer.ruled),
        gone if job.skip_ids is None else gone.filter(pa.array(~is_among(gone, job.skip_ids))),
        tuple(writer.violations),
        tuple(writer.pieces),
        merge.resolved_count,
        tuple(_list_contested(job, merge)),
        _contested_ids(job, merge),
        merge.given_up(),
        merge.by_branch,
    )


def _list_contested(job: BucketJob, merge: InMemoryMerge) -> Iterator[ContestedEntity]:
    named, left = merge.is_named_mask, merge.decisions.open
    wanted = merge.undecided.open if job.preview else left | named
    rows = np.flatnonzero(wanted)
    for conflict, row in zip(merge.build_conflicts(wanted), rows.tolist(), strict=True):
        yield ContestedEntity(conflict, bool(left[row]), bool(named[row]))


def _contested_ids(job: BucketJob, merge: InMemoryMerge) -> pa.Array:
    key, choices = job.task.target.key, job.task.choices
    if choices.of_type(key).take is None and not choices.of_entities(key):
        return pa.array([], pa.string())
    found = merge.undecided.contested.places.filter(pa.array(merge.undecided.open))
    return found.column(ID).combine_chunks()


class _Writer:
    """Writes the rows of a bucket to files; rows that replace a stored one go to separate files."""

    def __init__(self, job: BucketJob) -> None:
        self._job = job
        self._target = job.task.target
        self._waiting: dict[bool, list[pa.Table]] = {True: [], False: []}
        self._bytes = 0
        self.ruled = [_rule_schema(self._target).empty_table()]
        self.violations: list[RuleViolation] = []
        self.pieces: list[Piece] = []

    def add(self, some: RowPortion) -> None:
        rows, known = some.rows, some.known
        if self._job.skip_ids is not None:
            kept = ~is_among(rows.column(ID), self._job.skip_ids)
            rows, known = rows.filter(pa.array(kept)), known[kept]
        self.violations += find_value_violations(self._target, rows)
        self.ruled.append(_rule_rows(self._target, rows, known, decided=some.decided))
        if self._job.scratch is None:
            return
        for is_known, chosen in ((True, known), (False, ~known)):
            if chosen.any():
                self._waiting[is_known].append(rows.filter(pa.array(chosen)))
        self._bytes += rows.nbytes
        if self._bytes > PIECE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write what waits."""
        for parts in self._waiting.values():
            if parts:
                self.pieces += _write_rows(self._job, pa.concat_tables(parts))
                parts.clear()
        self._bytes = 0


def _write_rows(job: BucketJob, rows: pa.Table) -> tuple[Piece, ...]:
    return write_pieces(job.root.tables.access, job.place, rows)


def _rule_columns(target: TableType) -> list[str]:
    """Return the columns that the constraint checks need."""
    unique = [name for rule in target.owner.uniques for name in rule.columns]
    return list(dict.fromkeys([*SYSTEM_COLUMNS[target.kind], *unique]))


def _rule_schema(target: TableType) -> pa.Schema:
    marks = [pa.field(name, pa.uint8()) for name in (_KNOWN, _DECIDED)]
    return pa.schema([*(target.schema.field(name) for name in _rule_columns(target)), *marks])


def _rule_rows(target: TableType, rows: pa.Table, known: Mask, *, decided: bool) -> pa.Table:
    marks = [pa.array(known.astype(np.uint8)), pa.array(np.full(rows.num_rows, decided, np.uint8))]
    # Copied: a column that storage returned keeps all others of its rows in memory.
    copied = rows.select(_rule_columns(target)).take(pa.array(np.arange(rows.num_rows)))
    columns = [copied.column(name) for name in _rule_columns(target)]
    return pa.table([*columns, *marks], schema=_rule_schema(target))


# --- in the process that merges --------------------------------------------------------------------


@dataclass(frozen=True)
class BucketedMerge:
    """A table that is merged in buckets."""

    job: BucketJob
    runner: Runner
    scratch: str | None
    """Where rows may be written if they have to be."""
    buckets: tuple[MergedBucket, ...] = field(repr=False)

    @classmethod
    def of(cls, job: BucketJob, runner: Runner, scratch: str | None) -> BucketedMerge:
        """Merge the entities of a table."""
        return cls(job, runner, scratch, _run_buckets(job, runner))

    @property
    def is_empty(self) -> bool:
        """Whether the source changed nothing after all."""
        return not any(one.changed for one in self.buckets)

    @property
    def sides(self) -> MergeSides:
        """The table at the base and on both branches."""
        return self.job.task.sides

    @property
    def resolved_count(self) -> int:
        """How many entities that both branches changed were decided on."""
        return sum(one.resolved_count for one in self.buckets)

    @property
    def by_branch(self) -> BranchChanges:
        """How many entities each branch changed."""
        return sum((one.by_branch for one in self.buckets), BranchChanges())

    def change(self) -> TargetChange:
        """What happens to the target."""
        return self._change

    @cached_property
    def _change(self) -> TargetChange:
        return _combine_buckets(self.job, self.buckets)

    def undecided_change(self) -> TargetChange:
        """Return the change without choices: the buckets run again."""
        job = replace(self.job, task=replace(self.job.task, choices=MergeChoices()), scratch=None)
        return _combine_buckets(job, _run_buckets(job, self.runner))

    def contested_ids(self) -> set[str]:
        """The entities that the branches disagree on, where a decision can be about them."""
        return {entity for one in self.buckets for entity in one.contested.to_pylist()}

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        return {one.entity_id for one in self.open_conflicts() if one.entity_id is not None}

    def given_up(self) -> GivenUpSummary:
        """What decisions about whole entities dropped although only one branch had changed it."""
        return GivenUpSummary.of(one.given_up for one in self.buckets)

    def open_conflicts(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return (entity.conflict for one in self.buckets for entity in one.entities if entity.is_open)

    def all_conflicts(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        return (entity.conflict for one in self.buckets for entity in one.entities)

    def named_conflicts(self) -> Iterator[MergeConflict]:
        """Yield the conflicts that choices name."""
        return (entity.conflict for one in self.buckets for entity in one.entities if entity.is_named)

    def effect(self, change: TargetChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """Return the effect of a commit; rows that choices about rules changed are written again."""
        pieces = self._rewrite_pieces(overruled) if overruled else change.pieces
        if pieces is not None and change.known.any():
            entry = self.sides.target.snapshot.entries[self.job.task.target.key]
            pieces = match_pieces(self.runner, self.job, pieces, entry)
        return replace(change, pieces=pieces).effect()

    def _rewrite_pieces(self, chosen: Mapping[str, EntityChoice]) -> Pieces:
        ids = pa.array(list(chosen), pa.string())
        job = replace(self.job, scratch=self.scratch, skip_ids=ids)
        pieces = [piece for one in _run_buckets(job, self.runner) for piece in one.pieces]
        target = job.task.target
        instead = override_entities(TargetChange.empty(target), chosen, self.sides)
        for wanted in (instead.known, ~instead.known):
            if wanted.any():
                pieces += _write_rows(job, instead.rows.filter(pa.array(wanted)))
        return Pieces(job.place, target.schema, tuple(pieces))


def _run_buckets(job: BucketJob, runner: Runner) -> tuple[MergedBucket, ...]:
    buckets = count_buckets(job.estimate_rows(), runner.cores)
    task = partial(merge_bucket, job)
    return tuple(runner.grouped("merge", job.parts(), emit_rows, task, buckets, streamed=True))


def _combine_buckets(job: BucketJob, buckets: tuple[MergedBucket, ...]) -> TargetChange:
    """Combine all buckets into one change, in the same order as a merge in memory."""
    target = job.task.target
    ruled = pa.concat_tables([_rule_schema(target).empty_table(), *(one.ruled for one in buckets)])
    ruled = ruled.sort_by([(_DECIDED, "ascending"), (ID, "ascending")])
    chunks = [chunk for one in buckets for chunk in one.deleted.chunks]
    pieces = tuple(piece for one in buckets for piece in one.pieces)
    return TargetChange(
        target,
        ruled.select(_rule_columns(target)),
        np.asarray(ruled.column(_KNOWN)).astype(np.bool_),
        pa.chunked_array(chunks, pa.string()),
        tuple(violation for one in buckets for violation in one.violations),
        Pieces(job.place, target.schema, pieces) if job.scratch is not None else None,
    )
