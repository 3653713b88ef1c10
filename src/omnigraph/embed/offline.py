"""A small model that needs no network: each word piece has a vector, and a text is the mean of its pieces.

The weights and the word pieces are files of the package `wordllama`, an optional dependency. They are read
directly, because the package's own loader looks for them on the network and its import sets up logging.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Kind, split_batches
from omnigraph.embed.settings import OFFLINE_MODEL
from omnigraph.embed.vectors import Vector, normalize_rows
from omnigraph.errors import EmbeddingDimensionMismatch, EmbeddingNotConfigured

DIMENSIONS = (64, 128, 256)
"""The model was trained so that the first numbers of a vector are a smaller vector."""
_MOST_TEXTS = 1024
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_PIECES = Path("tokenizers", "l2_supercat_tokenizer_config.json")


class OfflineEmbedder:
    """Embeds in this process; the model is loaded with the first text and shared by the whole process."""

    provider = "offline"
    model = OFFLINE_MODEL

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        if dimension not in DIMENSIONS:
            nearest = min(DIMENSIONS, key=lambda each: abs(each - dimension))
            raise EmbeddingDimensionMismatch(
                self.provider,
                self.model,
                expected=dimension,
                actual=nearest,
                remedy=f"declare a Vector of {', '.join(map(str, DIMENSIONS))}, or choose another provider",
            )
        groups = split_batches(texts, model=self.model, most=_MOST_TEXTS)
        return [
            vector
            for group in groups
            for vector in normalize_rows(_load_model().average_pieces(group)[:, :dimension], self)
        ]


@dataclass(frozen=True, slots=True)
class _Model:
    pieces: Any
    weights: NDArray[np.float16]

    def average_pieces(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The mean of each text's word pieces."""
        numbers = [found.ids for found in self.pieces.encode_batch(list(texts), add_special_tokens=False)]
        lengths = np.fromiter(map(len, numbers), dtype=np.intp, count=len(numbers))
        starts = np.cumsum(lengths) - lengths
        rows = self.weights[np.concatenate([np.asarray(each, dtype=np.intp) for each in numbers])]
        sums: NDArray[np.float64] = np.add.reduceat(rows, starts, axis=0, dtype=np.float64)
        return sums / lengths[:, np.newaxis]


@lru_cache(maxsize=1)
def _load_model() -> _Model:
    package = find_spec("wordllama")
    homes = package.submodule_search_locations if package else None
    if not homes:
        raise _missing_error("is not installed")
    home = Path(homes[0])
    if not ((home / _WEIGHTS).is_file() and (home / _PIECES).is_file()):
        raise _missing_error("is installed in a version without its files")
    # By name, because type checkers cannot see packages that are not installed.
    pieces = import_module("tokenizers").Tokenizer.from_file(str(home / _PIECES))
    pieces.no_padding()
    pieces.no_truncation()
    with import_module("safetensors").safe_open(str(home / _WEIGHTS), framework="np") as file:
        return _Model(pieces, file.get_tensor("embedding.weight"))


def _missing_error(how: str) -> EmbeddingNotConfigured:
    return EmbeddingNotConfigured(
        f"embedding provider 'offline' needs the package 'wordllama', which {how}",
        provider="offline",
        remedy="install omnigraph with the extra 'offline-embeddings'",
    )
