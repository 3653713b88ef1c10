"""What every provider can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from omnigraph.embed.vectors import Vector

Kind = Literal["query", "document"]
"""What a text is for; some models embed a question differently from what answers it."""


class Embedder(Protocol):
    """Turns texts into vectors; safe to share between threads."""

    @property
    def model(self) -> str:
        """The name that `@embed(..., model=...)` records."""

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        """One vector of length 1 for each text, in order; many texts are sent in several requests."""
