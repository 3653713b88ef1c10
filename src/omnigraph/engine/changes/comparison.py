"""Two sides of a table, compared by id: in parts that tasks read and buckets that tasks compare.

A fragment is the same on both sides until a write changes it. So tasks read only the fragments that the sides
do not share, and of fragments that only lost rows, the rows that one side has alone. Memory follows the size
of a bucket, never that of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.row_pairs import (
    LEFT,
    PAIRS_SCHEMA,
    RIGHT,
    RowPairs,
    compare_since,
    divergence_of,
    keep_changed,
)
from omnigraph.engine.changes.table_side import ROW_ID, Divergence, TableSide
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.tasks.buckets import MAX_BUCKETS
from omnigraph.engine.tasks.runner import KeyedRows, LocalRunner, Runner, select_engine
from omnigraph.storage.delta import FragmentDiff, diff_fragments
from omnigraph.storage.fragments import Fragment, group_by_rows, list_fragments
from omnigraph.storage.scratch import TemporaryFolder, write_rows

WRITTEN_AT = "_row_last_updated_at_version"
ROW_NUMBER = "number"
ENTITY_ROWS = pa.schema(
    [(ID, pa.string()), (ROW_ID, pa.uint64()), (WRITTEN_AT, pa.uint64()), (ROW_NUMBER, pa.uint64())]
)
"""An entity, its row id, the version that wrote it, and the number by which its side reads it."""

ROWS_PER_PART = 1 << 20
ROWS_PER_BUCKET = 1 << 19


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """A fragment, the offset of its first row in the table, and its number of rows."""

    fragment: int
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class SidePart:
    """Some rows of a side that may differ from the other side; one task reads them."""

    tag: str
    side: TableSide
    fragments: tuple[FragmentRows, ...] = field(repr=False)
    other: TableSide | None = None
    """The other side of shared fragments: rows that it has too are skipped."""

    def read(self) -> pa.Table:
        """The places of the entities."""
        chosen = [one.fragment for one in self.fragments]
        with self.side.explain_failures():
            found = self.side.table.scan(ENTITY_ROWS.names[:-1], fragments=chosen)
        numbers = found.column(ROW_ID)
        if self.side.by_place:
            runs = [np.arange(one.start, one.start + one.rows, dtype=np.uint64) for one in self.fragments]
            numbers = pa.array(np.concatenate(runs))
        found = found.append_column(ROW_NUMBER, numbers).cast(ENTITY_ROWS)
        if self.other is None:
            return found
        with self.other.explain_failures():
            there = self.other.table.scan([ROW_ID], fragments=chosen, ordered=False).column(ROW_ID)
        return found.filter(pc.invert(pc.is_in(found.column(ROW_ID), value_set=there.combine_chunks())))


class RowSource(Protocol):
    """Rows that a task reads."""

    @property
    def tag(self) -> str:
        """What the rows are."""
        ...

    def read(self) -> pa.Table:
        """The rows, with the ids of their entities."""
        ...


def emit_rows(part: RowSource) -> Iterator[KeyedRows]:
    """Yield the rows of a part, keyed by id."""
    yield KeyedRows(part.tag, part.read(), ID)


@dataclass(frozen=True)
class TableComparison:
    """Two sides of a type; a side is None where the type is not known.

    Parts and buckets number rows by place: to read rows by row id, a process must first load the row id index
    of the whole table.
    """

    left: TableSide | None
    right: TableSide | None
    by_place: bool = field(default=True, kw_only=True)
    """Whether rows may be numbered by place; not where row ids are compared with those of other tables."""

    @property
    def numbered_sides(self) -> tuple[TableSide | None, TableSide | None]:
        """Both sides, with the row numbers that parts and buckets use."""
        if not self.by_place:
            return self.left, self.right
        left, right = (None if side is None else side.number_by_place() for side in (self.left, self.right))
        return left, right

    @cached_property
    def divergence(self) -> Divergence | None:
        """Where the tables diverged; None when that is unknown, and all rows are compared."""
        return divergence_of(self.left, self.right)

    @property
    def is_linear(self) -> bool:
        """Whether the right side descends directly from the version on the left."""
        return self.divergence is not None and not self.divergence.left

    def compare_in_memory(self, *, late: bool = False) -> RowPairs:
        """Return the entities that differ, compared in this process; see `compare_since`."""
        return compare_since(self.left, self.right, self.divergence, late=late)

    def max_rows(self) -> int:
        """Return an upper bound of the rows that differ, from the manifest alone."""
        return sum(side.count() for side in (self.left, self.right) if side is not None)

    def estimate_rows(self) -> int:
        """Estimate how many rows may differ, without reading any; too high after a compaction."""
        apart = self._unshared()
        return apart.rows if apart is not None else sum(one.rows for one in self._all_fragments())

    def count_written_rows(self) -> int:
        """Count the rows that either side wrote or lost since they diverged, without compacted ones."""
        apart = self._unshared()
        if apart is None or self.left is None or self.right is None:
            return self.estimate_rows()
        sides = ((self.left, apart.left), (self.right, apart.right))
        fresh = sum(_count_since(side, found, self._diverged_at) for side, found in sides)
        return fresh + apart.deleted + max(0, self.left.count() - self.right.count())

    def parts(self, left: str = LEFT, right: str = RIGHT) -> list[SidePart]:
        """Return what the tasks have to read; the tags name the sides."""
        apart, (ours, theirs) = self._unshared(), self.numbered_sides
        if apart is None or ours is None or theirs is None:
            sides = ((left, ours), (right, theirs))
            return [
                part
                for tag, side in sides
                if side is not None
                for part in _split_parts(tag, side, list_fragments(side.table))
            ]
        return [
            *_split_parts(left, ours, apart.left),
            *_split_parts(right, theirs, apart.right),
            *_split_parts(left, ours, apart.both, theirs),
            *_split_parts(right, theirs, apart.both, ours),
        ]

    def compare_bucket(self, left: pa.Table | None, right: pa.Table | None) -> RowPairs:
        """Return the entities of a bucket that differ."""
        return keep_changed(*self.numbered_sides, self._candidates(left, right))

    def _candidates(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        ours = (ENTITY_ROWS.empty_table() if left is None else left).rename_columns(
            [ID, "our row", "ours", LEFT]
        )
        theirs = ENTITY_ROWS.empty_table() if right is None else right
        theirs = theirs.rename_columns([ID, "their row", "theirs", RIGHT])
        joined = ours.join(theirs, ID, join_type="full outer")
        if self.divergence is not None:
            same = pc.and_(
                pc.equal(joined.column("our row"), joined.column("their row")),
                pc.and_(
                    pc.equal(joined.column("ours"), joined.column("theirs")),
                    pc.less_equal(joined.column("ours"), self._diverged_at),
                ),
            )
            # Such a row was only moved: it has not changed since they diverged.
            joined = joined.filter(pc.invert(pc.fill_null(same, False)))
        return joined.select(PAIRS_SCHEMA.names)

    @property
    def _diverged_at(self) -> int:
        """The version at which the sides diverged: rows written later belong to one side."""
        return -1 if self.divergence is None else self.divergence.point.version

    def _unshared(self) -> FragmentDiff | None:
        if self.divergence is None or self.left is None or self.right is None:
            return None
        return diff_fragments(self.left.table, self.right.table)

    def _all_fragments(self) -> list[Fragment]:
        sides = (side for side in (self.left, self.right) if side is not None)
        return [one for side in sides for one in list_fragments(side.table)]


def count_buckets(rows: int, cores: int) -> int:
    """Return the number of buckets for so many rows: each is small, and every core has one."""
    return min(MAX_BUCKETS, max(cores, -(-rows // ROWS_PER_BUCKET)))


def _count_since(side: TableSide, found: Sequence[Fragment], since: int) -> int:
    if not found:
        return 0
    numbers = [one.id for one in found]
    with side.explain_failures():
        batches = side.table.batches(
            [ROW_ID], where=f"{WRITTEN_AT} > {since}", fragments=numbers, ordered=False
        )
        return sum(batch.num_rows for batch in batches)


def _split_parts(
    tag: str, side: TableSide, found: Sequence[Fragment], other: TableSide | None = None
) -> Iterator[SidePart]:
    starts = _locate_fragments(side)
    for some in group_by_rows(found, ROWS_PER_PART):
        yield SidePart(tag, side, tuple(starts[one.id] for one in some), other)


def _locate_fragments(side: TableSide) -> dict[int, FragmentRows]:
    """Return the offset of each fragment in the table."""
    found: dict[int, FragmentRows] = {}
    start = 0
    for fragment in list_fragments(side.table):
        found[fragment.id] = FragmentRows(fragment.id, start, fragment.rows)
        start += fragment.rows
    return found


ROWS_READ = 65_536
"""How many rows of all runs are in memory at a time."""


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """The entities of a type that differ, by id, in files of this process."""

    left: TableSide | None
    right: TableSide | None
    stat: ChangeCounts
    """How many there are of each sort."""
    files: tuple[Path, ...] = field(repr=False)
    folder: TemporaryFolder = field(repr=False)
    after: str | None = None

    def beyond(self, entity: str) -> SortedRuns:
        """Return the pairs after an id."""
        return replace(self, after=entity)

    def portions(self) -> Iterator[RowPairs]:
        """Yield all pairs in order, a portion at a time."""
        for table in merge_runs([_read_run(file) for file in self.files]):
            found = table if self.after is None else table.filter(pc.greater(table.column(ID), self.after))
            if found.num_rows:
                yield RowPairs(self.left, self.right, found)


def compare_by_tasks(comparison: TableComparison, runner: Runner) -> SortedRuns:
    """Return the entities that differ between two sides, compared bucket by bucket."""
    buckets = count_buckets(comparison.estimate_rows(), runner.cores)
    answers = runner.grouped(
        "compare", comparison.parts(), emit_rows, partial(_compare_bucket, comparison), buckets, streamed=True
    )
    return _write_runs(comparison, answers, max(1, ROWS_READ // buckets))


def _compare_bucket(comparison: TableComparison, rows: dict[str, pa.Table]) -> pa.Table:
    return comparison.compare_bucket(rows.get(LEFT), rows.get(RIGHT)).table


def _write_runs(comparison: TableComparison, answers: Iterable[pa.Table], at_once: int) -> SortedRuns:
    folder, files, stat = TemporaryFolder("changes"), [], ChangeCounts()
    for number, run in enumerate(answers):
        if not run.num_rows:
            continue
        file = folder.path / f"{number}.arrow"
        write_rows(
            file, PAIRS_SCHEMA, run.cast(PAIRS_SCHEMA).combine_chunks().to_batches(max_chunksize=at_once)
        )
        files.append(file)
        more = RowPairs(*comparison.numbered_sides, run).stat
        stat = ChangeCounts(
            stat.inserted + more.inserted, stat.updated + more.updated, stat.deleted + more.deleted
        )
    return SortedRuns(*comparison.numbered_sides, stat, tuple(files), folder)


def _read_run(file: Path) -> Iterator[pa.Table]:
    """The portions of a run; between two of them its file is closed, as there may be thousands of runs."""
    at = 0
    while True:
        with pa.OSFile(str(file), "rb") as source:
            source.seek(at)
            try:
                message = pa.ipc.read_message(source)
            except EOFError:
                return
            at = source.tell()
        if message.type == "record batch":
            yield pa.Table.from_batches([pa.ipc.read_record_batch(message, PAIRS_SCHEMA)])


def merge_runs(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows of sorted runs in order; one portion of every run is in memory."""
    heads = {number: next(run) for number, run in enumerate(runs)}
    while heads:
        # What is not beyond the end of any portion cannot be preceded by anything that is still unread.
        bound = min(head.column(ID)[-1].as_py() for head in heads.values())
        taken = []
        for number, head in list(heads.items()):
            ready = pc.sum(pc.less_equal(head.column(ID), bound)).as_py()
            taken.append(head.slice(0, ready))
            rest = head.slice(ready) if ready < head.num_rows else next(runs[number], None)
            if rest is None:
                del heads[number]
            else:
                heads[number] = rest
        yield pa.concat_tables(taken).sort_by(ID)


LARGE_CHANGE = 1_000_000
"""Above this number of changed rows, a type is compared in buckets, by tasks."""

BYTES_PER_ROW = 100
"""The assumed size of a changed row, for engines chosen by input size."""


class RunnerChoice:
    """The requested engine; another process is only started when it is needed."""

    def __init__(self, engine: str = "local") -> None:
        self._engine = engine
        self._runner: Runner | None = None
        if engine not in ("auto", "local", "spark"):
            select_engine(engine, 0)

    def choose_runner(self, *comparisons: TableComparison) -> Runner | None:
        """Return the runner for tasks; None when this process compares everything in memory."""
        if self._engine not in ("auto", "local"):
            return self._engine_runner(0)
        rows = 0
        for count in (
            TableComparison.max_rows,
            TableComparison.estimate_rows,
            TableComparison.count_written_rows,
        ):
            rows = sum(count(one) for one in comparisons)
            if rows <= LARGE_CHANGE:
                return None
        return LocalRunner() if self._engine == "local" else self._engine_runner(rows)

    def _engine_runner(self, rows: int) -> Runner:
        if self._runner is None:
            found = select_engine(self._engine, rows * BYTES_PER_ROW)
            self._runner = LocalRunner() if found is None else found.runner
        return self._runner
