"""Which entities lack their vector, or have one of a text that is another now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.embedding.embed_job import EmbedJob, TextState, read_state
from omnigraph.engine.embedding.provenance import (
    GIVEN,
    Digests,
    Provenance,
    VectorNotes,
    load_provenance,
    store_notes,
)
from omnigraph.storage.blobs import blob_sizes
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.fragments import list_fragments as all_fragments
from omnigraph.storage.tables import Table

ROW_ID = "_rowid"
ROWS_PER_TASK = 250_000

_BATCH_ROWS = 8192
_BYTES_PER_NUMBER = 4
_BYTES_BESIDES = 256
_PACKED = 2
"""How much larger the columns that are not looked at are taken to be in memory than on disk."""


@dataclass(frozen=True, slots=True)
class StaleRows:
    """Rows to be filled, by row ids, with about how many bytes each takes in memory."""

    row_ids: NDArray[np.uint64] = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)


def group_fragments(fragments: Sequence[Fragment]) -> list[tuple[int, ...]]:
    """Neighbouring fragments, so many rows of them for each task."""
    made: list[list[int]] = []
    held = 0
    for one in fragments:
        if not made or held + one.rows > ROWS_PER_TASK:
            made.append([])
            held = 0
        made[-1].append(one.id)
        held += one.rows
    return [tuple(group) for group in made]


def find_stale_rows(job: EmbedJob, fragments: Sequence[int]) -> StaleRows:
    """The rows of some fragments that have to be filled.

    A vector of unknown origin counts as that of the text it is found with: this is
    noted, so that a change of the text is noticed from now on.
    """
    known = load_provenance(job.root, job.notes)
    row_ids, sizes, given = [_NO_IDS], [_NO_SIZES], list[VectorNotes]()
    columns, besides = [*job.columns, *job.blobs], _fixed_row_size(job.table)
    for batch in job.table.batches(columns, fragments=fragments, row_ids=True, batch_size=_BATCH_ROWS):
        look = read_state(job, batch)
        wanted = _needs_vector(job, look, known)
        row_ids.append(batch.column(ROW_ID).to_numpy()[wanted])
        sizes.append((_row_sizes(job, batch) + besides)[wanted])
        given.append(_notes_of_given(look, known, wanted))
    if not job.dry_run:
        store_notes(job.root, job.notes, _join_notes(given))
    return StaleRows(np.concatenate(row_ids), np.concatenate(sizes))


_NO_IDS: Digests = np.empty(0, np.uint64)
_NO_SIZES: NDArray[np.int64] = np.empty(0, np.int64)


def _needs_vector(job: EmbedJob, look: TextState, known: Provenance) -> NDArray[np.bool_]:
    outdated = known.knows(look.owners) & ~known.belong(look.owners, look.texts)
    if job.everything:
        outdated |= ~known.made(look.owners, look.texts, job.model)
    # Without its text a vector that belonged to one has to go, where the schema allows that.
    orphaned = look.has_vector & ~look.has_text & known.knows(look.owners) & job.nullable
    wanted: NDArray[np.bool_] = look.has_text & (~look.has_vector | outdated) | orphaned
    return wanted


def _notes_of_given(look: TextState, known: Provenance, wanted: NDArray[np.bool_]) -> VectorNotes:
    chosen = look.has_text & look.has_vector & ~known.knows(look.owners) & ~wanted
    owners = look.owners[chosen]
    return VectorNotes(owners, look.texts[chosen], np.full(len(owners), GIVEN))


def _join_notes(parts: Sequence[VectorNotes]) -> VectorNotes:
    return VectorNotes(
        np.concatenate([_NO_IDS, *(one.owners for one in parts)]),
        np.concatenate([_NO_IDS, *(one.texts for one in parts)]),
        np.concatenate([_NO_IDS, *(one.models for one in parts)]),
    )


def _fixed_row_size(table: Table) -> int:
    """What a row is taken to need besides its text, its vector and its blobs."""
    pieces = all_fragments(table)
    rows = max(1, sum(one.rows for one in pieces))
    return _BYTES_BESIDES + _PACKED * sum(one.bytes for one in pieces) // rows


def _row_sizes(job: EmbedJob, batch: pa.RecordBatch) -> NDArray[np.int64]:
    texts = pc.fill_null(pc.binary_length(batch.column(job.text)), 0).to_numpy(zero_copy_only=False)
    sizes: NDArray[np.int64] = texts.astype(np.int64) + job.dimension * _BYTES_PER_NUMBER
    for name in job.blobs:
        sizes = sizes + blob_sizes(batch.column(name)).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes
