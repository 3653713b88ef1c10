"""The rows that a merge adds to, changes in and deletes from one table of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import changed_columns, row_ids, split_rows
from omnigraph.engine.commit.plan import AppendRows, DeleteRows, Effect, RowSteps, UpsertRows
from omnigraph.engine.constraints.table_change import NO_IDS, TableChange, exclude, is_among
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.merge.cell_decisions import (
    CellDecisions,
    compose_decided_rows,
    find_decided_deletions,
    refuse_key_change,
)
from omnigraph.engine.merge.choices import ChosenValue, EntityChoice, MergeSide, build_value_column
from omnigraph.engine.merge.conflict import RuleViolation, find_value_violations
from omnigraph.engine.merge.patched_side import read_rows_by_id
from omnigraph.engine.merge.row_rule import BASE, ROWS_AT_ONCE, SOURCE, MergeSides, SourceDelta
from omnigraph.engine.rows.blobs import to_writable
from omnigraph.errors import BadRequest, InternalError
from omnigraph.storage.pieces import Pieces


@dataclass(frozen=True, slots=True)
class TargetChange:
    """The rows that a table of the target gets and loses."""

    target: TableType
    rows: pa.Table
    """All columns; when the rows are in files, only the columns that rules need."""
    known: Mask
    """Which of the rows replace a row of the target."""
    deleted: pa.ChunkedArray
    violations: tuple[RuleViolation, ...] | None = None
    """Values that break a rule, if they were checked already."""
    pieces: Pieces | None = None
    """The files that hold the rows."""
    stored: pa.Array | None = None
    """The row ids of the rows they replace, null for new rows; None when unknown."""

    @classmethod
    def empty(cls, target: TableType) -> TargetChange:
        """Return a change that does nothing."""
        return cls(target, target.schema.empty_table(), np.zeros(0, np.bool_), NO_IDS)

    @property
    def is_empty(self) -> bool:
        """Whether it does nothing."""
        return not self.rows.num_rows and not len(self.deleted)

    @property
    def stat(self) -> ChangeCounts:
        """How many entities come, change and go."""
        updated = int(self.known.sum())
        return ChangeCounts(self.rows.num_rows - updated, updated, len(self.deleted))

    def as_constraint_change(self) -> TableChange:
        """Return the change for the constraint checks."""
        return TableChange(self.target, self.rows, self.deleted, adds_only=not self.known.any())

    def value_violations(self) -> Iterator[RuleViolation]:
        """Yield values that break a rule of their property."""
        return (
            find_value_violations(self.target, self.rows)
            if self.violations is None
            else iter(self.violations)
        )

    def effect(self) -> Effect:
        """Return the effect of a commit that writes this change."""
        steps: list[AppendRows | UpsertRows | DeleteRows] = []
        if self.rows.num_rows:
            rows = self._whole() if self.pieces is None else self.pieces
            steps.append(UpsertRows(rows, self.stored) if self.known.any() else AppendRows(rows))
        if len(self.deleted):
            steps.append(DeleteRows(self.deleted.combine_chunks()))
        return steps[0] if len(steps) == 1 else RowSteps(tuple(steps))

    def _whole(self) -> pa.Table:
        if self.rows.column_names != self.target.schema.names:
            raise InternalError(f"rows of '{self.target.key}' were to be merged without all their columns")
        return self.rows


def build_target_change(
    target: TableType, sides: MergeSides, delta: SourceDelta, decisions: CellDecisions
) -> TargetChange:
    """Return what the source alone changed, and what was decided."""
    some = list(iter_changed_rows(target, sides, delta, decisions))
    return TargetChange(
        target,
        pa.concat_tables([target.schema.empty_table(), *(one.rows for one in some)]),
        np.concatenate([np.zeros(0, np.bool_), *(one.known for one in some)]),
        find_deletions(delta, decisions),
        stored=_stored_row_ids(some) if sides.same_rows else None,
    )


def _stored_row_ids(some: Sequence[RowPortion]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.uint64()), *(one.stored for one in some)])


@dataclass(frozen=True, slots=True)
class RowPortion:
    """Some rows that a table gets."""

    rows: pa.Table
    stored: pa.Array
    """The row ids they replace: where the target did not change an entity, that of the base."""
    decided: bool
    """Whether both branches had changed them."""

    @property
    def known(self) -> Mask:
        """Which of them replace a row of the target."""
        return np.asarray(self.stored.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def iter_changed_rows(
    target: TableType, sides: MergeSides, delta: SourceDelta, decisions: CellDecisions
) -> Iterator[RowPortion]:
    """Yield the rows in portions: what the source alone changed by id, then what was decided by id."""
    taken = delta.taken.filter(delta.taken.column(SOURCE).is_valid())
    for part in split_rows(taken, (sides.source,), ROWS_AT_ONCE):
        rows = sides.source.read_rows(row_ids(part, SOURCE)).select(target.schema.names)
        yield RowPortion(to_writable(rows, target.schema), row_ids(part, BASE), decided=False)
    for rows, stored in compose_decided_rows(decisions, sides):
        yield RowPortion(rows, stored, decided=True)


def find_deletions(delta: SourceDelta, decisions: CellDecisions) -> pa.ChunkedArray:
    """Return the ids of the deleted entities."""
    gone = delta.taken.filter(delta.taken.column(SOURCE).is_null()).column(ID)
    return pa.chunked_array([*gone.chunks, *find_decided_deletions(decisions).chunks], pa.string())


# --- choices that override the row rule --------------------------------------------------------------


def override_entities(
    change: TargetChange, choices: Mapping[str, EntityChoice], sides: MergeSides
) -> TargetChange:
    """Return the change with some entities, by id, as a choice wants them."""
    ids = pa.array(list(choices), pa.string())
    stays = ~is_among(change.rows.column(ID), ids)
    here = read_rows_by_id(sides.target, ids)
    parts, known = [change.rows.filter(pa.array(stays))], [change.known[stays]]
    values = [one for one in change.violations or () if one.entity_id not in choices]
    deleted = [exclude(change.deleted, ids)]
    for take, side in (
        (MergeSide.THEIRS, sides.source),
        (MergeSide.BASE, sides.base),
        (MergeSide.OURS, sides.target),
    ):
        chosen = {entity: one for entity, one in choices.items() if (one.take or MergeSide.THEIRS) is take}
        if not chosen:
            continue
        wanted = pa.array(list(chosen), pa.string())
        there = read_rows_by_id(side, wanted)
        rows, had = _drop_unchanged(here, _set_given_values(change.target, there, chosen), sides)
        whole = to_writable(rows.select(change.target.schema.names), change.target.schema)
        if change.violations is not None:
            values += find_value_violations(change.target, whole)
        parts.append(whole.select(change.rows.column_names))
        known.append(had)
        absent = exclude(pa.chunked_array([wanted]), there.column(ID))
        deleted.append(absent.filter(pa.array(is_among(absent, here.column(ID)))))
    chunks = [chunk for part in deleted for chunk in part.chunks]
    return TargetChange(
        change.target,
        pa.concat_tables(parts),
        np.concatenate(known),
        pa.chunked_array(chunks, pa.string()),
        None if change.violations is None else tuple(values),
    )


def _drop_unchanged(here: pa.Table, rows: pa.Table, sides: MergeSides) -> tuple[pa.Table, Mask]:
    """Return the rows that differ from the target, and which of them replace one."""
    place = pc.index_in(rows.column(ID), value_set=here.column(ID).combine_chunks())
    had = np.asarray(place.is_valid().to_numpy(), np.bool_)
    changes = changed_columns(sides.target, sides.target, here.take(place), rows).values()
    new = ~had | np.logical_or.reduce([np.zeros(rows.num_rows, np.bool_), *changes])
    return rows.filter(pa.array(new)), had[new]


def _set_given_values(target: TableType, rows: pa.Table, choices: Mapping[str, EntityChoice]) -> pa.Table:
    """Return the rows with the values that choices give."""
    given: dict[str, dict[int, object]] = {}
    ids = rows.column(ID)
    for choice in choices.values():
        if not choice.properties:
            continue
        row = pc.index(ids, choice.entity_id).as_py()
        if row < 0:
            raise BadRequest(
                f"{choice.name} cannot get values and be deleted", remedy="take the side that has it"
            )
        for name, value in choice.properties.items():
            given.setdefault(name, {})[row] = _require_given(target, choice, name, value)
    for name, values in given.items():
        at = rows.schema.get_field_index(name)
        if at < 0:
            raise BadRequest(f"{target.kind} type '{target.name}' has no property '{name}'")
        column = rows.column(name).combine_chunks()
        new = build_value_column(target, name, values, rows.num_rows, column.type)
        taken = np.zeros(rows.num_rows, np.int64)
        taken[list(values)] = rows.num_rows
        mixed = pa.concat_arrays([column, new]).take(pa.array(taken + np.arange(rows.num_rows)))
        rows = rows.set_column(at, rows.schema.field(at), mixed)
    return rows


def _require_given(
    target: TableType, choice: EntityChoice, name: str, value: MergeSide | ChosenValue
) -> object:
    refuse_key_change(target, name, choice)
    if isinstance(value, ChosenValue):
        return value.value
    raise BadRequest(
        f"the conflict of {choice.name} is not about single properties",
        remedy=f"take one side of the whole entity, or give '{name}' a value",
    )
