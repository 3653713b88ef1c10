"""The row rule: what a merge does with an entity that the source changed.

What only the source changed is taken as the source has it. What both changed to the same values stays as it
is. Everything else is contested. Entities that the source did not change are not read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import RIGHT, RowPairs, changed_columns, split_rows
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.merge.conflict import ConflictKind
from omnigraph.engine.merge.patched_side import disputed_ids, plain_side, read_aligned_rows

BASE, SOURCE, TARGET = "base", "source", "target"
PLACES = pa.schema([(ID, pa.string()), (BASE, pa.uint64()), (SOURCE, pa.uint64()), (TARGET, pa.uint64())])
"""An entity and the row that holds it on each side, null where it is not there."""

ROWS_AT_ONCE = 32_768

Grid = NDArray[np.bool_]
"""A row for each entity, a column for each column of the table."""

KINDS = (ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE)
INSERTED, UPDATED, DELETED = range(3)
"""Places in `KINDS`."""
_GRIDS = ("ours", "theirs", "apart", "disputed")


@dataclass(frozen=True, slots=True)
class MergeSides:
    """A type at the base and on both branches."""

    base: TableSide
    source: TableSide
    target: TableSide
    same_rows: bool = False
    """Whether the target goes on from the base's own version of the table: an entity that it did not write
    is in the row that it was in."""

    def number_by_place(self) -> MergeSides:
        """The same, with rows numbered by their places."""
        if self.base is not plain_side(self.base):
            return self
        return MergeSides(
            self.base.number_by_place(), self.source.number_by_place(), self.target.number_by_place()
        )

    def each(self) -> tuple[TableSide, TableSide, TableSide]:
        """All three."""
        return self.base, self.source, self.target


@dataclass(frozen=True, slots=True)
class ContestedRows:
    """The entities of a type that both branches changed, and not to the same."""

    places: pa.Table
    kinds: NDArray[np.int8]
    columns: tuple[str, ...]
    """Everything that can differ: the ends of edges, then the properties."""
    ours: Grid
    """Where the target differs from the base."""
    theirs: Grid
    """Where the source differs from the base."""
    apart: Grid
    """Where the branches differ from each other; everywhere, for an entity that one of them deleted."""
    disputed: Mask
    """Which entities have an unknown base: both branches count as having changed all of it."""

    def __len__(self) -> int:
        return int(self.places.num_rows)

    def present(self, side: str) -> Mask:
        """Which of the entities a side has."""
        return np.asarray(self.places.column(side).is_valid().to_numpy(), np.bool_)

    def has(self, side: str, row: int) -> bool:
        """Whether a side has one of the entities."""
        return bool(self.places.column(side)[row].is_valid)


@dataclass(frozen=True, slots=True)
class SourceDelta:
    """What the source did to a type since the base."""

    taken: pa.Table
    """The places of entities that only the source changed."""
    contested: ContestedRows


def apply_row_rule(sides: MergeSides, theirs: RowPairs, ours: RowPairs | None) -> SourceDelta:
    """Return what the source changed: entities to take over, and contested ones.

    `theirs` leads from the base to the source, `ours` from the base to the target; None when the target did
    not change the type at all.
    """
    changed = theirs.table.rename_columns([ID, BASE, SOURCE])
    target, moved = _locate_on_target(changed, ours)
    places = changed.append_column(TARGET, target).select(PLACES.names).cast(PLACES)
    taken = places.filter(pa.array(~moved))
    both = places.filter(pa.array(moved))
    # Both branches deleted it: no conflict.
    both = both.filter(pc.or_(both.column(SOURCE).is_valid(), both.column(TARGET).is_valid()))
    return SourceDelta(taken, _find_contested(sides, both))


def _locate_on_target(changed: pa.Table, ours: RowPairs | None) -> tuple[pa.ChunkedArray | pa.Array, Mask]:
    """For each entity its row in the target, as far as that changed it, and whether it did."""
    if ours is None or not ours.table.num_rows or not changed.num_rows:
        return pa.nulls(changed.num_rows, pa.uint64()), np.zeros(changed.num_rows, np.bool_)
    place = pc.index_in(changed.column(ID), value_set=ours.table.column(ID).combine_chunks())
    moved = np.asarray(place.is_valid().to_numpy(), np.bool_)
    return ours.table.column(RIGHT).take(place), moved


def _find_contested(sides: MergeSides, both: pa.Table) -> ContestedRows:
    columns = (*sides.target.system[1:], *sides.target.types)
    parts = [_compare_portion(sides, part, columns) for part in split_rows(both, sides.each(), ROWS_AT_ONCE)]
    if not parts:
        nothing = np.zeros((0, len(columns)), np.bool_)
        none = np.zeros(0, np.bool_)
        return ContestedRows(
            PLACES.empty_table(), np.zeros(0, np.int8), columns, nothing, nothing, nothing, none
        )
    return ContestedRows(
        pa.concat_tables([part.places for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        columns,
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _GRIDS),
    )


def _compare_portion(sides: MergeSides, places: pa.Table, columns: tuple[str, ...]) -> ContestedRows:
    base, source, target = (
        read_aligned_rows(side, places.column(name).combine_chunks())
        for side, name in zip(sides.each(), (BASE, SOURCE, TARGET), strict=True)
    )
    was, there, here = (places.column(name).is_valid().to_numpy() for name in (BASE, SOURCE, TARGET))
    kinds = np.where(there & here, np.where(was, UPDATED, INSERTED), DELETED).astype(np.int8)
    apart = _grid(sides.source, sides.target, source, target, columns)
    apart[kinds == DELETED] = True
    ours = _grid(sides.base, sides.target, base, target, columns) & here[:, None]
    theirs = _grid(sides.base, sides.source, base, source, columns) & there[:, None]
    disputed = (kinds == UPDATED) & is_among(places.column(ID), disputed_ids(sides.base))
    for grid in (ours, theirs):
        grid[(kinds == INSERTED) | disputed] = True
    found = ContestedRows(places, kinds, columns, ours, theirs, apart, disputed)
    return select_contested(found, apart.any(axis=1) | (kinds == DELETED))


def select_contested(contested: ContestedRows, wanted: Mask) -> ContestedRows:
    """Some of the entities."""
    return ContestedRows(
        contested.places.filter(pa.array(wanted)),
        contested.kinds[wanted],
        contested.columns,
        contested.ours[wanted],
        contested.theirs[wanted],
        contested.apart[wanted],
        contested.disputed[wanted],
    )


def _grid(
    left: TableSide, right: TableSide, before: pa.Table, after: pa.Table, columns: tuple[str, ...]
) -> Grid:
    found = changed_columns(left, right, before, after)
    if not columns:
        return np.zeros((before.num_rows, 0), np.bool_)
    return np.stack([found[name] for name in columns], axis=1)
