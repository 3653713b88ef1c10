"""Vectors made from nothing but the text: the same everywhere and for ever, without any meaning."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from omnigraph.embed.embedder import Kind, split_batches
from omnigraph.embed.vectors import Vector

_SEED = b"omnigraph mock embedding 1\0"


class MockEmbedder:
    """A deterministic stand-in for tests and demonstrations; it may bear any model's name."""

    def __init__(self, model: str = "mock") -> None:
        self.model = model

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        """A query and a document of the same text have the same vector."""
        groups = split_batches(texts, model=self.model, most=len(texts))
        return [_hash_to_vector(text, dimension) for group in groups for text in group]


def _hash_to_vector(text: str, dimension: int) -> Vector:
    digest = hashlib.shake_256(_SEED + text.encode()).digest(8 * dimension)
    # 52 random bits and a half fit a float exactly, and the sum is rounded once: so neither the processor nor
    # the version of a library shows in the vector.
    whole = (np.frombuffer(digest, dtype="<u8") >> np.uint64(12)).astype(np.float64)
    spread = (whole + 0.5) * 2.0**-51 - 1.0
    length = math.sqrt(math.fsum((spread * spread).tolist()))
    return (spread / length).astype(np.float32)
