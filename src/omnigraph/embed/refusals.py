"""What a provider's refusal means to the user; the key appears in no message."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from omnigraph.embed.settings import EmbedSettings
from omnigraph.errors import EmbeddingFailed, EmbeddingKeyRejected, EmbeddingTextRejected, OmnigraphError

_QUOTED_CHARACTERS = 300
_TOO_LONG = re.compile(
    r"context.length|too long|too many tokens|max(?:imum)?\b.{0,40}\btokens|string_above_max_length",
    re.IGNORECASE | re.DOTALL,
)
_KEY_WORDS = re.compile(r"API_KEY_INVALID|invalid_api_key")


def refusal_error(settings: EmbedSettings, status: int, answer: bytes, longest: int) -> OmnigraphError:
    """The error for an answer that is neither good nor worth another attempt."""
    text = answer.decode(errors="replace")
    if status in (401, 403) or (status == 400 and _KEY_WORDS.search(text)):
        # The answer is not quoted: some services repeat a part of the key.
        return EmbeddingKeyRejected(
            settings.provider,
            settings.model,
            f"the key was not accepted ({status})" if settings.api_key else f"a key is needed ({status})",
            answered=status,
            remedy="check the provider's key and what it is allowed to use",
        )
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(text)):
        return EmbeddingTextRejected(
            f"is too long ({longest} characters)",
            model=settings.model,
            characters=longest,
            remedy="shorten the text, or embed it in parts",
        )
    return EmbeddingFailed(
        settings.provider,
        settings.model,
        f"answered {status}{quote_message(settings, answer)}",
        answered=status,
        remedy="check the model and the address: it is the part before /embeddings or /models"
        if status == 404
        else None,
    )


def quote_message(settings: EmbedSettings, answer: bytes) -> str:
    """What a service says about a failure, after a colon: one short printable line."""
    said = _message(answer)
    if settings.api_key:
        said = said.replace(settings.api_key, "***")
    line = " ".join("".join(each if each.isprintable() else " " for each in said).split())
    shown = line if len(line) <= _QUOTED_CHARACTERS else f"{line[:_QUOTED_CHARACTERS]}..."
    return f": {shown}" if shown else ""


def _message(answer: bytes) -> str:
    """The message inside an error answer, or all of it when it has none."""
    try:
        found: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer.decode(errors="replace")
    for member in ("error", "message", "detail"):
        if isinstance(found, dict) and member in found:
            found = found[member]
    return found if isinstance(found, str) else answer.decode(errors="replace")
