"""A table as a merge base has it that no stored version holds: one version, with some entities from others.

After criss-cross merges there are several bases. They are combined here, entity by entity: the upper bits of
a row number say which table the row is in. Nothing is copied or written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.comparison import TableComparison
from omnigraph.engine.changes.row_pairs import PAIRS_SCHEMA, RowPairs, join_places, keep_changed
from omnigraph.engine.changes.table_side import PLACES, ROW_ID, TableSide
from omnigraph.engine.constraints.stored_rows import KEYS_PER_SCAN
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import one_of

_BITS = 48
"""The lower bits of a number are a row, those above it say in which table."""
_ROW_MASK = (1 << _BITS) - 1
_FEW_SCANS = 64
"""Above this number of lookups, the ids of the whole table are read instead."""

NO_IDS = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class PatchedSide(TableSide):
    """A version of a table in which some entities are replaced, added or missing."""

    others: tuple[TableSide, ...] = ()
    """The tables that the other rows are in."""
    patch: pa.Table = field(default_factory=PLACES.empty_table, repr=False, compare=False)
    """The entities that differ from the version, by id, with their rows; null where there is none."""
    disputed: pa.Array = field(default_factory=lambda: NO_IDS, repr=False, compare=False)
    """Entities whose base is unknown: both branches count as having changed them."""

    @property
    def plain(self) -> TableSide:
        """The version without the patch."""
        return TableSide(self.graph, self.snapshot, self.key, self.table, self.types)

    @property
    def ids(self) -> pa.Array:
        """The ids of entities that are compared one by one."""
        return pc.unique(pa.concat_arrays([*self.patch.column(ID).chunks, self.disputed]))

    def number_by_place(self) -> TableSide:
        """Itself: rows of several tables have no places in one."""
        return self

    def scan_places(self) -> pa.Table:
        """The places of all entities."""
        stored = self.plain.scan_places()
        kept = stored.filter(pa.array(~is_among(stored.column(ID), self.patch.column(ID).combine_chunks())))
        return pa.concat_tables([kept, self.patch.filter(self.patch.column(ROW_ID).is_valid())])

    def read_places(self, row_ids: pa.Array) -> pa.Table:
        """The places of the entities in these rows."""
        found = self._gather(row_ids, lambda side, some: side.read_rows(some).select([ID]))
        return found.append_column(ROW_ID, row_ids).cast(PLACES)

    def read_rows(self, row_ids: pa.Array) -> pa.Table:
        """The entities in these rows, in this order; Blobs as bytes."""
        return self._gather(row_ids, lambda side, some: side.read_rows(some))

    def read_cells(self, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Some columns of the entities in these rows."""
        return self._gather(row_ids, lambda side, some: side.read_cells(some, names))

    def _gather(self, row_ids: pa.Array, read: Callable[[TableSide, pa.Array], pa.Table]) -> pa.Table:
        numbers = np.asarray(row_ids).astype(np.uint64)
        owners, rows = numbers >> np.uint64(_BITS), numbers & np.uint64(_ROW_MASK)
        parts: list[pa.Table] = []
        order: list[NDArray[np.int64]] = []
        for number, side in enumerate((self.plain, *self.others)):
            at = np.flatnonzero(owners == number)
            if len(at):
                parts.append(read(side, pa.array(rows[at])))
                order.append(at)
        if not parts:
            return read(self.plain, pa.array([], pa.uint64()))
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))

    def __reduce__(self) -> tuple[Callable[..., TableSide], tuple[Any, ...]]:
        """Pickle a side by name: other processes open it again."""
        return build_patched_side, (self.plain, self.others, self.patch, self.disputed)


def build_patched_side(
    side: TableSide, others: tuple[TableSide, ...], patch: pa.Table, disputed: pa.Array
) -> PatchedSide:
    """A version of a table with some entities from others."""
    return PatchedSide(
        side.graph,
        side.snapshot,
        side.key,
        side.table,
        side.types,
        others=others,
        patch=patch,
        disputed=disputed,
    )


def plain_side(side: TableSide) -> TableSide:
    """Return the stored version of a side, without its patch."""
    return side.plain if isinstance(side, PatchedSide) else side


def disputed_ids(side: TableSide) -> pa.Array:
    """Return the ids of entities whose base is unknown."""
    return side.disputed if isinstance(side, PatchedSide) else NO_IDS


def with_entities(side: TableSide, other: TableSide, places: pa.Table, disputed: pa.Array) -> PatchedSide:
    """Return a side with some entities from another side; `places` are their rows there."""
    others, patch, known = _patch_parts(side)
    their_others, _, their_disputed = _patch_parts(other)
    # Numbers of the other side's own version, and then of the tables it is patched with.
    shifted = _shift_places(places, len(others) + 1)
    kept = patch.filter(pa.array(~is_among(patch.column(ID), places.column(ID).combine_chunks())))
    return build_patched_side(
        plain_side(side),
        (*others, plain_side(other), *their_others),
        pa.concat_tables([kept, shifted]),
        pc.unique(pa.concat_arrays([known, their_disputed, disputed])),
    )


