"""Google's Gemini models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from omnigraph.embed.embedder import Kind, split_batches
from omnigraph.embed.endpoint import Endpoint
from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import Vector, decode_answer, max_answer_bytes, to_unit_vectors

_MOST_TEXTS = 100
_TASK_TYPES: dict[Kind, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}
_TASK_PREFIXES: dict[Kind, str] = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
}


class _Item(msgspec.Struct):
    values: list[float]


class _Answer(msgspec.Struct):
    embeddings: list[_Item]


class GeminiEmbedder:
    """Calls `<address>/models/<model>:batchEmbedContents`, which distinguishes queries from documents."""

    def __init__(self, settings: EmbedSettings) -> None:
        self._settings = settings
        # In a header, because addresses are written to logs.
        self._endpoint = Endpoint(settings, {"x-goog-api-key": settings.api_key or ""})

    @property
    def model(self) -> str:
        return self._settings.model

    def embed(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        groups = split_batches(texts, model=self.model, most=_MOST_TEXTS)
        return [vector for group in groups for vector in self._embed_batch(group, dimension, kind)]

    def _embed_batch(self, texts: Sequence[str], dimension: int, kind: Kind) -> list[Vector]:
        name = self.model.removeprefix("models/")
        answer = self._endpoint.post(
            f"models/{quote(name, safe='')}:batchEmbedContents",
            msgspec.json.encode(
                {"requests": [_build_request(name, text, dimension, kind) for text in texts]}
            ),
            longest=max(map(len, texts)),
            limit=max_answer_bytes(len(texts), dimension),
        )
        rows = [item.values for item in decode_answer(answer, _Answer, self._settings).embeddings]
        return to_unit_vectors(rows, texts=len(texts), dimension=dimension, maker=self._settings)


def _build_request(name: str, text: str, dimension: int, kind: Kind) -> dict[str, Any]:
    request = {"model": f"models/{name}", "outputDimensionality": dimension}
    if name.endswith("-001"):
        return {**request, "content": {"parts": [{"text": text}]}, "taskType": _TASK_TYPES[kind]}
    # Newer models know no task types; the task is part of the text.
    return {**request, "content": {"parts": [{"text": _TASK_PREFIXES[kind] + text}]}}
