"""What can go wrong between a text and its vector."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.request import BadRequest
from omnigraph.errors.unavailable import Unavailable


class EmbeddingNotConfigured(BadRequest):
    """A text must be embedded, and no usable embedding provider is set up."""

    code = "embedding_not_configured"

    def __init__(self, reason: str, *, provider: str | None = None, remedy: str) -> None:
        super().__init__(reason, remedy=remedy)
        self.provider = provider


class EmbeddingModelMismatch(BadRequest):
    """The configured model is not the one that a property's vectors were made with."""

    code = "embedding_model_mismatch"

    def __init__(self, property_path: str, *, recorded: str, configured: str) -> None:
        super().__init__(
            f"property '{property_path}' holds vectors of model '{recorded}',"
            f" but the configured embedding model is '{configured}'",
            remedy=f"configure model '{recorded}', or embed the property again and record '{configured}'",
        )
        self.property_path = property_path
        self.recorded = recorded
        self.configured = configured


class EmbeddingTextRejected(BadRequest):
    """A text cannot be embedded: it is empty, too long, or no proper Unicode."""

    code = "embedding_text_rejected"

    def __init__(self, reason: str, *, model: str, characters: int, remedy: str) -> None:
        super().__init__(f"text for model '{model}' {reason}", remedy=remedy)
        self.model = model
        self.characters = characters


class EmbeddingFailed(OmnigraphError):
    """An embedding provider refused a request or did not give usable vectors."""

    code = "embedding_failed"
    status = 502

    def __init__(
        self,
        provider: str,
        model: str,
        reason: str,
        *,
        answered: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(f"embedding provider '{provider}', model '{model}': {reason}", remedy=remedy)
        self.provider = provider
        self.model = model
        self.reason = reason
        self.answered = answered
        """The HTTP status of the provider's answer, when there was one."""


class EmbeddingKeyRejected(EmbeddingFailed):
    """An embedding provider does not accept the configured key."""

    code = "embedding_key_rejected"


class EmbeddingAnswerRejected(EmbeddingFailed):
    """An embedding provider's answer is malformed, incomplete, too large or not made of finite numbers."""

    code = "embedding_answer_rejected"


class EmbeddingDimensionMismatch(EmbeddingFailed):
    """A model does not give vectors of the dimension that the property has."""

    code = "embedding_dimension_mismatch"

    def __init__(self, provider: str, model: str, *, expected: int, actual: int, remedy: str) -> None:
        super().__init__(
            provider, model, f"the vectors have {actual} dimensions instead of {expected}", remedy=remedy
        )
        self.expected = expected
        self.actual = actual


class EmbeddingUnavailable(Unavailable):
    """An embedding provider cannot be reached, is overloaded, or takes too long."""

    code = "embedding_unavailable"

    def __init__(
        self,
        provider: str,
        model: str,
        reason: str,
        *,
        answered: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(
            f"embedding provider '{provider}', model '{model}': {reason}",
            remedy=remedy or "retry the query later",
        )
        self.provider = provider
        self.model = model
        self.reason = reason
        self.answered = answered
