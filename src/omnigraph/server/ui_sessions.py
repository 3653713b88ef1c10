"""Sessions of the page in the browser: a token is exchanged for a cookie that only the page itself can use.

The cookie is `HttpOnly` and `SameSite=Strict`, and counts only in requests that the page sends: those carry a
header which no other site can add, and name no other origin. Only digests of cookies are kept, in a folder
that all worker processes of the server share.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from omnigraph.errors import BadRequest, Unauthorized

PAGE_HEADER = "x-omnigraph-page"
COOKIE = "omnigraph_session"
MOST_SESSIONS = 1000
SESSION_SECONDS = 12 * 3600


class Session(msgspec.Struct, frozen=True):
    """Whose session it is, and until when."""

    actor: str | None
    ends: float


class Sessions:
    """The sessions of a server; a personal one lets in only the holder of a one-time token."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._folder = folder
        self._one_time: bytes | None = None
        self._owner: str | None = None
        self._hosts: frozenset[str] = frozenset()
        self.is_personal = False

    def make_personal(self, owner: str | None) -> str:
        """Serve one person from now on, and return the token that proves to be them, once."""
        token = secrets.token_urlsafe(32)
        self.is_personal, self._owner, self._one_time = True, owner, _digest(token)
        return token

    def bind(self, port: int) -> None:
        """Accept only requests that name this machine and port: a foreign name may point here too."""
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    def check_host(self, request: Request) -> None:
        """Raise `BadRequest` for a `Host` that a personal server does not have."""
        if self.is_personal and request.headers.get("host", "") not in self._hosts:
            raise BadRequest(
                "the Host header names another server", remedy="use the address that was printed"
            )

    def start(self, actor: str | None) -> str:
        """Return the secret of a new session."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._drop_old_sessions()
        secret = secrets.token_urlsafe(32)
        session = Session(actor, self._clock() + SESSION_SECONDS)
        # Only the holder of the secret can look for this file, and learns it when the file is complete.
        self._file(secret).write_bytes(msgspec.json.encode(session))
        return secret

    def redeem(self, token: str) -> str | None:
        """Return the owner whose one-time token this is; it cannot be used again."""
        expected, self._one_time = self._one_time, None
        if expected is None or not hmac.compare_digest(expected, _digest(token)):
            self._one_time = expected
            raise Unauthorized("the link was used before, or is wrong", remedy="run `omnigraph ui` again")
        return self._owner

    def find(self, request: Request) -> Session | None:
        """Return the session of a request of the page."""
        secret = request.cookies.get(cookie_name(request))
        if secret is None or not comes_from_page(request):
            return None
        try:
            found = msgspec.json.decode(self._file(secret).read_bytes(), type=Session)
        except FileNotFoundError:
            return None
        return found if found.ends > self._clock() else None

    def end(self, request: Request) -> None:
        """Forget the session of a request."""
        secret = request.cookies.get(cookie_name(request))
        if secret is not None and comes_from_page(request):
            self._file(secret).unlink(missing_ok=True)

    def _file(self, secret: str) -> Path:
        return self._folder / _digest(secret).hex()

    def _drop_old_sessions(self) -> None:
        """Keep the newest; one that ended is dropped at the latest when as many others have begun."""
        files = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[MOST_SESSIONS - 1 :]:
            file.unlink(missing_ok=True)


def comes_from_page(request: Request) -> bool:
    """Whether our own page sent a request, as far as browsers can tell."""
    headers = request.headers
    if PAGE_HEADER not in headers or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def cookie_name(request: Request) -> str:
    """Return the name of the cookie; with the port, because servers on one machine share cookies."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port if port.isascii() and port.isdigit() else 'default'}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
