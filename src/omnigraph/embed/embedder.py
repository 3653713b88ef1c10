"""What every provider can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from omnigraph.embed.vectors import Vector
from omnigraph.errors import EmbeddingTextRejected

Kind = Literal["query", "document"]
"""What a text is for; some models embed a question differently from what answers it."""


class Embedder(Protocol):
    """Turns texts into vectors; safe to share between threads."""

    @property
    def model(self) -> str:
        """The name that `@embed(..., model=...)` records."""

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        """One vector of length 1 for each text, in order; many texts are sent in several requests."""


MAX_TEXT_BYTES = 256 * 1024
"""No text beyond this is sent: it is several times what the widest embedding models read."""
MAX_BATCH_BYTES = 256 * 1024
"""A token is at least a byte, so this keeps a request below services' limits on tokens, too."""


def split_batches(texts: Sequence[str], *, model: str, most: int) -> Iterator[Sequence[str]]:
    """Consecutive groups of up to `most` texts and `MAX_BATCH_BYTES`; all texts are checked first."""
    sizes = [_measure_text(text, model) for text in texts]
    start = held = 0
    for position, size in enumerate(sizes):
        if position > start and (position - start == most or held + size > MAX_BATCH_BYTES):
            yield texts[start:position]
            start, held = position, 0
        held += size
    if start < len(texts):
        yield texts[start:]


def _measure_text(text: str, model: str) -> int:
    """The bytes of a text that can be embedded."""
    if not text.strip():
        raise EmbeddingTextRejected(
            "is empty", model=model, characters=len(text), remedy="give a text with at least one word"
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise EmbeddingTextRejected(
            f"is no proper Unicode at character {error.start}",
            model=model,
            characters=len(text),
            remedy="leave out half of a surrogate pair",
        ) from None
    if size > MAX_TEXT_BYTES:
        raise EmbeddingTextRejected(
            f"has {size} bytes, and at most {MAX_TEXT_BYTES} are sent",
            model=model,
            characters=len(text),
            remedy="shorten the text, or embed it in parts",
        )
    return size


def embed_each(embedder: Embedder, texts: Sequence[str], dimension: int) -> Iterator[Vector | str]:
    """Return a vector or the refusal for each text; refused batches are halved until the text is alone."""
    if not texts:
        return
    try:
        yield from embedder.embed(texts, dimension, "document")
    except EmbeddingTextRejected as refusal:
        if len(texts) == 1:
            yield refusal.message
            return
        middle = len(texts) // 2
        yield from embed_each(embedder, texts[:middle], dimension)
        yield from embed_each(embedder, texts[middle:], dimension)
