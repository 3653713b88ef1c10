"""Numbers from a provider to vectors that can be compared; nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import EmbeddingAnswerRejected, EmbeddingDimensionMismatch

Vector = NDArray[np.float32]
"""One embedding, of length 1: so Euclidean order and cosine order are the same."""

_Answer = TypeVar("_Answer")

# Longer than any way to write a number, so that an answer of another dimension is still read and named.
_BYTES_PER_NUMBER = 64
_BYTES_BESIDES = 4 * 1024 * 1024


class ModelIdentity(Protocol):
    """What made the numbers."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...


def max_answer_bytes(texts: int, dimension: int) -> int:
    """The most bytes that an answer with this many vectors may have."""
    return _BYTES_BESIDES + texts * dimension * _BYTES_PER_NUMBER


def decode_answer(answer: bytes, shape: type[_Answer], maker: ModelIdentity) -> _Answer:
    """An answer as the value it should be."""
    try:
        return msgspec.json.decode(answer, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise rejected_answer_error(maker, f"the answer is no list of vectors: {error}") from error


def to_unit_vectors(
    rows: Sequence[Sequence[float]], *, texts: int, dimension: int, maker: ModelIdentity
) -> list[Vector]:
    """One vector of length 1 for each text, from rows of numbers in the order of the texts."""
    if len(rows) != texts:
        raise rejected_answer_error(maker, f"the answer has {len(rows)} vectors for {texts} texts")
    actual = next((len(row) for row in rows if len(row) != dimension), dimension)
    if actual != dimension:
        raise EmbeddingDimensionMismatch(
            maker.provider,
            maker.model,
            expected=dimension,
            actual=actual,
            remedy=f"use a model that can give {dimension} dimensions, or declare Vector({actual})",
        )
    return normalize_rows(np.asarray(rows, dtype=np.float64).reshape(texts, dimension), maker)


def normalize_rows(matrix: NDArray[np.float64], maker: ModelIdentity) -> list[Vector]:
    """The rows of a matrix, scaled to length 1."""
    if not np.isfinite(matrix).all():
        raise rejected_answer_error(maker, "a vector holds a number that is not finite")
    # Divided by the largest number first, squares can neither overflow nor vanish.
    largest = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    if not largest.all():
        raise rejected_answer_error(maker, "a vector is zero and has no direction")
    reduced = matrix / largest
    return list((reduced / np.linalg.norm(reduced, axis=1, keepdims=True)).astype(np.float32))


def rejected_answer_error(maker: ModelIdentity, reason: str) -> EmbeddingAnswerRejected:
    """The error for an answer that cannot be used."""
    return EmbeddingAnswerRejected(
        maker.provider,
        maker.model,
        reason,
        remedy="check that the address and the model are those of embeddings",
    )
