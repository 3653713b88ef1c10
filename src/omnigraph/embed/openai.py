"""OpenAI, and every endpoint that speaks its embeddings protocol."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from omnigraph.embed.embedder import Kind, split_batches
from omnigraph.embed.endpoint import Endpoint
from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import (
    Vector,
    decode_answer,
    max_answer_bytes,
    rejected_answer_error,
    to_unit_vectors,
)
from omnigraph.errors import EmbeddingFailed

# Small servers of the protocol take 32 texts at once by default.
_MOST_TEXTS = {"openai": 256, "http": 32}


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]


class OpenAiEmbedder:
    """Calls `<address>/embeddings`; the protocol does not distinguish queries from documents."""

    def __init__(self, settings: EmbedSettings) -> None:
        self._settings = settings
        key = settings.api_key
        self._endpoint = Endpoint(settings, {"authorization": f"Bearer {key}"} if key else {})
        self._names_dimension = True

    @property
    def model(self) -> str:
        return self._settings.model

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        groups = split_batches(texts, model=self.model, most=_MOST_TEXTS[self._settings.provider])
        return [vector for group in groups for vector in self._embed_batch(group, dimension)]

    def _embed_batch(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        answer = decode_answer(self._ask_provider(texts, dimension), _Answer, self._settings)
        rows = [item.embedding for item in self._in_order(answer.data)]
        return to_unit_vectors(rows, texts=len(texts), dimension=dimension, maker=self._settings)

    def _ask_provider(self, texts: Sequence[str], dimension: int) -> bytes:
        if not self._names_dimension:
            return self._post_texts(texts, dimension, {})
        try:
            return self._post_texts(texts, dimension, {"dimensions": dimension})
        except EmbeddingFailed as error:
            if self._settings.provider == "openai" or error.answered not in (400, 422):
                raise
        # Servers of models with one fixed dimension refuse the parameter, even with the right value.
        answer = self._post_texts(texts, dimension, {})
        self._names_dimension = False
        return answer

    def _post_texts(self, texts: Sequence[str], dimension: int, wish: dict[str, int]) -> bytes:
        request = {"model": self.model, "input": texts, "encoding_format": "float", **wish}
        return self._endpoint.post(
            "embeddings",
            msgspec.json.encode(request),
            longest=max(map(len, texts)),
            limit=max_answer_bytes(len(texts), dimension),
        )

    def _in_order(self, items: list[_Item]) -> list[_Item]:
        """The items in the order of the texts, which the protocol states by number."""
        if all(item.index is None for item in items):
            return items
        if sorted(-1 if item.index is None else item.index for item in items) != list(range(len(items))):
            raise rejected_answer_error(
                self._settings, "the answer does not say which vector belongs to which text"
            )
        return sorted(items, key=lambda item: item.index or 0)
