"""Conflicts told in words, with the entity on every side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.changes.change import Image
from omnigraph.engine.changes.pairs import pieces
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID
from omnigraph.engine.layout import split_key
from omnigraph.engine.merge.breach import Breach
from omnigraph.engine.merge.conflict import ConflictKind, MergeConflict
from omnigraph.engine.merge.contest import BASE, KINDS, SOURCE, TARGET, Sides
from omnigraph.engine.merge.images import images_of, rows_with
from omnigraph.engine.merge.verdict import Verdict

_TOLD_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class BranchNames:
    """The names that conflicts are told with."""

    source: str
    target: str


def row_conflicts(
    key: str, verdict: Verdict, sides: Sides, rows: NDArray[np.int64], branches: BranchNames
) -> Iterator[MergeConflict]:
    """Contested entities as conflicts; `verdict` is the one without decisions."""
    places = verdict.contested.places.append_column("row", pa.array(np.arange(len(verdict.contested))))
    for part in pieces(places.take(pa.array(rows)), sides.each(), _TOLD_AT_ONCE):
        images = zip(
            *(
                _images(side, part.column(place).combine_chunks())
                for side, place in zip(sides.each(), (BASE, SOURCE, TARGET), strict=True)
            ),
            strict=True,
        )
        numbers, ids = part.column("row").to_pylist(), part.column(ID).to_pylist()
        for row, entity, (base, source, target) in zip(numbers, ids, images, strict=True):
            kind, names = KINDS[int(verdict.contested.kinds[row])], verdict.clashing(row)
            message = _message(key, entity, kind, names, branches, deleted_here=target is None)
            yield MergeConflict(key, entity, kind, message, base, source, target, names)


def _images(side: Side, row_ids: pa.Array) -> Iterator[Image | None]:
    found = iter(images_of(side, side.rows(row_ids.drop_null())))
    return (next(found) if there else None for there in row_ids.is_valid().to_pylist())


def _message(
    key: str,
    entity: str,
    kind: ConflictKind,
    names: Sequence[str],
    branches: BranchNames,
    *,
    deleted_here: bool,
) -> str:
    entity_kind, type_name = split_key(key)
    what, listed = f"{entity_kind} {type_name} '{entity}'", ", ".join(names)
    ours, theirs = f"'{branches.target}'", f"'{branches.source}'"
    match kind:
        case ConflictKind.DIVERGENT_INSERT:
            return f"{what} was inserted on both {theirs} and {ours}, with different values of {listed}"
        case ConflictKind.DIVERGENT_UPDATE:
            return f"{what} was changed on both {theirs} and {ours}, with different values of {listed}"
        case _:
            gone, kept = (ours, theirs) if deleted_here else (theirs, ours)
            return f"{what} was deleted on {gone} and changed on {kept}"


def rule_conflicts(key: str, found: Sequence[Breach], sides: Sides) -> list[MergeConflict]:
    """Broken rules of one table as conflicts."""
    ids = pa.array([one.entity_id for one in found if one.entity_id is not None], pa.string())
    base, source, target = (_by_id(side, ids) for side in sides.each())
    return [
        MergeConflict(key, one.entity_id, one.kind, one.message, base.get(at), source.get(at), target.get(at))
        for one in found
        for at in (one.entity_id or "",)
    ]


def _by_id(side: Side, ids: pa.Array) -> dict[str, Image]:
    rows = rows_with(side, ids)
    return dict(zip(rows.column(ID).to_pylist(), images_of(side, rows), strict=True))
