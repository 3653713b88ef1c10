"""Which entities of a type differ between two snapshots, and in which rows they are.

Where both sides are versions of one table, storage reports the rows written since they diverged, at a cost
that follows these rows. Otherwise all rows of both are compared. In both cases entities are joined on ids,
never on row ids: after a fork both sides give the same row ids to new rows. And in both cases values decide,
so a row that was only rewritten is not a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.equality import Mask, values_differ
from omnigraph.engine.changes.table_side import (
    FEW_ROWS,
    PLACES,
    ROW_ID,
    Divergence,
    OwnedVersion,
    Segment,
    TableSide,
    find_divergence,
)
from omnigraph.engine.graph.table_types import ID
from omnigraph.errors import StorageFailure
from omnigraph.storage.delta import CREATED_AT, Delta
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.tables import Table

LEFT, RIGHT = "left", "right"
PAIRS_SCHEMA = pa.schema([(ID, pa.string()), (LEFT, pa.uint64()), (RIGHT, pa.uint64())])
"""An entity and the row that holds it on each side, null where it is not there."""

_COMPARED_AT_ONCE, _ROWS_WITH_BLOBS = 32_768, 256
_SAMPLED, _SOME, _APART = 32, 256, 256
"""So many sampled rows show which columns to read first. This pays from `_SOME` rows on, with `_APART` rows
between them: then each column of each row is a read of its own.
"""


@dataclass(frozen=True, slots=True)
class RowPairs:
    """The entities of a type that differ, by id."""

    left: TableSide | None
    right: TableSide | None
    table: pa.Table

    @property
    def sides(self) -> tuple[TableSide | None, TableSide | None]:
        """Before and after."""
        return self.left, self.right

    @property
    def stat(self) -> ChangeCounts:
        """How many there are of each sort."""
        deleted, inserted = (self.table.column(side).null_count for side in (RIGHT, LEFT))
        return ChangeCounts(inserted, self.table.num_rows - inserted - deleted, deleted)

    def beyond(self, entity: str) -> RowPairs:
        """Return the pairs after an id."""
        return replace(self, table=self.table.filter(pc.greater(self.table.column(ID), entity)))

    def portions(self) -> Iterator[RowPairs]:
        """Yield all pairs at once: they are in memory."""
        yield self


def compare_sides(left: TableSide | None, right: TableSide | None, *, whole: bool = False) -> RowPairs:
    """Return the entities that differ between two sides; a side is None where the type does not exist.

    `whole` compares all rows, even where the sides share a history.
    """
    if whole:
        return keep_changed(left, right, join_places(_scan_places(left), _scan_places(right)))
    return compare_since(left, right, divergence_of(left, right))


def compare_since(
    left: TableSide | None, right: TableSide | None, at: Divergence | None, *, late: bool = False
) -> RowPairs:
    """Return the same, given where the sides diverged.

    With `late`, columns are read one group after another until a difference is found. Use it when the rows of
    both sides are not read afterwards.
    """
    return keep_changed(left, right, _find_candidates(left, right, at), late=late)


def keep_changed(
    left: TableSide | None, right: TableSide | None, candidates: pa.Table, *, late: bool = False
) -> RowPairs:
    """Return the candidates that differ, by id."""
    found = candidates
    if left is not None and right is not None:
        found = _keep_changed_pairs(left, right, candidates, late)
    return RowPairs(left, right, found.sort_by(ID))


def changed_columns(
    left: TableSide, right: TableSide, before: pa.Table, after: pa.Table, names: Sequence[str] | None = None
) -> dict[str, Mask]:
    """For each column, and each row, whether two tables of rows differ there.

    A property that only one of the schemas has counts as null on the other side.
    """
    found = {}
    for name in _comparable_columns(left, right) if names is None else names:
        if name in before.column_names and name in after.column_names:
            found[name] = values_differ(before.column(name), after.column(name))
        else:
            present = (before if name in before.column_names else after).column(name)
            found[name] = np.array(present.is_valid().to_numpy(), np.bool_)
    return found


def _comparable_columns(left: TableSide, right: TableSide) -> list[str]:
    """Return every column in which rows of two sides can differ."""
    return [*dict.fromkeys([*left.system[1:], *right.types, *left.types])]


def split_rows(table: pa.Table, sides: Sequence[TableSide | None], rows: int) -> Iterator[pa.Table]:
    """Yield pairs in portions of `rows` rows, or fewer where rows can be large."""
    size = min(rows, _ROWS_WITH_BLOBS) if any(side is not None and side.blobs for side in sides) else rows
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def row_ids(pairs: pa.Table, side: str) -> pa.Array:
    """The rows of one side, as an array."""
    return pa.concat_arrays(pairs.column(side).chunks) if pairs.num_rows else pa.array([], pa.uint64())


# --- what may differ -----------------------------------------------------------------------------


def _find_candidates(left: TableSide | None, right: TableSide | None, at: Divergence | None) -> pa.Table:
    if left is None or right is None:
        return join_places(_scan_places(left), _scan_places(right))
    written = None if at is None else _places_written_since(at, left, right)
    return join_places(left.scan_places(), right.scan_places()) if written is None else join_places(*written)


def _scan_places(side: TableSide | None) -> pa.Table:
    return PLACES.empty_table() if side is None else side.scan_places()


def join_places(left: pa.Table, right: pa.Table) -> pa.Table:
    """Join the places of both sides by id."""
    ours, theirs = left.rename_columns([ID, LEFT]), right.rename_columns([ID, RIGHT])
    if not ours.num_rows:
        ours = theirs.append_column(LEFT, pa.nulls(theirs.num_rows, pa.uint64()))
        return ours.select(PAIRS_SCHEMA.names)
    if not theirs.num_rows:
        return ours.append_column(RIGHT, pa.nulls(ours.num_rows, pa.uint64()))
    return ours.join(theirs, ID, join_type="full outer").select(PAIRS_SCHEMA.names)


def divergence_of(left: TableSide | None, right: TableSide | None) -> Divergence | None:
    """Return where the tables of two sides diverged; None when that is unknown."""
    if left is None or right is None or left.table.location != right.table.location:
        return None
    if not (left.table.has_stable_row_ids and right.table.has_stable_row_ids):
        return None
    incarnations = left.table.incarnation, right.table.incarnation
    return find_divergence(
        left.graph.root.forks, left.table.location, left.owned_version, right.owned_version, incarnations
    )


def _places_written_since(
    at: Divergence, left: TableSide, right: TableSide
) -> tuple[pa.Table, pa.Table] | None:
    """Return the places on each side of what either wrote; None when a version between was removed."""
    ours, theirs = _trace_writes(left, at.left, right), _trace_writes(right, at.right, left)
    if ours is None or theirs is None:
        return None
    # A row from before they diverged has one row id on both sides, and holds one entity: only with its
    # id can a row be rewritten.
    named = pa.concat_tables([ours.rewritten, theirs.rewritten])
    common = pc.unique(pa.concat_arrays([ours.gone, theirs.gone, *named.column(ROW_ID).chunks]))
    return _places_on_side(left, ours, common, named), _places_on_side(right, theirs, common, named)


@dataclass(frozen=True, slots=True)
class _Trace:
    """The rows that one side wrote."""

    new: pa.Table
    """The places of entities that it added."""
    rewritten: pa.Table
    """The places of older entities that it rewrote; it may have removed them later."""
    gone: pa.Array
    """Rows that were there before, and that it removed."""


def _places_on_side(side: TableSide, trace: _Trace, common: pa.Array, named: pa.Table) -> pa.Table:
    """Return what a side added and what it still has of the common rows; known places are not read."""
    still = _except(common, trace.gone)
    at = pc.index_in(still, value_set=named.column(ROW_ID).combine_chunks())
    known = named.take(at.drop_null())
    return pa.concat_tables([trace.new, known, side.read_places(still.filter(at.is_null()))])


def _except(rows: pa.Array, others: pa.Array) -> pa.Array:
    return rows.filter(pc.invert(pc.is_in(rows, value_set=others)))


def _trace_writes(side: TableSide, segments: Sequence[Segment], other: TableSide) -> _Trace | None:
    known = {side.owned_version: side.table, other.owned_version: other.table}
    added, named, gone = [PLACES.empty_table()], [PLACES.empty_table()], [pa.array([], pa.uint64())]
    for segment in segments:
        ends = _open_ends(side, segment, known)
        if ends is None:
            return None
        with other.explain_failures(), side.explain_failures():
            new, rewritten, removed = _read_delta(side, Delta(*ends))
        added.append(new)
        named.append(rewritten)
        gone.append(removed)
    trace = _Trace(pa.concat_tables(added), pa.concat_tables(named), pa.concat_arrays(gone))
    return trace if len(segments) == 1 else _combine_segments(side, trace)


def _combine_segments(side: TableSide, trace: _Trace) -> _Trace:
    """Apply later segments to what earlier ones added: they may have rewritten or removed it."""
    rows = trace.new.column(ROW_ID).combine_chunks()
    old = pc.invert(pc.is_in(trace.rewritten.column(ROW_ID), value_set=rows))
    return _Trace(side.read_places(rows), trace.rewritten.filter(old), _except(trace.gone, rows))


def _read_delta(side: TableSide, delta: Delta) -> tuple[pa.Table, pa.Table, pa.Array]:
    """Return the places of added and rewritten entities, and the rows that were removed."""
    rows = delta.written(side.columns, FEW_ROWS) if delta.end is side.table and not side.blobs else None
    if rows is None:
        new = delta.inserted(PLACES.names).cast(PLACES)
        rewritten = delta.updated(PLACES.names).cast(PLACES)
    else:
        is_new = pc.greater(rows.column(CREATED_AT), delta.begin.version)
        places = rows.select(PLACES.names).cast(PLACES)
        new, rewritten = places.filter(is_new), places.filter(pc.invert(is_new))
    removed = delta.deleted_row_ids(new.num_rows).cast(pa.uint64())
    if rows is not None:
        # The caller reads these rows next.
        side.cache_rows(pa.concat_arrays([*rows.column(ROW_ID).chunks, removed]), rows)
    return new, rewritten, removed


def _open_ends(
    side: TableSide, segment: Segment, known: dict[OwnedVersion, Table]
) -> tuple[Table, Table] | None:
    begin = OwnedVersion(segment.end.owner, segment.begin)
    try:
        first, last = (known.get(point) or _open_version(side, point) for point in (begin, segment.end))
    except StorageFailure as failure:
        if failure.kind in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
            return None
        raise
    return None if first is None or last is None else (first, last)


def _open_version(side: TableSide, point: OwnedVersion) -> Table | None:
    """Open a version; None when its branch was created again, which reuses version numbers."""
    table = side.graph.root.tables.open(side.table.location, point.version, branch=point.owner)
    return table if side.graph.is_from_incarnation(side.snapshot, table) else None


# --- what does differ ----------------------------------------------------------------------------


def _keep_changed_pairs(left: TableSide, right: TableSide, candidates: pa.Table, late: bool) -> pa.Table:
    """Return the candidates that are on one side only, and those whose values differ."""
    both = pc.and_(candidates.column(LEFT).is_valid(), candidates.column(RIGHT).is_valid())
    alone = candidates.filter(pc.invert(both))
    # In storage order, because neighbours are read together.
    shared = candidates.filter(both).sort_by(LEFT)
    parts = split_rows(shared, (left, right), _COMPARED_AT_ONCE)
    differs = _any_differs_late if late else _any_differs
    kept = [part.filter(pa.array(differs(left, right, part))) for part in parts]
    return pa.concat_tables([alone, *kept])


def _any_differs(left: TableSide, right: TableSide, pairs: pa.Table) -> Mask:
    before, after = left.read_rows(row_ids(pairs, LEFT)), right.read_rows(row_ids(pairs, RIGHT))
    return _any(changed_columns(left, right, before, after), pairs.num_rows)


def _any_differs_late(left: TableSide, right: TableSide, pairs: pa.Table) -> Mask:
    """Return the same, reading likely columns first and the others only for rows still undecided.

    A change mostly touches few columns, the same ones in all its rows: a sample shows which.
    """
    names, rows = _comparable_columns(left, right), pairs.num_rows
    if rows < _SOME or _extent(pairs) < rows * _APART:
        return _any(_cells_differ(left, right, pairs, names), rows)
    sample = np.zeros(rows, np.bool_)
    sample[:: rows // _SAMPLED] = True
    masks = _cells_differ(left, right, pairs.filter(pa.array(sample)), names)
    found = np.zeros(rows, np.bool_)
    found[sample] = _any(masks, int(sample.sum()))
    likely = [name for name in names if masks[name].any()]
    open_ = ~sample
    for some in (likely, [name for name in names if name not in likely]):
        if some and open_.any():
            rest = pairs.filter(pa.array(open_))
            found[open_] = _any(_cells_differ(left, right, rest, some), rest.num_rows)
            open_ &= ~found
    return found


def _extent(pairs: pa.Table) -> int:
    """Estimate how many rows lie between the first and the last of sorted rows."""
    numbers = pairs.column(LEFT)
    found: int = numbers[-1].as_py() - numbers[0].as_py()
    return found


def _cells_differ(
    left: TableSide, right: TableSide, pairs: pa.Table, names: Sequence[str]
) -> dict[str, Mask]:
    before = left.read_cells(row_ids(pairs, LEFT), names)
    after = right.read_cells(row_ids(pairs, RIGHT), names)
    return changed_columns(left, right, before, after, names)


def _any(columns: Mapping[str, Mask], rows: int) -> Mask:
    found: Mask = np.logical_or.reduce([np.zeros(rows, np.bool_), *columns.values()])
    return found
