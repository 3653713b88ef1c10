"""What a merge does to one table of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import changed_columns, pieces, row_ids
from omnigraph.engine.columns import ID
from omnigraph.engine.merge.breach import Breach, value_breaches
from omnigraph.engine.merge.choices import EntityChoice, GivenValue, Take
from omnigraph.engine.merge.contest import AT_ONCE, BASE, SOURCE, Delta, Sides
from omnigraph.engine.merge.images import rows_with
from omnigraph.engine.merge.values import value_column
from omnigraph.engine.merge.verdict import Verdict, decided_deletions, decided_rows, refuse_key
from omnigraph.engine.plan import Append, Effect, Remove, Steps, Upsert
from omnigraph.engine.write.blobs import as_stored
from omnigraph.engine.write.change import NO_IDS, Change, within, without
from omnigraph.engine.write.target import Target
from omnigraph.errors import BadRequest, InternalError
from omnigraph.storage.pieces import Pieces


@dataclass(frozen=True, slots=True)
class TableChange:
    """The rows that a table of the target gets and loses."""

    target: Target
    rows: pa.Table
    """All columns; where the rows lie in files, only those that rules about whole changes look at."""
    known: Mask
    """Which of the rows the target has, in another version."""
    deleted: pa.ChunkedArray
    values: tuple[Breach, ...] | None = None
    """Values that break a rule, where that was found out already."""
    pieces: Pieces | None = None
    """The files that hold the rows."""
    stored: pa.Array | None = None
    """The row ids that the target has them under, null where it does not; None when that is not known."""

    @classmethod
    def nothing(cls, target: Target) -> TableChange:
        """A table that stays as it is."""
        return cls(target, target.schema.empty_table(), np.zeros(0, np.bool_), NO_IDS)

    @property
    def is_nothing(self) -> bool:
        """Whether the table stays as it is."""
        return not self.rows.num_rows and not len(self.deleted)

    @property
    def stat(self) -> Stat:
        """How many entities come, change and go."""
        updated = int(self.known.sum())
        return Stat(self.rows.num_rows - updated, updated, len(self.deleted))

    def checked(self) -> Change:
        """The change as the rules about whole changes see it."""
        return Change(self.target, self.rows, self.deleted, adds_only=not self.known.any())

    def broken_values(self) -> Iterator[Breach]:
        """Values that break a rule of their property."""
        return value_breaches(self.target, self.rows) if self.values is None else iter(self.values)

    def effect(self) -> Effect:
        """The change as a write carries it out."""
        steps: list[Append | Upsert | Remove] = []
        if self.rows.num_rows:
            rows = self._whole() if self.pieces is None else self.pieces
            steps.append(Upsert(rows, self.stored) if self.known.any() else Append(rows))
        if len(self.deleted):
            steps.append(Remove(self.deleted.combine_chunks()))
        return steps[0] if len(steps) == 1 else Steps(tuple(steps))

    def _whole(self) -> pa.Table:
        if self.rows.column_names != self.target.schema.names:
            raise InternalError(f"rows of '{self.target.key}' were to be merged without all their columns")
        return self.rows


def change_of(target: Target, sides: Sides, delta: Delta, verdict: Verdict) -> TableChange:
    """What the source alone changed, and what was decided."""
    some = list(changed_rows(target, sides, delta, verdict))
    return TableChange(
        target,
        pa.concat_tables([target.schema.empty_table(), *(one.rows for one in some)]),
        np.concatenate([np.zeros(0, np.bool_), *(one.known for one in some)]),
        deletions(delta, verdict),
        stored=_stored(some) if sides.same_rows else None,
    )


def _stored(some: Sequence[SomeRows]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.uint64()), *(one.stored for one in some)])


@dataclass(frozen=True, slots=True)
class SomeRows:
    """A part of the rows that a table gets."""

    rows: pa.Table
    stored: pa.Array
    """Where the target has another version of them: what it did not change has the number of the base."""
    decided: bool
    """Whether both branches had changed them."""

    @property
    def known(self) -> Mask:
        """Which of them the target has, in another version."""
        return np.asarray(self.stored.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def changed_rows(target: Target, sides: Sides, delta: Delta, verdict: Verdict) -> Iterator[SomeRows]:
    """The rows, a portion at a time: what the source alone changed by id, then what was decided by id."""
    taken = delta.taken.filter(delta.taken.column(SOURCE).is_valid())
    for part in pieces(taken, (sides.source,), AT_ONCE):
        rows = sides.source.rows(row_ids(part, SOURCE)).select(target.schema.names)
        yield SomeRows(as_stored(rows, target.schema), row_ids(part, BASE), decided=False)
    for rows, stored in decided_rows(verdict, sides):
        yield SomeRows(rows, stored, decided=True)


def deletions(delta: Delta, verdict: Verdict) -> pa.ChunkedArray:
    """The entities that go."""
    gone = delta.taken.filter(delta.taken.column(SOURCE).is_null()).column(ID)
    return pa.chunked_array([*gone.chunks, *decided_deletions(verdict).chunks], pa.string())


# --- decisions about single entities, whatever the row rule says -----------------------------------


def overruled(change: TableChange, choices: Mapping[str, EntityChoice], sides: Sides) -> TableChange:
    """The change with some entities, by id, as a decision has them."""
    ids = pa.array(list(choices), pa.string())
    stays = ~within(change.rows.column(ID), ids)
    here = rows_with(sides.target, ids)
    parts, known = [change.rows.filter(pa.array(stays))], [change.known[stays]]
    values = [one for one in change.values or () if one.entity_id not in choices]
    deleted = [without(change.deleted, ids)]
    for take, side in ((Take.THEIRS, sides.source), (Take.BASE, sides.base), (Take.OURS, sides.target)):
        chosen = {entity: one for entity, one in choices.items() if (one.take or Take.THEIRS) is take}
        if not chosen:
            continue
        wanted = pa.array(list(chosen), pa.string())
        there = rows_with(side, wanted)
        rows, had = _other_than(here, _with_values(change.target, there, chosen), sides)
        whole = as_stored(rows.select(change.target.schema.names), change.target.schema)
        if change.values is not None:
            values += value_breaches(change.target, whole)
        parts.append(whole.select(change.rows.column_names))
        known.append(had)
        absent = without(pa.chunked_array([wanted]), there.column(ID))
        deleted.append(absent.filter(pa.array(within(absent, here.column(ID)))))
    chunks = [chunk for part in deleted for chunk in part.chunks]
    return TableChange(
        change.target,
        pa.concat_tables(parts),
        np.concatenate(known),
        pa.chunked_array(chunks, pa.string()),
        None if change.values is None else tuple(values),
    )


def _other_than(here: pa.Table, rows: pa.Table, sides: Sides) -> tuple[pa.Table, Mask]:
    """The rows that the target does not have like this, and which of them it has in another version."""
    place = pc.index_in(rows.column(ID), value_set=here.column(ID).combine_chunks())
    had = np.asarray(place.is_valid().to_numpy(), np.bool_)
    changes = changed_columns(sides.target, sides.target, here.take(place), rows).values()
    new = ~had | np.logical_or.reduce([np.zeros(rows.num_rows, np.bool_), *changes])
    return rows.filter(pa.array(new)), had[new]


def _with_values(target: Target, rows: pa.Table, choices: Mapping[str, EntityChoice]) -> pa.Table:
    """The rows with the values that decisions bring along."""
    given: dict[str, dict[int, object]] = {}
    ids = rows.column(ID)
    for choice in choices.values():
        if not choice.properties:
            continue
        row = pc.index(ids, choice.entity_id).as_py()
        if row < 0:
            raise BadRequest(
                f"{choice.name} is to have values and to be deleted", remedy="take the side that has it"
            )
        for name, value in choice.properties.items():
            given.setdefault(name, {})[row] = _given(target, choice, name, value)
    for name, values in given.items():
        at = rows.schema.get_field_index(name)
        if at < 0:
            raise BadRequest(f"{target.kind} type '{target.name}' has no property '{name}'")
        column = rows.column(name).combine_chunks()
        new = value_column(target, name, values, rows.num_rows, column.type)
        taken = np.zeros(rows.num_rows, np.int64)
        taken[list(values)] = rows.num_rows
        mixed = pa.concat_arrays([column, new]).take(pa.array(taken + np.arange(rows.num_rows)))
        rows = rows.set_column(at, rows.schema.field(at), mixed)
    return rows


def _given(target: Target, choice: EntityChoice, name: str, value: Take | GivenValue) -> object:
    refuse_key(target, name, choice)
    if isinstance(value, GivenValue):
        return value.value
    raise BadRequest(
        f"the conflict of {choice.name} is not about single properties",
        remedy=f"take one side of the whole entity, or give '{name}' a value",
    )
