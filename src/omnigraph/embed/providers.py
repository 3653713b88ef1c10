"""Open the embedder that the settings describe, and embed the texts of queries."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS, EmbedSettings
from omnigraph.embed.vectors import Vector
from omnigraph.errors import EmbeddingModelMismatch, EmbeddingNotConfigured
from omnigraph.lang.schema.catalog import Property


def open_embedder(settings: EmbedSettings) -> Embedder:
    """The embedder of a provider; nothing is contacted or loaded before its first text."""
    if settings.provider == "mock":
        from omnigraph.embed.mock import MockEmbedder

        return MockEmbedder(settings.model)
    if settings.provider == "offline":
        from omnigraph.embed.offline import OfflineEmbedder

        return OfflineEmbedder()
    if settings.provider == "gemini":
        from omnigraph.embed.gemini import GeminiEmbedder

        return GeminiEmbedder(settings)
    from omnigraph.embed.openai import OpenAiEmbedder

    return OpenAiEmbedder(settings)


def configured_embedder(environment: Mapping[str, str] | None = None) -> Embedder | None:
    """The embedder that the environment asks for; None when it asks for none."""
    settings = EmbedSettings.from_environment(environment)
    return None if settings is None else open_embedder(settings)


@dataclass(frozen=True, slots=True)
class EmbeddedProperty:
    """A vector property, as far as a text that is compared with it must know it."""

    path: str
    """The type and the property, as in `Doc.embedding`."""
    dimension: int
    model: str | None = None
    """The model that `@embed(..., model=...)` records."""

    @classmethod
    def of(cls, type_name: str, declared: Property) -> EmbeddedProperty:
        """A property of the catalog."""
        recorded = declared.embed.model if declared.embed else None
        return cls(f"{type_name}.{declared.name}", declared.type.dimension, recorded)


def embed_query(embedder: Embedder | None, text: str, target: EmbeddedProperty) -> Vector:
    """Embed the text of `nearest`; refused without a provider, and with another model than the recorded."""
    if embedder is None:
        raise EmbeddingNotConfigured(
            f"comparing '{target.path}' with a text needs an embedding provider, and none is configured",
            remedy=f"set {PROVIDER_SETTING} to one of {', '.join(PROVIDERS)}, or give a vector instead",
        )
    if target.model is not None and target.model != embedder.model:
        raise EmbeddingModelMismatch(target.path, recorded=target.model, configured=embedder.model)
    (vector,) = embedder.embed([text], target.dimension, "query")
    return vector
