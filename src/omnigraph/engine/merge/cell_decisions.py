"""For contested entities, which side each cell comes from, and the rows built from that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import changed_columns, split_rows
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.merge.choices import (
    ChosenValue,
    EntityChoice,
    MergeChoices,
    MergeGranularity,
    MergeSide,
    build_value_column,
)
from omnigraph.engine.merge.patched_side import read_aligned_rows
from omnigraph.engine.merge.row_rule import (
    BASE,
    DELETED,
    INSERTED,
    KINDS,
    ROWS_AT_ONCE,
    SOURCE,
    TARGET,
    UPDATED,
    ContestedRows,
    Grid,
    MergeSides,
)
from omnigraph.engine.rows.blobs import to_writable
from omnigraph.errors import BadRequest

OURS, THEIRS, ORIGINAL, GIVEN = range(4)
"""Where a value comes from; the places of the columns that `_composed` chooses between."""
OPEN = -1
CODES = {MergeSide.OURS: OURS, MergeSide.THEIRS: THEIRS, MergeSide.BASE: ORIGINAL}
_PLACES = (TARGET, SOURCE, BASE)

Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class CellDecisions:
    """For each contested entity where its values come from."""

    contested: ContestedRows
    target: TableType
    presence: Codes
    """The side that says whether the entity is there."""
    cells: Codes
    """By entity and column."""
    given: dict[int, dict[int, Any]]
    """Values that neither branch has, by column and entity."""
    granularity: MergeGranularity

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

    def clashing_columns(self, row: int) -> tuple[str, ...]:
        """Return the columns that the branches disagree on."""
        contested = self.contested
        chosen = contested.ours[row] | contested.theirs[row]
        if contested.kinds[row] != DELETED:
            chosen = self.cells[row] == OPEN
        return tuple(np.array(contested.columns)[chosen].tolist())

    def changed_names(self, row: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns that source and target changed against the base; none for new entities."""
        contested = self.contested
        if contested.kinds[row] == INSERTED:
            return (), ()
        names, wanted = np.array(contested.columns), contested.apart[row] | ~contested.disputed[row]
        theirs, ours = (grid[row] & wanted for grid in (contested.theirs, contested.ours))
        return tuple(names[theirs].tolist()), tuple(names[ours].tolist())

    def find_given_up(self, before: CellDecisions) -> tuple[Grid, Grid]:
        """Return values that only one branch had changed and that a choice about the whole entity dropped.

        For the source and for the target; `before` are the decisions without choices.
        """
        contested = self.contested
        resolved = before.open & ~self.open & (contested.kinds == UPDATED) & ~contested.disputed
        alone = (
            contested.apart & (contested.ours ^ contested.theirs) & resolved[:, None] & (self.cells != GIVEN)
        )
        return (
            alone & contested.theirs & (self.cells != THEIRS),
            alone & contested.ours & (self.cells != OURS),
        )


def decide_by_granularity(
    contested: ContestedRows, target: TableType, granularity: MergeGranularity
) -> CellDecisions:
    """Return the decisions without choices: with granularity `property`, cells that one branch changed."""
    cells = np.full(contested.apart.shape, OPEN, np.int8)
    cells[~contested.apart] = OURS
    divergent = (contested.kinds != DELETED)[:, None]
    if granularity is MergeGranularity.PROPERTY:
        cells[contested.apart & divergent & ~contested.theirs] = OURS
        cells[contested.apart & divergent & ~contested.ours] = THEIRS
    presence = np.where(contested.kinds == DELETED, OPEN, OURS).astype(np.int8)
    return CellDecisions(contested, target, presence, cells, {}, granularity)


def apply_choices(before: CellDecisions, choices: MergeChoices) -> CellDecisions:
    """Return the decisions after applying choices, the least specific first."""
    found = replace(before, presence=before.presence.copy(), cells=before.cells.copy(), given={})
    key, everything = found.target.key, np.arange(len(found.presence))
    take = choices.take_for(key)
    if take is not None:
        _take(found, before, everything, take)
    for name, side in choices.of_type(key).properties.items():
        _take_property(found, before, _column_index(found, name, f"type {found.target.name}"), CODES[side])
    for choice, row in match_choices(before.contested, choices.of_entities(key)):
        _decide_entity(found, before, row, choice)
    return found


def match_choices(
    contested: ContestedRows, choices: Sequence[EntityChoice]
) -> Iterator[tuple[EntityChoice, int]]:
    """Yield the choices about contested entities, with their rows."""
    if not choices or not len(contested):
        return
    ids = pa.array([choice.entity_id for choice in choices], pa.string())
    places = pc.index_in(ids, value_set=contested.places.column(ID).combine_chunks()).to_pylist()
    for choice, row in zip(choices, places, strict=True):
        if row is not None and choice.is_about(KINDS[int(contested.kinds[row])]):
            yield choice, row


def _take(found: CellDecisions, before: CellDecisions, rows: NDArray[np.int64], take: MergeSide) -> None:
    code = CODES[take]
    chosen = found.cells[rows]
    chosen[before.cells[rows] == OPEN] = code
    if take is MergeSide.BASE and before.granularity is MergeGranularity.ROW:
        # Each branch has what both changed to the same; the base, taken whole, does not.
        chosen[before.contested.kinds[rows] == UPDATED] = code
    found.cells[rows] = chosen
    # An entity that all three sides have is neither added nor deleted.
    found.presence[rows[before.contested.kinds[rows] != UPDATED]] = code


