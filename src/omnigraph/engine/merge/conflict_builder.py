"""Build conflicts: the message, and the entity on every side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import EntityImage
from omnigraph.engine.changes.row_pairs import split_rows
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.graph.table_types import SOURCE as EDGE_SOURCE
from omnigraph.engine.graph.table_types import TARGET as EDGE_TARGET
from omnigraph.engine.merge.cell_decisions import CellDecisions
from omnigraph.engine.merge.conflict import (
    ConflictKind,
    DroppedValues,
    MergeConflict,
    RuleViolation,
    image_value,
)
from omnigraph.engine.merge.patched_side import read_rows_by_id
from omnigraph.engine.merge.row_rule import BASE, KINDS, SOURCE, TARGET, MergeSides
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

_CONFLICTS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class BranchNames:
    """The branch names in the messages of conflicts."""

    source: str
    target: str


def build_row_conflicts(
    key: str, decisions: CellDecisions, sides: MergeSides, rows: NDArray[np.int64], branches: BranchNames
) -> Iterator[MergeConflict]:
    """Yield contested entities as conflicts; `decisions` are those without choices."""
    places = decisions.contested.places.append_column("row", pa.array(np.arange(len(decisions.contested))))
    for part in split_rows(places.take(pa.array(rows)), sides.each(), _CONFLICTS_AT_ONCE):
        images = zip(
            *(
                _images(side, part.column(place).combine_chunks())
                for side, place in zip(sides.each(), (BASE, SOURCE, TARGET), strict=True)
            ),
            strict=True,
        )
        numbers, ids = part.column("row").to_pylist(), part.column(ID).to_pylist()
        for row, entity, (base, source, target) in zip(numbers, ids, images, strict=True):
            kind, names = KINDS[int(decisions.contested.kinds[row])], decisions.clashing_columns(row)
            theirs, ours = decisions.changed_names(row)
            found = MergeConflict(key, entity, kind, "", base, source, target, names, theirs, ours)
            disputed = bool(decisions.contested.disputed[row])
            yield replace(found, message=_describe_conflict(found, branches, disputed=disputed))


def _images(side: TableSide, row_ids: pa.Array) -> Iterator[EntityImage | None]:
    found = iter(build_images(side, side.read_rows(row_ids.drop_null())))
    return (next(found) if there else None for there in row_ids.is_valid().to_pylist())


def _describe_conflict(found: MergeConflict, branches: BranchNames, *, disputed: bool) -> str:
    what, listed = f"{found.entity_kind} {found.type_name} '{found.entity_id}'", ", ".join(found.properties)
    ours, theirs = f"'{branches.target}'", f"'{branches.source}'"
    match found.kind:
        case ConflictKind.DIVERGENT_INSERT:
            return f"{what} was inserted on both {theirs} and {ours}, with different values of {listed}"
        case ConflictKind.DIVERGENT_UPDATE:
            both = f"{what} was changed on both {theirs} and {ours}"
            if disputed:
                return f"{both}, with different values of {listed}; its previous value is unknown"
            there, here = ", ".join(found.source_changed), ", ".join(found.target_changed)
            return f"{both}: {theirs} changed {there}; {ours} changed {here}"
        case _:
            gone, kept = (ours, theirs) if found.target is None else (theirs, ours)
            return f"{what} was deleted on {gone} and changed on {kept}"


def build_given_up(found: MergeConflict, theirs: Sequence[str], ours: Sequence[str]) -> DroppedValues:
    """Return the dropped values of a decided conflict, by the branch that had changed them."""
    return DroppedValues(
        found.table_key,
        found.entity_id or "",
        {name: image_value(found.source, name) for name in theirs},
        {name: image_value(found.target, name) for name in ours},
    )


def build_rule_conflicts(key: str, found: Sequence[RuleViolation], sides: MergeSides) -> list[MergeConflict]:
    """Return violations in one table as conflicts."""
    ids = pa.array([one.entity_id for one in found if one.entity_id is not None], pa.string())
    base, source, target = (_images_by_id(side, ids) for side in sides.each())
    return [
        MergeConflict(key, one.entity_id, one.kind, one.message, base.get(at), source.get(at), target.get(at))
        for one in found
        for at in (one.entity_id or "",)
    ]


def _images_by_id(side: TableSide, ids: pa.Array) -> dict[str, EntityImage]:
    rows = read_rows_by_id(side, ids)
    return dict(zip(rows.column(ID).to_pylist(), build_images(side, rows), strict=True))


def build_images(side: TableSide, rows: pa.Table) -> list[EntityImage]:
    """Return rows as images; a Blob is shown by size and digest, so that a list of conflicts stays small."""
    columns = [_column_values(rows.column(name), type_) for name, type_ in side.types.items()]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    names = list(side.types)
    return [
        EntityImage(dict(zip(names, found, strict=True)), source, target)
        for found, source, target in zip(
            values, _ends(rows, EDGE_SOURCE), _ends(rows, EDGE_TARGET), strict=True
        )
    ]


def _ends(rows: pa.Table, end: str) -> Sequence[str | None]:
    found: list[str | None] = (
        rows.column(end).to_pylist() if end in rows.column_names else [None] * rows.num_rows
    )
    return found


def _column_values(column: pa.ChunkedArray, type_: ValueType) -> list[Json]:
    if type_.scalar is not Scalar.BLOB:
        return column_to_json(column, type_)
    return [None if data is None else _describe_blob(data) for data in column.to_pylist()]


def _describe_blob(data: bytes) -> str:
    return f"{len(data)} bytes, sha256:{sha256(data).hexdigest()}"
