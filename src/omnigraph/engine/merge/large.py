"""A table of which too much changed for memory: its entities are merged in buckets, by tasks.

A task gets all that the base and both branches have of some ids, decides on these as ever, writes the rows
that come of it to files, and answers with what the rules about whole changes have to see: ids, ends of edges
and unique values. Whole rows are only ever in the memory of a task, and there some at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.meeting import Meeting, Part, buckets_for, emitted
from omnigraph.engine.columns import ID, SYSTEM_COLUMNS
from omnigraph.engine.layout import fnv1a64
from omnigraph.engine.load.matching import matched_pieces
from omnigraph.engine.load.runner import Runner
from omnigraph.engine.merge.breach import Breach, value_breaches
from omnigraph.engine.merge.change import SomeRows, TableChange, changed_rows, deletions, overruled
from omnigraph.engine.merge.choices import Choices, EntityChoice
from omnigraph.engine.merge.conflict import MergeConflict
from omnigraph.engine.merge.contest import Sides
from omnigraph.engine.merge.work import Task, Worked
from omnigraph.engine.plan import Effect
from omnigraph.engine.root import Root
from omnigraph.engine.write.change import within
from omnigraph.engine.write.target import Target
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Piece, Pieces, write_pieces

PIECE_BYTES = 64 * 2**20
"""Rows are written once they take so much memory."""

_BASE_OF_THEIRS, _BASE_OF_OURS, _SOURCE, _TARGET = "base of theirs", "base of ours", "source", "target"
_KNOWN, _DECIDED = "known?", "decided?"
"""What a row is, beside its columns; no property can have such a name."""


@dataclass(frozen=True, slots=True)
class Job:
    """The merge of one table, as its tasks see it; it travels between processes."""

    task: Task
    theirs: Meeting
    ours: Meeting | None
    """None when the target did not change the type at all."""
    preview: bool
    """Whether conflicts are told that are decided."""
    scratch: str | None = None
    """The folder for the rows, among those of writes under way; None when they are not to be written."""
    without: pa.Array | None = field(default=None, repr=False)
    """Entities that were decided on otherwise: neither written nor deleted."""

    @property
    def root(self) -> Root:
        """The graph, as the process that runs a task reaches it."""
        return self.task.sides.target.graph.root

    @property
    def place(self) -> Location:
        """Where the rows wait."""
        return self.root.layout.staging / f"{self.scratch}/rows/{fnv1a64(self.task.target.key)}"

    def parts(self) -> list[Part]:
        """What there is to read, in tasks."""
        ours = [] if self.ours is None else self.ours.parts(_BASE_OF_OURS, _TARGET)
        return [*self.theirs.parts(_BASE_OF_THEIRS, _SOURCE), *ours]

    def rows(self) -> int:
        """About how many rows that are."""
        return self.theirs.rows() + (0 if self.ours is None else self.ours.rows())


@dataclass(frozen=True, slots=True)
class Told:
    """A contested entity."""

    conflict: MergeConflict
    is_open: bool
    is_named: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """What becomes of the entities of one bucket, as far as others have to know."""

    changed: int
    """How many entities the source changed."""
    ruled: pa.Table = field(repr=False)
    """The rows that the target gets, with the columns that rules look at."""
    deleted: pa.ChunkedArray = field(repr=False)
    values: tuple[Breach, ...]
    pieces: tuple[Piece, ...]
    settled: int
    told: tuple[Told, ...]
    contested: pa.Array = field(repr=False)
    """The ids of entities that the branches disagree on, where a decision can be about them."""


# --- in the tasks --------------------------------------------------------------------------------


def merged_bucket(job: Job, rows: Mapping[str, pa.Table]) -> Bucket:
    """Merge the entities of a bucket, and write what comes of it."""
    theirs = job.theirs.pairs(rows.get(_BASE_OF_THEIRS), rows.get(_SOURCE))
    ours = None if job.ours is None else job.ours.pairs(rows.get(_BASE_OF_OURS), rows.get(_TARGET))
    worked = Worked.of(replace(job.task, sides=job.task.sides.placed()), theirs, ours)
    writer = _Writer(job)
    for some in changed_rows(job.task.target, worked.sides, worked.delta, worked.verdict):
        writer.add(some)
    writer.finish()
    gone = deletions(worked.delta, worked.verdict)
    return Bucket(
        theirs.table.num_rows,
        pa.concat_tables(writer.ruled),
        gone if job.without is None else gone.filter(pa.array(~within(gone, job.without))),
        tuple(writer.values),
        tuple(writer.pieces),
        worked.settled,
        tuple(_told(job, worked)),
        _contested(job, worked),
    )


def _told(job: Job, worked: Worked) -> Iterator[Told]:
    named, left = worked.are_named, worked.verdict.open
    wanted = worked.before.open if job.preview else left | named
    rows = np.flatnonzero(wanted)
    for conflict, row in zip(worked.told(wanted), rows.tolist(), strict=True):
        yield Told(conflict, bool(left[row]), bool(named[row]))


def _contested(job: Job, worked: Worked) -> pa.Array:
    key, choices = job.task.target.key, job.task.choices
    if choices.of_type(key).take is None and not choices.of_entities(key):
        return pa.array([], pa.string())
    found = worked.before.contested.places.filter(pa.array(worked.before.open))
    return found.column(ID).combine_chunks()


class _Writer:
    """Rows of a bucket on their way to files: those that replace a stored one in files of their own."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._target = job.task.target
        self._waiting: dict[bool, list[pa.Table]] = {True: [], False: []}
        self._bytes = 0
        self.ruled = [_ruled_schema(self._target).empty_table()]
        self.values: list[Breach] = []
        self.pieces: list[Piece] = []

    def add(self, some: SomeRows) -> None:
        rows, known = some.rows, some.known
        if self._job.without is not None:
            kept = ~within(rows.column(ID), self._job.without)
            rows, known = rows.filter(pa.array(kept)), known[kept]
        self.values += value_breaches(self._target, rows)
        self.ruled.append(_ruled(self._target, rows, known, decided=some.decided))
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
                self.pieces += _written(self._job, pa.concat_tables(parts))
                parts.clear()
        self._bytes = 0