def _take_property(found: CellDecisions, before: CellDecisions, column: int, code: int) -> None:
    """One property of all entities that both branches have, and the base as well if that is to be taken."""
    kinds = before.contested.kinds
    able = kinds != DELETED
    if code == ORIGINAL:
        able = able & (kinds != INSERTED)
    found.cells[able & (before.cells[:, column] == OPEN), column] = code


def _decide_entity(found: CellDecisions, before: CellDecisions, row: int, choice: EntityChoice) -> None:
    if choice.take is not None:
        _take(found, before, np.array([row]), choice.take)
    if not choice.properties:
        return
    side = int(found.presence[row])
    if side != OPEN and not before.contested.has(_PLACES[side], row):
        raise BadRequest(
            f"{choice.name} cannot get values and be deleted", remedy="take the side that has it"
        )
    for name, value in choice.properties.items():
        column = _column_index(found, name, choice.name)
        if isinstance(value, ChosenValue):
            refuse_key_change(found.target, name, choice)
            found.cells[row, column] = GIVEN
            found.given.setdefault(column, {})[row] = value.value
        else:
            _refuse_absent(before.contested, row, value, choice, name)
            found.cells[row, column] = CODES[value]


def refuse_key_change(target: TableType, name: str, choice: EntityChoice) -> None:
    """Fail when a choice would change the key of an entity: that would be another entity."""
    if name in target.identity:
        raise BadRequest(f"'{name}' is the key of {choice.name} and cannot be given another value")


def _refuse_absent(
    contested: ContestedRows, row: int, take: MergeSide, choice: EntityChoice, name: str
) -> None:
    if not contested.has(_PLACES[CODES[take]], row):
        raise BadRequest(f"'{name}' of {choice.name} cannot be that of '{take}', where the entity is not")


def _column_index(found: CellDecisions, name: str, owner: str) -> int:
    columns = found.contested.columns
    if name not in columns:
        raise BadRequest(f"{owner} has no property '{name}'", remedy=f"it has: {', '.join(columns)}")
    return columns.index(name)


# --- rows ----------------------------------------------------------------------------------------


def find_decided_deletions(decisions: CellDecisions) -> pa.ChunkedArray:
    """Return the ids of entities that decisions delete from the target."""
    contested = decisions.contested
    gone = ~decisions.open & contested.present(TARGET) & ~decisions.present
    return contested.places.filter(pa.array(gone)).column(ID)


def compose_decided_rows(decisions: CellDecisions, sides: MergeSides) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield the rows of decided entities in portions, with the row ids of the target that they replace.

    Open entities stay as the target has them.
    """
    contested = decisions.contested
    stays = contested.present(TARGET) & (decisions.cells == OURS).all(axis=1)
    written = np.flatnonzero(~decisions.open & decisions.present & ~stays)
    places = contested.places.append_column("row", pa.array(np.arange(len(contested)))).take(
        pa.array(written)
    )
    for part in split_rows(places, sides.each(), ROWS_AT_ONCE):
        yield _compose_portion(decisions, sides, part)


def _compose_portion(
    decisions: CellDecisions, sides: MergeSides, part: pa.Table
) -> tuple[pa.Table, pa.Array]:
    """Build rows from the cells of all sides; rows that equal the target are skipped."""
    each = (sides.target, sides.source, sides.base)
    tables = [
        read_aligned_rows(side, part.column(place).combine_chunks())
        for side, place in zip(each, _PLACES, strict=True)
    ]
    numbers = np.asarray(part.column("row"))
    columns = {ID: part.column(ID)}
    for at, name in enumerate(decisions.contested.columns):
        choices = [table.column(name).combine_chunks() for table in tables]
        given = _by_position(decisions.given.get(at, {}), numbers)
        choices.append(build_value_column(decisions.target, name, given, len(numbers), choices[0].type))
        columns[name] = _choose_values(choices, decisions.cells[numbers, at])
    names = [field.name for field in decisions.target.schema]
    rows = pa.table({name: columns[name] for name in names})
    stored = part.column(TARGET).combine_chunks()
    had = np.asarray(stored.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    changes = changed_columns(sides.target, sides.target, tables[0], rows).values()
    new = pa.array(~had | np.logical_or.reduce([np.zeros(len(numbers), np.bool_), *changes]))
    return to_writable(rows.filter(new), decisions.target.schema), stored.filter(new)


def _by_position(given: Mapping[int, Any], numbers: NDArray[np.int64]) -> dict[int, Any]:
    """Values by their place among the entities with these numbers, which ascend."""
    places = {row: int(np.searchsorted(numbers, row)) for row in given}
    return {at: given[row] for row, at in places.items() if at < len(numbers) and numbers[at] == row}


def _choose_values(columns: list[pa.Array], codes: Codes) -> pa.Array:
    """For each row the value of the column with that number."""
    size = len(codes)
    at = codes.astype(np.int64) * size + np.arange(size)
    return pa.concat_arrays(columns).take(pa.array(at))
