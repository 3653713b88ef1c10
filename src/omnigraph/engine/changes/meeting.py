"""Entities of two moments that meet by id, in parts that tasks read and buckets that tasks compare.

What storage calls a fragment is the same on both sides as long as nobody wrote to it. So only fragments that
the two do not share are read, and of those that merely lost rows only the rows that one side has alone.
Memory follows the size of a bucket, never that of the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.ancestry import Parting
from omnigraph.engine.changes.pairs import (
    LEFT,
    RIGHT,
    SCHEMA,
    Pairs,
    pairs_since,
    parting_of,
    those_that_differ,
)
from omnigraph.engine.changes.side import ROW, Side
from omnigraph.engine.columns import ID
from omnigraph.engine.load.buckets import MOST
from omnigraph.engine.load.runner import Keyed
from omnigraph.storage.delta import Unshared, unshared
from omnigraph.storage.fragments import Fragment, fragments, portions

WRITTEN = "_row_last_updated_at_version"
NUMBER = "number"
MET = pa.schema([(ID, pa.string()), (ROW, pa.uint64()), (WRITTEN, pa.uint64()), (NUMBER, pa.uint64())])
"""An entity, its row, the version that wrote it, and the number by which its side finds it again."""

ROWS_PER_PART = 1 << 20
ROWS_PER_BUCKET = 1 << 19


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a fragment, and the place of the first of them in the table."""

    fragment: int
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows of a side that may differ from the other one; a task reads it."""

    tag: str
    side: Side
    fragments: tuple[Run, ...] = field(repr=False)
    other: Side | None = None
    """Has the same fragments, and of these the rows are left out that it has as well."""

    def read(self) -> pa.Table:
        """The places of the entities."""
        chosen = [one.fragment for one in self.fragments]
        with self.side.reading():
            found = self.side.table.scan(MET.names[:-1], fragments=chosen)
        numbers = found.column(ROW)
        if self.side.by_place:
            runs = [np.arange(one.start, one.start + one.rows, dtype=np.uint64) for one in self.fragments]
            numbers = pa.array(np.concatenate(runs))
        found = found.append_column(NUMBER, numbers).cast(MET)
        if self.other is None:
            return found
        with self.other.reading():
            there = self.other.table.scan([ROW], fragments=chosen, ordered=False).column(ROW)
        return found.filter(pc.invert(pc.is_in(found.column(ROW), value_set=there.combine_chunks())))


def emitted(part: Part) -> Iterator[Keyed]:
    """The rows of a part on their way to those with the same id."""
    yield Keyed(part.tag, part.read(), ID)


@dataclass(frozen=True)
class Meeting:
    """Two sides of a type; a side is None where the type is not known.

    In parts and buckets rows are found by their places, because to find them by row ids a process has to
    learn first where each row of a table is.
    """

    left: Side | None
    right: Side | None

    @property
    def placed(self) -> tuple[Side | None, Side | None]:
        """Both sides, as the numbers in parts and buckets are meant."""
        left, right = (None if side is None else side.placed() for side in (self.left, self.right))
        return left, right

    @cached_property
    def at(self) -> Parting | None:
        """Where their tables parted; None when that cannot be told, and all rows are compared."""
        return parting_of(self.left, self.right)

    @property
    def goes_on(self) -> bool:
        """Whether the right side came about from the very version of the left one."""
        return self.at is not None and not self.at.left

    def together(self, *, late: bool = False) -> Pairs:
        """The entities that differ, found at once in this process; see `pairs_since`."""
        return pairs_since(self.left, self.right, self.at, late=late)

    def most(self) -> int:
        """How many rows can differ at most, told at no cost."""
        return sum(side.count() for side in (self.left, self.right) if side is not None)

    def rows(self) -> int:
        """About how many rows may differ, told without reading any; after a compaction rather more."""
        apart = self._apart()
        return apart.rows if apart is not None else sum(one.rows for one in self._all())

    def written(self) -> int:
        """How many rows either side wrote or lost since they parted: compacted ones do not count."""
        apart = self._apart()
        if apart is None or self.left is None or self.right is None:
            return self.rows()
        sides = ((self.left, apart.left), (self.right, apart.right))
        fresh = sum(_count_since(side, found, self._since) for side, found in sides)
        return fresh + apart.deleted + max(0, self.left.count() - self.right.count())

    def parts(self, left: str = LEFT, right: str = RIGHT) -> list[Part]:
        """What there is to read, in tasks; the sides are told apart by these tags."""
        apart, (ours, theirs) = self._apart(), self.placed
        if apart is None or ours is None or theirs is None:
            sides = ((left, ours), (right, theirs))
            return [
                part
                for tag, side in sides
                if side is not None
                for part in _parts(tag, side, fragments(side.table))
            ]
        return [
            *_parts(left, ours, apart.left),
            *_parts(right, theirs, apart.right),
            *_parts(left, ours, apart.both, theirs),
            *_parts(right, theirs, apart.both, ours),
        ]

    def pairs(self, left: pa.Table | None, right: pa.Table | None) -> Pairs:
        """The entities of a bucket that differ; its rows are those of all parts."""
        return those_that_differ(*self.placed, self._candidates(left, right))

    def _candidates(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        ours = (MET.empty_table() if left is None else left).rename_columns([ID, "our row", "ours", LEFT])
        theirs = MET.empty_table() if right is None else right
        theirs = theirs.rename_columns([ID, "their row", "theirs", RIGHT])
        met = ours.join(theirs, ID, join_type="full outer")
        if self.at is not None:
            same = pc.and_(
                pc.equal(met.column("our row"), met.column("their row")),
                pc.and_(
                    pc.equal(met.column("ours"), met.column("theirs")),
                    pc.less_equal(met.column("ours"), self._since),
                ),
            )
            # Such a row was only moved: it is what it was when they parted.
            met = met.filter(pc.invert(pc.fill_null(same, False)))
        return met.select(SCHEMA.names)

    @property
    def _since(self) -> int:
        """Rows that were written later are of one side alone."""
        return -1 if self.at is None else self.at.point.version

    def _apart(self) -> Unshared | None:
        if self.at is None or self.left is None or self.right is None:
            return None
        return unshared(self.left.table, self.right.table)

    def _all(self) -> list[Fragment]:
        sides = (side for side in (self.left, self.right) if side is not None)
        return [one for side in sides for one in fragments(side.table)]


def buckets_for(rows: int, cores: int) -> int:
    """Into how many buckets so many rows go: each is small, and there is one for every core."""
    return min(MOST, max(cores, -(-rows // ROWS_PER_BUCKET)))


def _count_since(side: Side, found: Sequence[Fragment], since: int) -> int:
    if not found:
        return 0
    numbers = [one.id for one in found]
    with side.reading():
        batches = side.table.batches([ROW], where=f"{WRITTEN} > {since}", fragments=numbers, ordered=False)
        return sum(batch.num_rows for batch in batches)


def _parts(tag: str, side: Side, found: Sequence[Fragment], other: Side | None = None) -> Iterator[Part]:
    starts = _starts(side)
    for some in portions(found, ROWS_PER_PART):
        yield Part(tag, side, tuple(starts[one.id] for one in some), other)


def _starts(side: Side) -> dict[int, Run]:
    """Where each fragment begins in the order of the table."""
    found: dict[int, Run] = {}
    start = 0
    for fragment in fragments(side.table):
        found[fragment.id] = Run(fragment.id, start, fragment.rows)
        start += fragment.rows
    return found
