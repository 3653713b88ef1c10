"""From settings to the embedder they describe."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.settings import EmbedSettings


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
