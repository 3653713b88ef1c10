"""Which entities of a type differ between two moments, and in which rows they are.

Where both moments are versions of one table, the storage tells which rows were written since they parted, at
a cost that follows these rows. Otherwise the rows of both are compared, all of them. Either way entities are
joined on their ids, never on the numbers of rows: after a fork both sides give the same numbers to new rows.
And either way contents decide, so that a row that was only rewritten is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.ancestry import Parting, Point, Stretch, parting
from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.equality import Mask, differing
from omnigraph.engine.changes.side import FEW, PLACES, ROW, Side
from omnigraph.engine.columns import ID
from omnigraph.errors import StorageFailure
from omnigraph.storage.delta import CREATED_AT, Delta
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.tables import Table

LEFT, RIGHT = "left", "right"
SCHEMA = pa.schema([(ID, pa.string()), (LEFT, pa.uint64()), (RIGHT, pa.uint64())])
"""An entity and the row that holds it on each side, null where it is not there."""

_COMPARED_AT_ONCE, _ROWS_WITH_BLOBS = 32_768, 256
_SAMPLED, _SOME, _APART = 32, 256, 256
"""How many rows tell which columns are worth reading first. It pays from `_SOME` rows that lie `_APART` rows
from one another: then each column of each row is read by itself.
"""


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

    def portions(self) -> Iterator[Pairs]:
        """All of them at once: they are in memory."""
        yield self


def pairs_of(left: Side | None, right: Side | None, *, whole: bool = False) -> Pairs:
    """The entities that differ between two sides; a side is None where the type is not known.

    `whole` compares all rows, whatever is known of how the sides came about.
    """
    if whole:
        return those_that_differ(left, right, joined(_every(left), _every(right)))
    return pairs_since(left, right, parting_of(left, right))


def pairs_since(left: Side | None, right: Side | None, at: Parting | None, *, late: bool = False) -> Pairs:
    """The same, once it is known where they parted.

    `late` is for whoever does not go on to read the rows of both sides: of rows that differ only as many
    columns are read as it takes to tell.
    """
    return those_that_differ(left, right, _candidates(left, right, at), late=late)


def those_that_differ(
    left: Side | None, right: Side | None, candidates: pa.Table, *, late: bool = False
) -> Pairs:
    """Of entities that may differ those that do, by id."""
    found = candidates
    if left is not None and right is not None:
        found = _differing(left, right, candidates, late)
    return Pairs(left, right, found.sort_by(ID))


def changed_columns(
    left: Side, right: Side, before: pa.Table, after: pa.Table, names: Sequence[str] | None = None
) -> dict[str, Mask]:
    """For each column, and each row, whether two tables of rows differ there.

    A property that only one of the schemas has counts as null on the other side.
    """
    found = {}
    for name in _compared(left, right) if names is None else names:
        if name in before.column_names and name in after.column_names:
            found[name] = differing(before.column(name), after.column(name))
        else:
            present = (before if name in before.column_names else after).column(name)
            found[name] = np.array(present.is_valid().to_numpy(), np.bool_)
    return found


def _compared(left: Side, right: Side) -> list[str]:
    """Every column in which rows of two sides can differ."""
    return [*dict.fromkeys([*left.system[1:], *right.types, *left.types])]


def pieces(table: pa.Table, sides: Sequence[Side | None], rows: int) -> Iterator[pa.Table]:
    """Pairs in portions of so many rows; of fewer where a row can be large."""
    size = min(rows, _ROWS_WITH_BLOBS) if any(side is not None and side.blobs for side in sides) else rows
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def row_ids(pairs: pa.Table, side: str) -> pa.Array:
    """The rows of one side, as an array."""
    return pa.concat_arrays(pairs.column(side).chunks) if pairs.num_rows else pa.array([], pa.uint64())


# --- what may differ -----------------------------------------------------------------------------


def _candidates(left: Side | None, right: Side | None, at: Parting | None) -> pa.Table:
    if left is None or right is None:
        return joined(_every(left), _every(right))
    written = None if at is None else _written_since(at, left, right)
    return joined(left.every(), right.every()) if written is None else joined(*written)


def _every(side: Side | None) -> pa.Table:
    return PLACES.empty_table() if side is None else side.every()


def joined(left: pa.Table, right: pa.Table) -> pa.Table:
    """Places of both sides by id."""
    ours, theirs = left.rename_columns([ID, LEFT]), right.rename_columns([ID, RIGHT])
    if not ours.num_rows:
        ours = theirs.append_column(LEFT, pa.nulls(theirs.num_rows, pa.uint64()))
        return ours.select(SCHEMA.names)
    if not theirs.num_rows:
        return ours.append_column(RIGHT, pa.nulls(ours.num_rows, pa.uint64()))
    return ours.join(theirs, ID, join_type="full outer").select(SCHEMA.names)


def parting_of(left: Side | None, right: Side | None) -> Parting | None:
    """Where the tables of two sides parted; None when that cannot be told."""
    if left is None or right is None or left.table.location != right.table.location:
        return None
    if not (left.table.has_stable_row_ids and right.table.has_stable_row_ids):
        return None
    lives = left.table.life, right.table.life
    return parting(left.graph.root.forks, left.table.location, left.point, right.point, lives)


def _written_since(at: Parting, left: Side, right: Side) -> tuple[pa.Table, pa.Table] | None:
    """The places on each side of what either of them wrote; None when the way cannot be read any more."""
    ours, theirs = _trace(left, at.left, right), _trace(right, at.right, left)
    if ours is None or theirs is None:
        return None
    # Rows that were there when they parted have one number on both sides, and hold one entity: only with its
    # id can a row be rewritten.
    named = pa.concat_tables([ours.rewritten, theirs.rewritten])
    common = pc.unique(pa.concat_arrays([ours.gone, theirs.gone, *named.column(ROW).chunks]))
    return _all_places(left, ours, common, named), _all_places(right, theirs, common, named)


@dataclass(frozen=True, slots=True)
class _Trace:
    """The rows that one side wrote."""

    new: pa.Table
    """The places of entities that it added."""
    rewritten: pa.Table
    """Those of entities that were there before, and that it wrote anew; it may have removed them later."""
    gone: pa.Array
    """Rows that were there before, and that it removed."""


def _all_places(side: Side, trace: _Trace, common: pa.Array, named: pa.Table) -> pa.Table:
    """What it added, and what it still has of the common rows; those with a name are not read for it."""
    still = _except(common, trace.gone)
    at = pc.index_in(still, value_set=named.column(ROW).combine_chunks())
    known = named.take(at.drop_null())
    return pa.concat_tables([trace.new, known, side.places(still.filter(at.is_null()))])


def _except(rows: pa.Array, others: pa.Array) -> pa.Array:
    return rows.filter(pc.invert(pc.is_in(rows, value_set=others)))


def _trace(side: Side, way: Sequence[Stretch], other: Side) -> _Trace | None:
    known = {side.point: side.table, other.point: other.table}
    added, named, gone = [PLACES.empty_table()], [PLACES.empty_table()], [pa.array([], pa.uint64())]
    for stretch in way:
        ends = _ends(side, stretch, known)
        if ends is None:
            return None
        with other.reading(), side.reading():
            new, rewritten, removed = _told(side, Delta(*ends))
        added.append(new)
        named.append(rewritten)
        gone.append(removed)
    trace = _Trace(pa.concat_tables(added), pa.concat_tables(named), pa.concat_arrays(gone))
    return trace if len(way) == 1 else _over_stretches(side, trace)


def _over_stretches(side: Side, trace: _Trace) -> _Trace:
    """What one stretch added, a later one may have rewritten or removed."""
    rows = trace.new.column(ROW).combine_chunks()
    old = pc.invert(pc.is_in(trace.rewritten.column(ROW), value_set=rows))
    return _Trace(side.places(rows), trace.rewritten.filter(old), _except(trace.gone, rows))


def _told(side: Side, delta: Delta) -> tuple[pa.Table, pa.Table, pa.Array]:
    """The places of entities that were added and rewritten, and the rows that were removed."""
    rows = delta.written(side.columns, FEW) if delta.end is side.table and not side.blobs else None
    if rows is None:
        new = delta.inserted(PLACES.names).cast(PLACES)
        rewritten = delta.updated(PLACES.names).cast(PLACES)
    else:
        is_new = pc.greater(rows.column(CREATED_AT), delta.begin.version)
        places = rows.select(PLACES.names).cast(PLACES)
        new, rewritten = places.filter(is_new), places.filter(pc.invert(is_new))
    removed = delta.deleted_row_ids(new.num_rows).cast(pa.uint64())
    if rows is not None:
        # Most of what comes next is about these rows.
        side.remember(pa.concat_arrays([*rows.column(ROW).chunks, removed]), rows)
    return new, rewritten, removed


def _ends(side: Side, stretch: Stretch, known: dict[Point, Table]) -> tuple[Table, Table] | None:
    begin = Point(stretch.end.owner, stretch.begin)
    try:
        first, last = (known.get(point) or _opened(side, point) for point in (begin, stretch.end))
    except StorageFailure as failure:
        if failure.kind in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
            return None
        raise
    return None if first is None or last is None else (first, last)


def _opened(side: Side, point: Point) -> Table | None:
    """A version on the way; None when its branch was made anew, which has versions of the same numbers."""
    table = side.graph.root.tables.open(side.table.location, point.version, branch=point.owner)
    return table if side.graph.shows(side.snapshot, table) else None


# --- what does differ ----------------------------------------------------------------------------


def _differing(left: Side, right: Side, candidates: pa.Table, late: bool) -> pa.Table:
    """The candidates that are only on one side, and those whose values differ."""
    both = pc.and_(candidates.column(LEFT).is_valid(), candidates.column(RIGHT).is_valid())
    alone = candidates.filter(pc.invert(both))
    # In the order of storage, because neighbours are read together.
    shared = candidates.filter(both).sort_by(LEFT)
    parts = pieces(shared, (left, right), _COMPARED_AT_ONCE)
    differs = _any_differs_late if late else _any_differs
    kept = [part.filter(pa.array(differs(left, right, part))) for part in parts]
    return pa.concat_tables([alone, *kept])


def _any_differs(left: Side, right: Side, pairs: pa.Table) -> Mask:
    before, after = left.rows(row_ids(pairs, LEFT)), right.rows(row_ids(pairs, RIGHT))
    return _any(changed_columns(left, right, before, after), pairs.num_rows)


def _any_differs_late(left: Side, right: Side, pairs: pa.Table) -> Mask:
    """The same, with the columns that tell the most read first, and others only of rows still undecided.

    A change mostly touches few columns, and the same ones in all its rows: some rows tell which.
    """
    names, rows = _compared(left, right), pairs.num_rows
    if rows < _SOME or _extent(pairs) < rows * _APART:
        return _any(_cells_differ(left, right, pairs, names), rows)
    sample = np.zeros(rows, np.bool_)
    sample[:: rows // _SAMPLED] = True
    masks = _cells_differ(left, right, pairs.filter(pa.array(sample)), names)
    found = np.zeros(rows, np.bool_)
    found[sample] = _any(masks, int(sample.sum()))
    telling = [name for name in names if masks[name].any()]
    open_ = ~sample
    for some in (telling, [name for name in names if name not in telling]):
        if some and open_.any():
            rest = pairs.filter(pa.array(open_))
            found[open_] = _any(_cells_differ(left, right, rest, some), rest.num_rows)
            open_ &= ~found
    return found


def _extent(pairs: pa.Table) -> int:
    """About how many rows lie between the first of some rows and the last, which are in order."""
    numbers = pairs.column(LEFT)
    found: int = numbers[-1].as_py() - numbers[0].as_py()
    return found


def _cells_differ(left: Side, right: Side, pairs: pa.Table, names: Sequence[str]) -> dict[str, Mask]:
    before = left.cells(row_ids(pairs, LEFT), names)
    after = right.cells(row_ids(pairs, RIGHT), names)
    return changed_columns(left, right, before, after, names)


def _any(columns: Mapping[str, Mask], rows: int) -> Mask:
    found: Mask = np.logical_or.reduce([np.zeros(rows, np.bool_), *columns.values()])
    return found
