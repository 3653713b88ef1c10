"""The row rule: what becomes of an entity that the source changed.

What only the source changed is taken as the source has it. What both changed to the same values stays as it
is. Everything else is contested. An entity that the source did not change is never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import RIGHT, Pairs, changed_columns, pieces
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID
from omnigraph.engine.merge.conflict import ConflictKind
from omnigraph.engine.merge.images import aligned

BASE, SOURCE, TARGET = "base", "source", "target"
PLACES = pa.schema([(ID, pa.string()), (BASE, pa.uint64()), (SOURCE, pa.uint64()), (TARGET, pa.uint64())])
"""An entity and the row that holds it on each side, null where it is not there."""

AT_ONCE = 32_768

Grid = NDArray[np.bool_]
"""A row for each entity, a column for each column of the table."""

KINDS = (ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE)
INSERTED, UPDATED, DELETED = range(3)
"""Places in `KINDS`."""


@dataclass(frozen=True, slots=True)
class Sides:
    """A type at the base and on both branches."""

    base: Side
    source: Side
    target: Side
    same_rows: bool = False
    """Whether the target goes on from the base's own version of the table: an entity that it did not write
    is in the row that it was in."""

    def placed(self) -> Sides:
        """The same, with rows numbered by their places."""
        return Sides(self.base.placed(), self.source.placed(), self.target.placed())

    def each(self) -> tuple[Side, Side, Side]:
        """All three."""
        return self.base, self.source, self.target


@dataclass(frozen=True, slots=True)
class Contested:
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

    def __len__(self) -> int:
        return int(self.places.num_rows)

    def present(self, side: str) -> Mask:
        """Which of the entities a side has."""
        return np.asarray(self.places.column(side).is_valid().to_numpy(), np.bool_)

    def has(self, side: str, row: int) -> bool:
        """Whether a side has one of the entities."""
        return bool(self.places.column(side)[row].is_valid)


@dataclass(frozen=True, slots=True)
class Delta:
    """What the source did to a type since the base."""

    taken: pa.Table
    """The places of entities that only the source changed."""
    contested: Contested


def delta_of(sides: Sides, theirs: Pairs, ours: Pairs | None) -> Delta:
    """What becomes of the entities that the source changed.

    `theirs` leads from the base to the source, `ours` from the base to the target; None when the target did
    not change the type at all.
    """
    changed = theirs.table.rename_columns([ID, BASE, SOURCE])
    target, moved = _on_target(changed, ours)
    places = changed.append_column(TARGET, target).select(PLACES.names).cast(PLACES)
    taken = places.filter(pa.array(~moved))
    both = places.filter(pa.array(moved))
    # Gone on both sides is agreed on.
    both = both.filter(pc.or_(both.column(SOURCE).is_valid(), both.column(TARGET).is_valid()))
    return Delta(taken, _contested(sides, both))


def _on_target(changed: pa.Table, ours: Pairs | None) -> tuple[pa.ChunkedArray | pa.Array, Mask]:
    """For each entity its row in the target, as far as that changed it, and whether it did."""
    if ours is None or not ours.table.num_rows or not changed.num_rows:
        return pa.nulls(changed.num_rows, pa.uint64()), np.zeros(changed.num_rows, np.bool_)
    place = pc.index_in(changed.column(ID), value_set=ours.table.column(ID).combine_chunks())
    moved = np.asarray(place.is_valid().to_numpy(), np.bool_)
    return ours.table.column(RIGHT).take(place), moved


def _contested(sides: Sides, both: pa.Table) -> Contested:
    columns = (*sides.target.system[1:], *sides.target.types)
    parts = [_compared(sides, part, columns) for part in pieces(both, sides.each(), AT_ONCE)]
    if not parts:
        nothing = np.zeros((0, len(columns)), np.bool_)
        return Contested(PLACES.empty_table(), np.zeros(0, np.int8), columns, nothing, nothing, nothing)
    return Contested(
        pa.concat_tables([part.places for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        columns,
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("ours", "theirs", "apart")),
    )


def _compared(sides: Sides, places: pa.Table, columns: tuple[str, ...]) -> Contested:
    base, source, target = (
        aligned(side, places.column(name).combine_chunks())
        for side, name in zip(sides.each(), (BASE, SOURCE, TARGET), strict=True)
    )
    was, there, here = (places.column(name).is_valid().to_numpy() for name in (BASE, SOURCE, TARGET))
    kinds = np.where(there & here, np.where(was, UPDATED, INSERTED), DELETED).astype(np.int8)
    apart = _grid(sides.source, sides.target, source, target, columns)
    apart[kinds == DELETED] = True
    ours = _grid(sides.base, sides.target, base, target, columns) & here[:, None]
    theirs = _grid(sides.base, sides.source, base, source, columns) & there[:, None]
    for grid in (ours, theirs):
        grid[kinds == INSERTED] = True
    found = Contested(places, kinds, columns, ours, theirs, apart)
    return only(found, apart.any(axis=1) | (kinds == DELETED))


def only(contested: Contested, wanted: Mask) -> Contested:
    """Some of the entities."""
    return Contested(
        contested.places.filter(pa.array(wanted)),
        contested.kinds[wanted],
        contested.columns,
        contested.ours[wanted],
        contested.theirs[wanted],
        contested.apart[wanted],
    )


def _grid(left: Side, right: Side, before: pa.Table, after: pa.Table, columns: tuple[str, ...]) -> Grid:
    found = changed_columns(left, right, before, after)
    if not columns:
        return np.zeros((before.num_rows, 0), np.bool_)
    return np.stack([found[name] for name in columns], axis=1)
