"""What the tasks that fill one property have in common; it travels to other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder, embed_each
from omnigraph.embed.providers import open_embedder
from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import Vector
from omnigraph.engine.embedding.provenance import (
    Digests,
    join_digests,
    notes_path,
    text_digest,
    text_digests,
    vector_digests,
)
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.root import Root, new_id, shared_root
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.errors import InternalError
from omnigraph.storage.blobs import is_blob
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class EmbedJob:
    """One property of one type at one moment of a branch, and who embeds it."""

    uri: str
    entry: TableEntry
    """The table and its version."""
    target: TableType
    text: str
    """The property that holds the texts."""
    vector: str
    """The property to be filled."""
    settings: EmbedSettings | None
    """The provider; None where vectors are only counted."""
    everything: bool = False
    """Whether vectors that were not made here are replaced, too."""
    dry_run: bool = False
    work: str = field(default_factory=new_id)
    """What its tasks have in common."""

    @property
    def path(self) -> str:
        """The property as users name it."""
        return f"{self.target.name}.{self.vector}"

    @property
    def root(self) -> Root:
        """The graph, as the process that runs a task reaches it."""
        return shared_root(self.uri, self.work)

    @property
    def table(self) -> Table:
        """The rows."""
        entry, root = self.entry, self.root
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)

    @property
    def notes(self) -> str:
        """Where it is noted which text a vector belongs to."""
        return notes_path(self.target.name, self.vector)

    @property
    def embedder(self) -> Embedder:
        """The provider, as this process reaches it."""
        if self.settings is None:
            raise InternalError(f"'{self.path}' is to be filled without a provider")
        return _shared_embedder(self.settings)

    @property
    def model(self) -> np.uint64:
        """A digest of the name of the model."""
        return text_digest(self.settings.model if self.settings else "")

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self.target.owner.properties[self.vector].type.dimension

    @property
    def nullable(self) -> bool:
        """Whether an entity may be without a vector."""
        return self.target.owner.properties[self.vector].type.nullable

    @property
    def columns(self) -> list[str]:
        """What has to be read to judge a row."""
        return [ID, self.text, self.vector]

    @property
    def blobs(self) -> list[str]:
        """The columns whose bytes have to be written again with a row."""
        return [field.name for field in self.target.schema if is_blob(field)]


@dataclass(frozen=True, slots=True)
class TextState:
    """Rows as far as it matters here, a column at a time."""

    has_text: NDArray[np.bool_]
    """Whether there is anything to embed: blank texts are none."""
    has_vector: NDArray[np.bool_]
    texts: Digests
    owners: Digests
    """Digests of the entities with their vectors; 0 where there is no vector."""


def read_state(job: EmbedJob, rows: pa.Table | pa.RecordBatch) -> TextState:
    """What the rows hold."""
    ids, texts, vectors = (combine_chunks(rows.column(name)) for name in job.columns)
    blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(pc.fill_null(texts, ""))), 0)
    has_vector = vectors.is_valid().to_numpy(zero_copy_only=False)
    return TextState(
        has_text=~blank.to_numpy(zero_copy_only=False),
        has_vector=has_vector,
        texts=text_digests(texts),
        owners=owner_digests(ids, vectors),
    )


def owner_digests(ids: pa.Array, vectors: pa.FixedSizeListArray) -> Digests:
    """Digests of entities with their vectors; 0 where there is no vector."""
    has_vector = vectors.is_valid().to_numpy(zero_copy_only=False)
    return np.where(has_vector, join_digests(text_digests(ids), vector_digests(vectors)), np.uint64(0))


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


@lru_cache(maxsize=4)
def _shared_embedder(settings: EmbedSettings) -> Embedder:
    """Connections are used again by the next task."""
    return open_embedder(settings)


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
    vectors = _build_column(
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


def _build_column(
    vectors: Sequence[Vector], present: NDArray[np.bool_], type_: pa.FixedSizeListType
) -> pa.FixedSizeListArray:
    """The vectors as a column, null where a row has none."""
    numbers = np.zeros((len(present), type_.list_size), np.float32)
    if vectors:
        numbers[present] = np.stack(vectors)
    values = pa.array(numbers.reshape(-1)).cast(type_.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=type_, mask=pa.array(~present))
