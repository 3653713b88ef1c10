"""What a merge does to one table of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import changed_columns, pieces, row_ids
from omnigraph.engine.columns import ID
from omnigraph.engine.merge.choices import EntityChoice, GivenValue, Take
from omnigraph.engine.merge.contest import AT_ONCE, BASE, SOURCE, Delta, Sides
from omnigraph.engine.merge.images import rows_with
from omnigraph.engine.merge.values import value_column
from omnigraph.engine.merge.verdict import Outcome, refuse_key
from omnigraph.engine.plan import Append, Effect, Remove, Steps, Upsert
from omnigraph.engine.write.blobs import as_stored
from omnigraph.engine.write.change import NO_IDS, Change, within, without
from omnigraph.engine.write.target import Target
from omnigraph.errors import BadRequest


@dataclass(frozen=True, slots=True)
class TableChange:
    """The rows that a table of the target gets and loses."""

    target: Target
    rows: pa.Table
    known: Mask
    """Which of the rows the target has, in another version."""
    deleted: pa.ChunkedArray

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

    def effect(self) -> Effect:
        """The change as a write carries it out."""
        steps: list[Append | Upsert | Remove] = []
        if self.rows.num_rows:
            steps.append(Upsert(self.rows) if self.known.any() else Append(self.rows))
        if len(self.deleted):
            steps.append(Remove(self.deleted.combine_chunks()))
        return steps[0] if len(steps) == 1 else Steps(tuple(steps))


def change_of(target: Target, sides: Sides, delta: Delta, outcome: Outcome) -> TableChange:
    """What the source alone changed, and what was decided."""
    stays = delta.taken.column(SOURCE).is_valid()
    taken = delta.taken.filter(stays)
    parts = [
        as_stored(sides.source.rows(row_ids(part, SOURCE)).select(target.schema.names), target.schema)
        for part in pieces(taken, (sides.source,), AT_ONCE)
    ]
    known = np.asarray(taken.column(BASE).is_valid().to_numpy(), np.bool_)
    gone = delta.taken.filter(pc.invert(stays)).column(ID)
    return TableChange(
        target,
        pa.concat_tables([target.schema.empty_table(), *parts, outcome.rows]),
        np.concatenate([known, outcome.known]),
        pa.chunked_array([*gone.chunks, *outcome.deleted.chunks], pa.string()),
    )


# --- decisions about single entities, whatever the row rule says -----------------------------------


def overruled(change: TableChange, choices: Mapping[str, EntityChoice], sides: Sides) -> TableChange:
    """The change with some entities, by id, as a decision has them."""
    ids = pa.array(list(choices), pa.string())
    stays = ~within(change.rows.column(ID), ids)
    here = rows_with(sides.target, ids)
    parts, known = [change.rows.filter(pa.array(stays))], [change.known[stays]]
    deleted = [without(change.deleted, ids)]
    for take, side in ((Take.THEIRS, sides.source), (Take.BASE, sides.base), (Take.OURS, sides.target)):
        chosen = {entity: one for entity, one in choices.items() if (one.take or Take.THEIRS) is take}
        if not chosen:
            continue
        wanted = pa.array(list(chosen), pa.string())
        there = rows_with(side, wanted)
        rows, had = _other_than(here, _with_values(change.target, there, chosen), sides)
        parts.append(as_stored(rows.select(change.target.schema.names), change.target.schema))
        known.append(had)
        absent = without(pa.chunked_array([wanted]), there.column(ID))
        deleted.append(absent.filter(pa.array(within(absent, here.column(ID)))))
    chunks = [chunk for part in deleted for chunk in part.chunks]
    return TableChange(
        change.target,
        pa.concat_tables(parts),
        np.concatenate(known),
        pa.chunked_array(chunks, pa.string()),
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
