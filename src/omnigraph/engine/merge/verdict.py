"""Decisions about contested entities, cell by cell, and the rows that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import changed_columns, pieces
from omnigraph.engine.columns import ID
from omnigraph.engine.merge.choices import Choices, EntityChoice, GivenValue, Granularity, Take
from omnigraph.engine.merge.contest import (
    AT_ONCE,
    BASE,
    DELETED,
    INSERTED,
    KINDS,
    SOURCE,
    TARGET,
    UPDATED,
    Contested,
    Sides,
)
from omnigraph.engine.merge.images import aligned
from omnigraph.engine.merge.values import value_column
from omnigraph.engine.write.blobs import as_stored
from omnigraph.engine.write.target import Target
from omnigraph.errors import BadRequest

OURS, THEIRS, ORIGINAL, GIVEN = range(4)
"""Where a value comes from; the places of the columns that `_composed` chooses between."""
OPEN = -1
CODES = {Take.OURS: OURS, Take.THEIRS: THEIRS, Take.BASE: ORIGINAL}
_PLACES = (TARGET, SOURCE, BASE)

Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Verdict:
    """For each contested entity where its values come from."""

    contested: Contested
    target: Target
    presence: Codes
    """The side that says whether the entity is there."""
    cells: Codes
    """By entity and column."""
    given: dict[int, dict[int, Any]]
    """Values that neither branch has, by column and entity."""
    granularity: Granularity

    @property
    def open(self) -> Mask:
        """Which entities are not decided."""
        found: Mask = (self.presence == OPEN) | (self.cells == OPEN).any(axis=1)
        return found

    @property
    def present(self) -> Mask:
        """Which entities are there afterwards, as far as that is decided."""
        there = np.stack([self.contested.present(side) for side in _PLACES], axis=1)
        found: Mask = there[np.arange(len(self.presence)), np.maximum(self.presence, 0)]
        return found

    def clashing(self, row: int) -> tuple[str, ...]:
        """What the branches disagree on."""
        contested = self.contested
        chosen = contested.ours[row] | contested.theirs[row]
        if contested.kinds[row] != DELETED:
            chosen = self.cells[row] == OPEN
        return tuple(np.array(contested.columns)[chosen].tolist())


def undecided(contested: Contested, target: Target, granularity: Granularity) -> Verdict:
    """What follows without any decision: with granularity `property`, what only one branch changed."""
    cells = np.full(contested.apart.shape, OPEN, np.int8)
    cells[~contested.apart] = OURS
    divergent = (contested.kinds != DELETED)[:, None]
    if granularity is Granularity.PROPERTY:
        cells[contested.apart & divergent & ~contested.theirs] = OURS
        cells[contested.apart & divergent & ~contested.ours] = THEIRS
    presence = np.where(contested.kinds == DELETED, OPEN, OURS).astype(np.int8)
    return Verdict(contested, target, presence, cells, {}, granularity)


def decided(before: Verdict, choices: Choices) -> Verdict:
    """What follows from decisions, the least specific first."""
    found = replace(before, presence=before.presence.copy(), cells=before.cells.copy(), given={})
    key, everything = found.target.key, np.arange(len(found.presence))
    take = choices.take_for(key)
    if take is not None:
        _take(found, before, everything, take)
    for name, side in choices.of_type(key).properties.items():
        _take_property(found, before, _column(found, name, f"type {found.target.name}"), CODES[side])
    for choice, row in chosen_rows(before.contested, choices.of_entities(key)):
        _decide_entity(found, before, row, choice)
    return found


def chosen_rows(contested: Contested, choices: Sequence[EntityChoice]) -> Iterator[tuple[EntityChoice, int]]:
    """Decisions that are meant for contested entities, with their places."""
    if not choices or not len(contested):
        return
    ids = pa.array([choice.entity_id for choice in choices], pa.string())
    places = pc.index_in(ids, value_set=contested.places.column(ID).combine_chunks()).to_pylist()
    for choice, row in zip(choices, places, strict=True):
        if row is not None and choice.is_about(KINDS[int(contested.kinds[row])]):
            yield choice, row


def _take(found: Verdict, before: Verdict, rows: NDArray[np.int64], take: Take) -> None:
    code = CODES[take]
    chosen = found.cells[rows]
    chosen[before.cells[rows] == OPEN] = code
    if take is Take.BASE and before.granularity is Granularity.ROW:
        # Each branch has what both changed to the same; the base, taken whole, does not.
        chosen[before.contested.kinds[rows] == UPDATED] = code
    found.cells[rows] = chosen
    # An entity that all three have cannot come or go.
    found.presence[rows[before.contested.kinds[rows] != UPDATED]] = code


def _take_property(found: Verdict, before: Verdict, column: int, code: int) -> None:
    """One property of all entities that both branches have, and the base as well if that is to be taken."""
    kinds = before.contested.kinds
    able = kinds != DELETED
    if code == ORIGINAL:
        able = able & (kinds != INSERTED)
    found.cells[able & (before.cells[:, column] == OPEN), column] = code


def _decide_entity(found: Verdict, before: Verdict, row: int, choice: EntityChoice) -> None:
    if choice.take is not None:
        _take(found, before, np.array([row]), choice.take)
    if not choice.properties:
        return
    side = int(found.presence[row])
    if side != OPEN and not before.contested.has(_PLACES[side], row):
        raise BadRequest(
            f"{choice.name} is to have values and to be deleted", remedy="take the side that has it"
        )
    for name, value in choice.properties.items():
        column = _column(found, name, choice.name)
        if isinstance(value, GivenValue):
            refuse_key(found.target, name, choice)
            found.cells[row, column] = GIVEN
            found.given.setdefault(column, {})[row] = value.value
        else:
            _refuse_absent(before.contested, row, value, choice, name)
            found.cells[row, column] = CODES[value]


def refuse_key(target: Target, name: str, choice: EntityChoice) -> None:
    """Fail when a decision would give an entity another key: it would be another entity."""
    if name in target.identity:
        raise BadRequest(f"'{name}' is the key of {choice.name} and cannot be given another value")


def _refuse_absent(contested: Contested, row: int, take: Take, choice: EntityChoice, name: str) -> None:
    if not contested.has(_PLACES[CODES[take]], row):
        raise BadRequest(f"'{name}' of {choice.name} cannot be that of '{take}', where the entity is not")


def _column(found: Verdict, name: str, owner: str) -> int:
    columns = found.contested.columns
    if name not in columns:
        raise BadRequest(f"{owner} has no property '{name}'", remedy=f"it has: {', '.join(columns)}")
    return columns.index(name)


# --- rows ----------------------------------------------------------------------------------------


def decided_deletions(verdict: Verdict) -> pa.ChunkedArray:
    """The entities that the target loses by decisions."""
    contested = verdict.contested
    gone = ~verdict.open & contested.present(TARGET) & ~verdict.present
    return contested.places.filter(pa.array(gone)).column(ID)


def decided_rows(verdict: Verdict, sides: Sides) -> Iterator[tuple[pa.Table, pa.Array]]:
    """What decided entities become, some at a time, and the rows in which the target has another version.

    Those that are open stay as the target has them.
    """
    contested = verdict.contested
    stays = contested.present(TARGET) & (verdict.cells == OURS).all(axis=1)
    written = np.flatnonzero(~verdict.open & verdict.present & ~stays)
    places = contested.places.append_column("row", pa.array(np.arange(len(contested)))).take(
        pa.array(written)
    )
    for part in pieces(places, sides.each(), AT_ONCE):
        yield _composed(verdict, sides, part)


def _composed(verdict: Verdict, sides: Sides, part: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Rows made of columns of all sides, but none that are in the target already."""
    each = (sides.target, sides.source, sides.base)
    tables = [
        aligned(side, part.column(place).combine_chunks()) for side, place in zip(each, _PLACES, strict=True)
    ]
    numbers = np.asarray(part.column("row"))
    columns = {ID: part.column(ID)}
    for at, name in enumerate(verdict.contested.columns):
        choices = [table.column(name).combine_chunks() for table in tables]
        given = _within(verdict.given.get(at, {}), numbers)
        choices.append(value_column(verdict.target, name, given, len(numbers), choices[0].type))
        columns[name] = _chosen(choices, verdict.cells[numbers, at])
    names = [field.name for field in verdict.target.schema]
    rows = pa.table({name: columns[name] for name in names})
    stored = part.column(TARGET).combine_chunks()
    had = np.asarray(stored.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    changes = changed_columns(sides.target, sides.target, tables[0], rows).values()
    new = pa.array(~had | np.logical_or.reduce([np.zeros(len(numbers), np.bool_), *changes]))
    return as_stored(rows.filter(new), verdict.target.schema), stored.filter(new)


def _within(given: Mapping[int, Any], numbers: NDArray[np.int64]) -> dict[int, Any]:
    """Values by their place among the entities with these numbers, which ascend."""
    places = {row: int(np.searchsorted(numbers, row)) for row in given}
    return {at: given[row] for row, at in places.items() if at < len(numbers) and numbers[at] == row}


def _chosen(columns: list[pa.Array], codes: Codes) -> pa.Array:
    """For each row the value of the column with that number."""
    size = len(codes)
    at = codes.astype(np.int64) * size + np.arange(size)
    return pa.concat_arrays(columns).take(pa.array(at))
