"""The vectors of some rows, asked of the provider by a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.embed.documents import embed_each
from omnigraph.embed.vectors import Vector
from omnigraph.engine.embedding.digests import Digests
from omnigraph.engine.embedding.embed_job import EmbedJob, combine_chunks, owner_digests, read_state
from omnigraph.engine.graph.columns import ID


@dataclass(frozen=True, slots=True)
class RejectedText:
    """An entity whose text cannot be embedded."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class NewVectors:
    """Vectors for rows, and what the rows held when they were made."""

    row_ids: NDArray[np.uint64] = field(repr=False)
    ids: pa.Array = field(repr=False)
    texts: Digests = field(repr=False)
    before: Digests = field(repr=False)
    """Digests of the entities with the vectors they had."""
    after: Digests = field(repr=False)
    """Digests of the entities with the new ones; 0 where they get none."""
    vectors: pa.FixedSizeListArray = field(repr=False)
    refused: tuple[RejectedText, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


def make_vectors(job: EmbedJob, row_ids: NDArray[np.uint64]) -> NewVectors:
    """The vectors of some rows; a text that the provider refuses is skipped and reported."""
    rows = job.table.take(pa.array(row_ids), job.columns)
    look, texts = read_state(job, rows), combine_chunks(rows.column(job.text))
    asked = np.flatnonzero(look.has_text)
    answers = list(embed_each(job.embedder, texts.take(pa.array(asked)).to_pylist(), job.dimension))
    refused = {int(at): one for at, one in zip(asked, answers, strict=True) if isinstance(one, str)}
    kept = np.setdiff1d(np.arange(len(texts)), np.fromiter(refused, np.int64, len(refused)))
    ids = combine_chunks(rows.column(ID))
    vectors = _column(
        [one for one in answers if not isinstance(one, str)],
        look.has_text[kept],
        job.target.schema.field(job.vector).type,
    )
    remaining = ids.take(pa.array(kept))
    return NewVectors(
        row_ids[kept],
        remaining,
        look.texts[kept],
        look.owners[kept],
        owner_digests(remaining, vectors),
        vectors,
        tuple(RejectedText(str(ids[at].as_py()), reason) for at, reason in refused.items()),
    )


def _column(
    vectors: Sequence[Vector], present: NDArray[np.bool_], type_: pa.FixedSizeListType
) -> pa.FixedSizeListArray:
    """The vectors as a column, null where a row has none."""
    numbers = np.zeros((len(present), type_.list_size), np.float32)
    if vectors:
        numbers[present] = np.stack(vectors)
    values = pa.array(numbers.reshape(-1)).cast(type_.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=type_, mask=pa.array(~present))
