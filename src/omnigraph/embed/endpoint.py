"""An address that takes JSON and answers with JSON: asked again when that can help, and read with care.

Only a service that is overloaded, failing (408, 429, 5xx) or too slow is asked again, a few times. Redirects
are not followed, since they would carry the key to another place.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import rejected_answer_error
from omnigraph.errors import (
    EmbeddingFailed,
    EmbeddingKeyRejected,
    EmbeddingTextRejected,
    EmbeddingUnavailable,
    OmnigraphError,
)

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

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
    said = _error_message(answer)
    if settings.api_key:
        said = said.replace(settings.api_key, "***")
    line = " ".join("".join(each if each.isprintable() else " " for each in said).split())
    shown = line if len(line) <= _QUOTED_CHARACTERS else f"{line[:_QUOTED_CHARACTERS]}..."
    return f": {shown}" if shown else ""


def _error_message(answer: bytes) -> str:
    """The message inside an error answer, or all of it when it has none."""
    try:
        found: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer.decode(errors="replace")
    for member in ("error", "message", "detail"):
        if isinstance(found, dict) and member in found:
            found = found[member]
    return found if isinstance(found, str) else answer.decode(errors="replace")


ATTEMPTS = 4
MAX_PAUSE = 20.0
"""A service that asks for more patience than these seconds is not asked again."""
_HEADERS = {"content-type": "application/json", "accept": "application/json", "user-agent": "omnigraph"}
_CONNECT_TIMEOUT = 10.0
_PIECE = 64 * 1024
_MAX_COMPLAINT = 64 * 1024

# A retry that helps is not shown at a terminal; a program that configured logging still gets it.
logging.getLogger("stamina").addHandler(logging.NullHandler())


class _RetryableFailure(Exception):
    """A failed attempt that is worth a retry; `error` is raised when retries do not help."""

    def __init__(self, error: EmbeddingUnavailable, pause: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.pause = pause


class Endpoint:
    """One provider's address, with a pool of connections that threads share."""

    def __init__(self, settings: EmbedSettings, headers: Mapping[str, str]) -> None:
        self._settings = settings
        self._headers = {**_HEADERS, **headers}
        self._connections: tuple[int, PoolManager] | None = None

    def post(self, path: str, body: bytes, *, longest: int, limit: int) -> bytes:
        """Return the body of a good answer of up to `limit` bytes; `longest` is the longest text sent."""
        import stamina

        # A request that times out is tried twice; quick failures are tried up to the number of attempts.
        retrying = stamina.RetryingCaller(attempts=ATTEMPTS, timeout=2 * self._settings.timeout)
        try:
            status, answer = retrying(_pause_before_retry, self._send_request, path, body, limit)
        except _RetryableFailure as again:
            raise again.error from again.__cause__
        if status != 200:
            raise refusal_error(self._settings, status, answer, longest)
        return answer

    def _send_request(self, path: str, body: bytes, limit: int) -> tuple[int, bytes]:
        import urllib3

        settings = self._settings
        deadline = time.monotonic() + settings.timeout
        patience = urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, settings.timeout), read=settings.timeout)
        try:
            response = self._connection_pool().request(
                "POST",
                f"{settings.base_url}/{path}",
                body=body,
                headers=self._headers,
                timeout=patience,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                return self._receive_answer(response, limit, deadline)
            finally:
                # A connection whose answer was read to the end is back in the pool by now, and stays open.
                response.close()
        except urllib3.exceptions.NewConnectionError as error:
            raise self._unreachable_error(_describe_cause(error)) from error
        except urllib3.exceptions.TimeoutError as error:
            raise self._too_slow() from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable_error(_describe_cause(error)) from error

    def _receive_answer(self, response: BaseHTTPResponse, limit: int, deadline: float) -> tuple[int, bytes]:
        status, settings = response.status, self._settings
        if status in (408, 429) or status >= 500:
            complaint = self._read_body(response, _MAX_COMPLAINT, deadline)
            reason = f"answered {status}{quote_message(settings, complaint)}"
            error = EmbeddingUnavailable(settings.provider, settings.model, reason, answered=status)
            raise _RetryableFailure(error, _retry_after_seconds(response.headers.get("retry-after")))
        if status != 200:
            return status, self._read_body(response, _MAX_COMPLAINT, deadline)
        answer = self._read_body(response, limit + 1, deadline)
        if len(answer) > limit:
            raise rejected_answer_error(settings, f"the answer is larger than {limit} bytes")
        return status, answer

    def _read_body(self, response: BaseHTTPResponse, limit: int, deadline: float) -> bytes:
        """Up to `limit` bytes as they were sent; a slow trickle ends at the deadline as silence does."""
        pieces, room = [], limit
        while room and (piece := response.read1(min(room, _PIECE), decode_content=False)):
            pieces.append(piece)
            room -= len(piece)
            if time.monotonic() > deadline:
                raise self._too_slow()
        return b"".join(pieces)

    def _connection_pool(self) -> PoolManager:
        """The connections of this process: a forked child must not speak over its parent's."""
        kept = self._connections
        if kept is None or kept[0] != os.getpid():
            # Without a lock, which a fork could leave locked; at worst two threads make a pool each.
            kept = self._connections = (os.getpid(), _open_pool(self._settings.base_url))
        return kept[1]

    def _too_slow(self) -> _RetryableFailure:
        settings = self._settings
        reason = f"no complete answer within {settings.timeout:g} seconds"
        return _RetryableFailure(EmbeddingUnavailable(settings.provider, settings.model, reason))

    def _unreachable_error(self, cause: str) -> EmbeddingUnavailable:
        settings = self._settings
        return EmbeddingUnavailable(
            settings.provider,
            settings.model,
            f"{settings.base_url} cannot be reached: {cause}",
            remedy="check the address and the network, then retry",
        )


def _open_pool(base_url: str) -> PoolManager:
    """Connections to an address, through the proxy that the environment names for it."""
    import urllib3

    parts = urlsplit(base_url)
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.hostname or ""):
        return urllib3.PoolManager(maxsize=16)
    user = urlsplit(proxy)
    login = f"{unquote(user.username)}:{unquote(user.password or '')}" if user.username else None
    return urllib3.ProxyManager(
        proxy, maxsize=16, proxy_headers=urllib3.make_headers(proxy_basic_auth=login) if login else None
    )


def _pause_before_retry(error: Exception) -> bool | float:
    if not isinstance(error, _RetryableFailure):
        return False
    if error.pause is None:
        return True
    return error.pause if error.pause <= MAX_PAUSE else False


def _retry_after_seconds(text: str | None) -> float | None:
    """The seconds of a Retry-After header; a date there is as good as nothing."""
    return float(text) if text and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) else None


def _describe_cause(error: BaseException) -> str:
    """The operating system's own words where there are any; other texts could hold a proxy's password."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            return at.strerror
        at = at.__cause__ or at.__context__
    return type(error).__name__
