"""The vectors of texts that are stored, each text that a provider refuses told by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.vectors import Vector
from omnigraph.errors import EmbeddingTextRejected


def embedded_or_refused(embedder: Embedder, texts: Sequence[str], dimension: int) -> Iterator[Vector | str]:
    """A vector for each text, or why there is none: halves are tried until the culprit is alone."""
    if not texts:
        return
    try:
        yield from embedder.embed(texts, dimension, "document")
    except EmbeddingTextRejected as refusal:
        if len(texts) == 1:
            yield refusal.message
            return
        middle = len(texts) // 2
        yield from embedded_or_refused(embedder, texts[:middle], dimension)
        yield from embedded_or_refused(embedder, texts[middle:], dimension)
