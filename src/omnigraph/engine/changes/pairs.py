"""Which entities of a type differ between two moments, and in which rows they are.

Where both moments are versions of one table, the storage tells which rows were written since they parted, at
a cost that follows these rows. Otherwise the rows of both are compared, all of them. Either way entities are
joined on their ids, never on the numbers of rows: after a fork both sides give the same numbers to new rows.
And either way contents decide, so that a row that was only rewritten is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.ancestry import Parting, Point, Stretch, parting
from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.equality import Mask, differing
from omnigraph.engine.changes.side import PLACES, ROW, Side
from omnigraph.engine.columns import ID
from omnigraph.errors import StorageFailure
from omnigraph.storage.delta import Delta
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.tables import Table

LEFT, RIGHT = "left", "right"
SCHEMA = pa.schema([(ID, pa.string()), (LEFT, pa.uint64()), (RIGHT, pa.uint64())])
"""An entity and the row that holds it on each side, null where it is not there."""

_COMPARED_AT_ONCE, _ROWS_WITH_BLOBS = 32_768, 256


@dataclass(frozen=True, slots=True)
class Pairs:
    """The entities of a type that differ, by id."""

    left: Side | None
    right: Side | None
    table: pa.Table

    @property
    def sides(self) -> tuple[Side | None, Side | None]:
        """Before and after."""
        return self.left, self.right

    @property
    def stat(self) -> Stat:
        """How many there are of each sort."""
        deleted, inserted = (self.table.column(side).null_count for side in (RIGHT, LEFT))
        return Stat(inserted, self.table.num_rows - inserted - deleted, deleted)

    def beyond(self, entity: str) -> Pairs:
        """Those after an id."""
        return replace(self, table=self.table.filter(pc.greater(self.table.column(ID), entity)))


def pairs_of(left: Side | None, right: Side | None, *, whole: bool = False) -> Pairs:
    """The entities that differ between two sides; a side is None where the type is not known.

    `whole` compares all rows, whatever is known of how the sides came about.
    """
    found = _joined(_every(left), _every(right)) if whole else _candidates(left, right)
    if left is not None and right is not None:
        found = _differing(left, right, found)
    return Pairs(left, right, found.sort_by(ID))


def changed_columns(left: Side, right: Side, before: pa.Table, after: pa.Table) -> dict[str, Mask]:
    """For each column, and each row, whether two tables of rows differ there.

    A property that only one of the schemas has counts as null on the other side.
    """
    names = [*dict.fromkeys([*left.system[1:], *right.types, *left.types])]
    found = {}
    for name in names:
        if name in before.column_names and name in after.column_names:
            found[name] = differing(before.column(name), after.column(name))
        else:
            present = (before if name in before.column_names else after).column(name)
            found[name] = np.array(present.is_valid().to_numpy(), np.bool_)
    return found


def pieces(table: pa.Table, sides: Sequence[Side | None], rows: int) -> Iterator[pa.Table]:
    """Pairs in portions of so many rows; of fewer where a row can be large."""
    size = min(rows, _ROWS_WITH_BLOBS) if any(side is not None and side.blobs for side in sides) else rows
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def row_ids(pairs: pa.Table, side: str) -> pa.Array:
    """The rows of one side, as an array."""
    return pa.concat_arrays(pairs.column(side).chunks) if pairs.num_rows else pa.array([], pa.uint64())


# --- what may differ -----------------------------------------------------------------------------


def _candidates(left: Side | None, right: Side | None) -> pa.Table:
    if left is None or right is None:
        return _joined(_every(left), _every(right))
    found = _parting(left, right)
    written = None if found is None else _written_since(found, left, right)
    return _joined(left.every(), right.every()) if written is None else _joined(*written)


def _every(side: Side | None) -> pa.Table:
    return PLACES.empty_table() if side is None else side.every()


def _joined(left: pa.Table, right: pa.Table) -> pa.Table:
    ours, theirs = left.rename_columns([ID, LEFT]), right.rename_columns([ID, RIGHT])
    if not ours.num_rows:
        ours = theirs.append_column(LEFT, pa.nulls(theirs.num_rows, pa.uint64()))
        return ours.select(SCHEMA.names)
    if not theirs.num_rows:
        return ours.append_column(RIGHT, pa.nulls(ours.num_rows, pa.uint64()))
    return ours.join(theirs, ID, join_type="full outer").select(SCHEMA.names)


def _parting(left: Side, right: Side) -> Parting | None:
    if left.table.location != right.table.location:
        return None
    if not (left.table.has_stable_row_ids and right.table.has_stable_row_ids):
        return None
    return parting(left.graph.root.forks, left.table.location, left.point, right.point)


def _written_since(at: Parting, left: Side, right: Side) -> tuple[pa.Table, pa.Table] | None:
    """The places on each side of what either of them wrote; None when the way cannot be read any more."""
    ours, theirs = _trace(left, at.left, right), _trace(right, at.right, left)
    if ours is None or theirs is None:
        return None
    # Rows that were there when they parted have one number on both sides.
    common = pc.unique(pa.concat_arrays([ours.old, theirs.old]))
    return _all_places(left, ours, common), _all_places(right, theirs, common)


@dataclass(frozen=True, slots=True)
class _Trace:
    """The rows that one side wrote."""

    new: pa.Table
    """The places of entities that it added."""
    old: pa.Array
    """Rows that were there before, and that it rewrote or removed."""


def _all_places(side: Side, trace: _Trace, common: pa.Array) -> pa.Table:
    return pa.concat_tables([trace.new, side.places(common)])


def _trace(side: Side, way: Sequence[Stretch], other: Side) -> _Trace | None:
    known = {side.point: side.table, other.point: other.table}
    added, touched = [PLACES.empty_table()], [pa.array([], pa.uint64())]
    for stretch in way:
        ends = _ends(side, stretch, known)
        if ends is None:
            return None
        delta = Delta(*ends)
        with other.reading(), side.reading():
            added.append(delta.inserted().select(PLACES.names).cast(PLACES))
            touched += [pa.concat_arrays(delta.updated().column(ROW).chunks or touched[:1])]
            touched.append(delta.deleted_row_ids().cast(pa.uint64()))
    new, old = pa.concat_tables(added), pa.concat_arrays(touched)
    if len(way) > 1:
        # What one stretch added, a later one may have rewritten or removed.
        rows = new.column(ROW).combine_chunks()
        old = old.filter(pc.invert(pc.is_in(old, value_set=rows)))
        new = side.places(rows)
    return _Trace(new, old)


def _ends(side: Side, stretch: Stretch, known: dict[Point, Table]) -> tuple[Table, Table] | None:
    begin = Point(stretch.end.owner, stretch.begin)
    try:
        first, last = (known.get(point) or _opened(side, point) for point in (begin, stretch.end))
    except StorageFailure as failure:
        if failure.kind in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
            return None
        raise
    return first, last


def _opened(side: Side, point: Point) -> Table:
    return side.graph.root.tables.open(side.table.location, point.version, branch=point.owner)


# --- what does differ ----------------------------------------------------------------------------


def _differing(left: Side, right: Side, candidates: pa.Table) -> pa.Table:
    """The candidates that are only on one side, and those whose values differ."""
    both = pc.and_(candidates.column(LEFT).is_valid(), candidates.column(RIGHT).is_valid())
    alone = candidates.filter(pc.invert(both))
    # In the order of storage, because neighbours are read together.
    shared = candidates.filter(both).sort_by(LEFT)
    parts = pieces(shared, (left, right), _COMPARED_AT_ONCE)
    kept = [part.filter(pa.array(_any_differs(left, right, part))) for part in parts]
    return pa.concat_tables([alone, *kept])


def _any_differs(left: Side, right: Side, pairs: pa.Table) -> Mask:
    before, after = left.rows(row_ids(pairs, LEFT)), right.rows(row_ids(pairs, RIGHT))
    columns = changed_columns(left, right, before, after).values()
    found: Mask = np.logical_or.reduce([np.zeros(pairs.num_rows, np.bool_), *columns])
    return found