def _written(job: Job, rows: pa.Table) -> tuple[Piece, ...]:
    return write_pieces(job.root.tables.access, job.place, rows)


def _ruled_names(target: Target) -> list[str]:
    """The columns that rules about whole changes look at."""
    unique = [name for rule in target.owner.uniques for name in rule.columns]
    return list(dict.fromkeys([*SYSTEM_COLUMNS[target.kind], *unique]))


def _ruled_schema(target: Target) -> pa.Schema:
    marks = [pa.field(name, pa.uint8()) for name in (_KNOWN, _DECIDED)]
    return pa.schema([*(target.schema.field(name) for name in _ruled_names(target)), *marks])


def _ruled(target: Target, rows: pa.Table, known: Mask, *, decided: bool) -> pa.Table:
    marks = [pa.array(known.astype(np.uint8)), pa.array(np.full(rows.num_rows, decided, np.uint8))]
    # Copied: a column that storage returned keeps all others of its rows in memory.
    copied = rows.select(_ruled_names(target)).take(pa.array(np.arange(rows.num_rows)))
    columns = [copied.column(name) for name in _ruled_names(target)]
    return pa.table([*columns, *marks], schema=_ruled_schema(target))


# --- where the merge is worked out -----------------------------------------------------------------


@dataclass(frozen=True)
class LargeWork:
    """A table that is merged in buckets."""

    job: Job
    runner: Runner
    scratch: str | None
    """Where rows may be written if they have to be."""
    buckets: tuple[Bucket, ...] = field(repr=False)

    @classmethod
    def of(cls, job: Job, runner: Runner, scratch: str | None) -> LargeWork:
        """Merge the entities of a table."""
        return cls(job, runner, scratch, _run(job, runner))

    @property
    def is_nothing(self) -> bool:
        """Whether the source changed nothing after all."""
        return not any(one.changed for one in self.buckets)

    @property
    def sides(self) -> Sides:
        """The table at the base and on both branches."""
        return self.job.task.sides

    @property
    def settled(self) -> int:
        """How many entities that both branches changed were decided on."""
        return sum(one.settled for one in self.buckets)

    def change(self) -> TableChange:
        """What happens to the target."""
        return self._change

    @cached_property
    def _change(self) -> TableChange:
        return _together(self.job, self.buckets)

    def undecided_change(self) -> TableChange:
        """What would happen without decisions: worked out once more."""
        job = replace(self.job, task=replace(self.job.task, choices=Choices()), scratch=None)
        return _together(job, _run(job, self.runner))

    def contested(self) -> set[str]:
        """The entities that the branches disagree on, where a decision can be about them."""
        return {entity for one in self.buckets for entity in one.contested.to_pylist()}

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        return {one.entity_id for one in self.left() if one.entity_id is not None}

    def left(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return (told.conflict for one in self.buckets for told in one.told if told.is_open)

    def met(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        return (told.conflict for one in self.buckets for told in one.told)

    def named(self) -> Iterator[MergeConflict]:
        """Those that decisions name."""
        return (told.conflict for one in self.buckets for told in one.told if told.is_named)

    def effect(self, change: TableChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """The change as a write carries it out; what decisions about rules made of it is written anew."""
        pieces = self._rewritten(overruled) if overruled else change.pieces
        if pieces is not None and change.known.any():
            entry = self.sides.target.snapshot.entries[self.job.task.target.key]
            pieces = matched_pieces(self.runner, self.job, pieces, entry)
        return replace(change, pieces=pieces).effect()

    def _rewritten(self, chosen: Mapping[str, EntityChoice]) -> Pieces:
        ids = pa.array(list(chosen), pa.string())
        job = replace(self.job, scratch=self.scratch, without=ids)
        pieces = [piece for one in _run(job, self.runner) for piece in one.pieces]
        target = job.task.target
        instead = overruled(TableChange.nothing(target), chosen, self.sides)
        for wanted in (instead.known, ~instead.known):
            if wanted.any():
                pieces += _written(job, instead.rows.filter(pa.array(wanted)))
        return Pieces(job.place, target.schema, tuple(pieces))


def _run(job: Job, runner: Runner) -> tuple[Bucket, ...]:
    buckets = buckets_for(job.rows(), runner.cores)
    task = partial(merged_bucket, job)
    return tuple(runner.grouped("merge", job.parts(), emitted, task, buckets, streamed=True))


def _together(job: Job, buckets: tuple[Bucket, ...]) -> TableChange:
    """What all buckets come to; in the order in which it would be found without them."""
    target = job.task.target
    ruled = pa.concat_tables([_ruled_schema(target).empty_table(), *(one.ruled for one in buckets)])
    ruled = ruled.sort_by([(_DECIDED, "ascending"), (ID, "ascending")])
    chunks = [chunk for one in buckets for chunk in one.deleted.chunks]
    pieces = tuple(piece for one in buckets for piece in one.pieces)
    return TableChange(
        target,
        ruled.select(_ruled_names(target)),
        np.asarray(ruled.column(_KNOWN)).astype(np.bool_),
        pa.chunked_array(chunks, pa.string()),
        tuple(breach for one in buckets for breach in one.values),
        Pieces(job.place, target.schema, pieces) if job.scratch is not None else None,
    )
