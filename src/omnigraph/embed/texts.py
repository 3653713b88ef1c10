"""Texts on their way to a provider: refused when no model could embed them, and cut into requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.errors import EmbeddingTextRejected

MAX_TEXT_BYTES = 256 * 1024
"""No text beyond this is sent: it is several times what the widest embedding models read."""
MAX_BATCH_BYTES = 256 * 1024
"""A token is at least a byte, so this keeps a request below services' limits on tokens, too."""


def split_batches(texts: Sequence[str], *, model: str, most: int) -> Iterator[Sequence[str]]:
    """Consecutive groups of up to `most` texts and `MAX_BATCH_BYTES`; all texts are checked first."""
    sizes = [_size(text, model) for text in texts]
    start = held = 0
    for position, size in enumerate(sizes):
        if position > start and (position - start == most or held + size > MAX_BATCH_BYTES):
            yield texts[start:position]
            start, held = position, 0
        held += size
    if start < len(texts):
        yield texts[start:]


def _size(text: str, model: str) -> int:
    """The bytes of a text that can be embedded."""
    if not text.strip():
        raise EmbeddingTextRejected(
            "is empty", model=model, characters=len(text), remedy="give a text with at least one word"
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise EmbeddingTextRejected(
            f"is no proper Unicode at character {error.start}",
            model=model,
            characters=len(text),
            remedy="leave out half of a surrogate pair",
        ) from None
    if size > MAX_TEXT_BYTES:
        raise EmbeddingTextRejected(
            f"has {size} bytes, and at most {MAX_TEXT_BYTES} are sent",
            model=model,
            characters=len(text),
            remedy="shorten the text, or embed it in parts",
        )
    return size
