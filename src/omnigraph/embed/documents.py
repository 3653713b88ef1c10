"""Embed texts that are stored, and report each text that a provider refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.vectors import Vector
from omnigraph.errors import EmbeddingTextRejected


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