def with_disputed(side: TableSide, disputed: pa.Array) -> TableSide:
    """Return a side with disputed entities: those whose base is unknown."""
    if not len(disputed):
        return side
    others, patch, known = _patch_parts(side)
    return build_patched_side(plain_side(side), others, patch, pc.unique(pa.concat_arrays([known, disputed])))


def _patch_parts(side: TableSide) -> tuple[tuple[TableSide, ...], pa.Table, pa.Array]:
    if isinstance(side, PatchedSide):
        return side.others, side.patch, side.disputed
    return (), PLACES.empty_table(), NO_IDS


def _shift_places(places: pa.Table, tables: int) -> pa.Table:
    moved = pc.add(places.column(ROW_ID), pa.scalar(tables << _BITS, pa.uint64()))
    return pa.table([places.column(ID), moved], schema=PLACES)


def find_places(side: TableSide, ids: pa.Array) -> pa.Table:
    """Return the places of the given entities that a side has."""
    if isinstance(side, PatchedSide):
        mine = side.patch.filter(pa.array(is_among(side.patch.column(ID), ids)))
        others = ids.filter(pa.array(~is_among(ids, side.patch.column(ID).combine_chunks())))
        return pa.concat_tables(
            [mine.filter(mine.column(ROW_ID).is_valid()), find_places(side.plain, others)]
        )
    if len(ids) > _FEW_SCANS * KEYS_PER_SCAN:
        stored = side.scan_places()
        return stored.filter(pa.array(is_among(stored.column(ID), ids)))
    parts = [PLACES.empty_table()]
    for start in range(0, len(ids), KEYS_PER_SCAN):
        where = one_of(ID, ids.slice(start, KEYS_PER_SCAN).to_pylist())
        with side.explain_failures():
            parts.append(side.table.scan([ID, ROW_ID], where=where, ordered=False).cast(PLACES))
    return pa.concat_tables(parts)


def patched_ids(left: TableSide, right: TableSide) -> pa.Array:
    """Return the ids of entities that are compared one by one because a side is patched."""
    found = [side.ids for side in (left, right) if isinstance(side, PatchedSide)]
    return pc.unique(pa.concat_arrays([NO_IDS, *found]))


def compare_patched(left: TableSide, right: TableSide, ids: pa.Array) -> pa.Table:
    """Return the given entities that differ between two sides, and all that are disputed on the left."""
    joined, disputed = (
        join_places(find_places(left, ids), find_places(right, ids)).cast(PAIRS_SCHEMA),
        disputed_ids(left),
    )
    forced = pa.array(is_among(joined.column(ID), disputed))
    found = keep_changed(left, right, joined.filter(pc.invert(forced)), late=True)
    nowhere = disputed.filter(pa.array(is_among(disputed, ids) & ~is_among(disputed, joined.column(ID))))
    absent = pa.table([nowhere, *[pa.nulls(len(nowhere), pa.uint64())] * 2], schema=PAIRS_SCHEMA)
    return pa.concat_tables([found.table, joined.filter(forced), absent])


def compare_merge_sides(left: TableSide, right: TableSide) -> RowPairs:
    """Return the entities that differ between two sides, patched or not."""
    stored = TableComparison(plain_side(left), plain_side(right)).compare_in_memory(late=True)
    ids = patched_ids(left, right)
    if not len(ids):
        return RowPairs(left, right, stored.table)
    kept = stored.table.filter(pa.array(~is_among(stored.table.column(ID), ids)))
    table = pa.concat_tables([kept.select(PAIRS_SCHEMA.names), compare_patched(left, right, ids)])
    return RowPairs(left, right, table.sort_by(ID))


def read_rows_by_id(side: TableSide, ids: pa.Array) -> pa.Table:
    """The entities with these ids that a side has, in the order of the ids; Blobs as bytes."""
    ids = pc.unique(ids)
    if isinstance(side, PatchedSide):
        found = find_places(side, ids)
        order = pc.index_in(ids, value_set=found.column(ID).combine_chunks()).drop_null()
        return side.read_rows(found.column(ROW_ID).combine_chunks().take(order))
    columns = [*side.system, *side.types]
    parts = []
    for start in range(0, len(ids), KEYS_PER_SCAN):
        where = one_of(ID, ids.slice(start, KEYS_PER_SCAN).to_pylist())
        with side.explain_failures():
            parts.append(side.table.scan(columns, where=where, blob_bytes=bool(side.blobs)))
    if not parts:
        return side.read_rows(pa.array([], pa.uint64()))
    found = pa.concat_tables(parts)
    return found.take(pc.index_in(ids, value_set=found.column(ID).combine_chunks()).drop_null())


def read_aligned_rows(side: TableSide, row_ids: pa.Array) -> pa.Table:
    """One row for each row id, in their order; all values are null where the row id is."""
    found = side.read_rows(row_ids.drop_null())
    if not row_ids.null_count:
        return found
    there = row_ids.is_valid()
    place = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    return found.take(pc.if_else(there, place, None))
