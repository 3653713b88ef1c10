"""The vector for a text that a query compares a property with."""

from __future__ import annotations

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS
from omnigraph.embed.vectors import Vector
from omnigraph.errors import EmbeddingModelMismatch, EmbeddingNotConfigured
from omnigraph.lang.schema.catalog import Property


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
