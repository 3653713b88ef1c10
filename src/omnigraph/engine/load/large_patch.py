"""A patch of any size, as pieces of whole rows that are checked like those of any other load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.load.checks.check_scope import POSITION, CheckScope
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.staging import StagedItem, StagedType
from omnigraph.engine.load.stored_remainder import complete_rows
from omnigraph.engine.rows.patch_rows import patch_schema
from omnigraph.storage.pieces import Piece, Pieces, read_piece_rows, write_pieces
from omnigraph.storage.upsert import ROW


@dataclass(frozen=True, slots=True)
class _Completion:
    """What completes the rows of one type in one item; it travels to a task."""

    item: int
    """The place of the item among all."""
    staged: StagedType
    target: TableType
    entry: TableEntry
    row_ids: pa.Array
    """Of the stored row for each row; null where there is none."""


def complete_items(scope: CheckScope, row_ids: Mapping[str, pa.Table]) -> list[StagedItem]:
    """Return the items of a patch with whole rows; each row keeps its position."""
    work = [
        _Completion(
            place,
            staged,
            scope.task.targets[staged.key],
            scope.entry(staged.key),
            _slice_row_ids(row_ids.get(staged.key), item.item.number, staged.rows),
        )
        for place, item in enumerate(scope.items)
        for staged in item.types
    ]
    answers = scope.runner.each("complete", work, partial(_complete_in_task, scope.task.job))
    return list(_replace_types(scope.items, answers))


def _slice_row_ids(met: pa.Table | None, item: int, rows: int) -> pa.Array:
    """The row id of the stored row for each row of an item."""
    found, known = np.zeros(rows, np.uint64), np.zeros(rows, np.bool_)
    if met is not None:
        positions = met.column(POSITION).to_numpy()
        low, high = np.searchsorted(positions, [item << 32, (item + 1) << 32])
        places = positions[low:high] & 0xFFFFFFFF
        found[places] = met.column(ROW).to_numpy()[low:high]
        known[places] = True
    return pa.array(found, mask=~known)


def _replace_types(
    items: Sequence[StagedItem], answers: Iterable[tuple[int, StagedType]]
) -> Iterator[StagedItem]:
    found: dict[int, dict[str, StagedType]] = {}
    for place, staged in answers:
        found.setdefault(place, {})[staged.key] = staged
    for place, item in enumerate(items):
        whole = found.get(place, {})
        yield replace(item, types=tuple(whole[staged.key] for staged in item.types))


# --- in the tasks --------------------------------------------------------------------------------


def _complete_in_task(job: LoadJob, one: _Completion) -> tuple[int, StagedType]:
    if one.row_ids.null_count == len(one.row_ids):
        # None of the rows counts.
        return one.item, replace(one.staged, pieces=())
    # A row that does not count must have some row id, also where its piece has no other.
    row_ids = one.row_ids.fill_null(one.row_ids.drop_null()[0])
    pieces: list[Piece] = []
    begin = 0
    for piece in one.staged.pieces:
        pieces += _complete_piece(job, one, piece, row_ids.slice(begin, piece.rows))
        begin += piece.rows
    return one.item, replace(one.staged, pieces=tuple(pieces))


def _complete_piece(job: LoadJob, one: _Completion, piece: Piece, row_ids: pa.Array) -> Sequence[Piece]:
    root, entry, target = job.root, one.entry, one.target
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    place, access = job.pieces(target.key), root.tables.access

    def batches() -> Iterator[pa.RecordBatch]:
        begin = 0
        for batch in read_piece_rows(access, Pieces(place, patch_schema(target), (piece,))):
            rows = pa.Table.from_batches([batch])
            part = row_ids.slice(begin, rows.num_rows)
            begin += rows.num_rows
            yield from complete_rows(table, rows, part, target).combine_chunks().to_batches()

    return write_pieces(access, place, pa.RecordBatchReader.from_batches(target.schema, batches()))
