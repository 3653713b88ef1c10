"""Calls over httpx: the connection, the token, retries of what is safe, and failures as typed errors."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from omnigraph import __version__
from omnigraph.client.calls import Call
from omnigraph.client.failures import rebuild_error
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, GraphClosed, MissingExtra, ServerUnreachable

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

DEFAULT_TIMEOUT = 300.0
"""Seconds without a byte from the server."""
CONNECT_TIMEOUT = 10.0
PAUSES = (0.05, 0.25)
"""Seconds before each repetition of a call that got no answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a graph is served, and how the caller proves who it is."""

    url: str
    """Of the graph, without a slash at its end."""
    token: str | None = field(default=None, repr=False)
    timeout: float | None = DEFAULT_TIMEOUT

    @classmethod
    def parse(cls, url: str, token: str | None, timeout: float | None) -> Address:
        """Return the address that a user means."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequest(
                f"'{url}' is not the address of a server",
                remedy="write it like http://localhost:8080/graphs/default; `og.open` opens a folder",
            )
        if parts.query or parts.fragment or parts.username or parts.password:
            raise BadRequest(
                "the address of a server has a scheme, a host and a path, and nothing else",
                remedy="pass a token with `token`",
            )
        if token is not None and not (
            token.isascii() and token.isprintable() and token.strip() == token != ""
        ):
            raise BadRequest("the token has characters that no header can carry", remedy="check the token")
        if timeout is not None and not timeout > 0:
            raise BadRequest(f"timeout must be a number of seconds above 0, got {timeout:g}")
        return cls(url.rstrip("/"), token, timeout)

    def url_of(self, path: str) -> str:
        """Return the address of a call."""
        return f"{self.url}/{path}"

    def client_options(self) -> dict[str, Any]:
        """Return the settings of an httpx client."""
        httpx = load_httpx()
        headers = {"User-Agent": f"omnigraph/{__version__}"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return {
            "headers": headers,
            "timeout": httpx.Timeout(self.timeout, connect=CONNECT_TIMEOUT, pool=None),
            # A proxy is not asked for what is on this machine.
            "trust_env": not _is_loopback(urlsplit(self.url).hostname or ""),
            "follow_redirects": False,
        }


class Transport:
    """Sends calls to one graph and waits for their answers; safe to share between threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: httpx.Client = load_httpx().Client(**address.client_options())

    def send(self, call: Call[Answer]) -> Answer:
        """Return the decoded answer; raises the error that a local graph would raise."""
        pauses = iter(PAUSES)
        while True:
            try:
                return self._send_once(call)
            except Unanswered as failure:
                time.sleep(failure.next_pause(pauses))

    def _send_once(self, call: Call[Answer]) -> Answer:
        with report_failures(self.address, call):
            return read_answer(call, self._client.send(self._request(call)))

    @contextmanager
    def stream(self, call: Call[Any], *, failures: bool = False) -> Iterator[httpx.Response]:
        """Open an answer that is read while it arrives; what fails in the block is reported like a call.

        With `failures` the caller reads the bodies of those too.
        """
        response = self._open(call)
        try:
            with report_failures(self.address, call):
                if response.status_code >= 400 and not failures:
                    raise rebuild_error(response.status_code, response.read(), call.source_name)
                yield response
        except Unanswered as failure:
            raise failure.error from failure
        finally:
            response.close()

    def _open(self, call: Call[Any]) -> httpx.Response:
        """Return an answer whose head is there; until then a read is repeated like any other."""
        pauses = iter(PAUSES)
        while True:
            try:
                with report_failures(self.address, call):
                    return self._client.send(self._request(call), stream=True)
            except Unanswered as failure:
                time.sleep(failure.next_pause(pauses))

    def chunks(self, call: Call[Any], response: httpx.Response) -> Iterator[bytes]:
        """Yield the bytes of an answer that was opened by hand; what fails is reported like a call."""
        try:
            with report_failures(self.address, call):
                yield from response.iter_bytes()
        except Unanswered as failure:
            raise failure.error from failure

    def _request(self, call: Call[Any]) -> httpx.Request:
        self.require_open()
        return self._client.build_request(**request_options(self.address, call))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._client.is_closed

    def require_open(self) -> None:
        """Fail when it was closed."""
        if self.closed:
            raise GraphClosed(self.address.url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def close_stream(opened: AbstractContextManager[httpx.Response]) -> None:
    """Close an answer that was opened by hand, because it is read after the call returned."""
    opened.__exit__(None, None, None)


class Unanswered(Exception):
    """A call that got no answer, and whether it may be sent again."""

    def __init__(self, error: ServerUnreachable, *, may_repeat: bool) -> None:
        super().__init__(error.message)
        self.error = error
        self.may_repeat = may_repeat

    def next_pause(self, pauses: Iterator[float]) -> float:
        """Return the seconds before the next attempt, or raise the error when there is none."""
        pause = next(pauses, None) if self.may_repeat else None
        if pause is None:
            raise self.error from self
        return pause


@contextmanager
def report_failures(address: Address, call: Call[Any]) -> Iterator[None]:
    """Turn failures of the connection into `Unanswered`."""
    httpx = load_httpx()
    try:
        yield
    except httpx.ConnectError as failure:
        raise Unanswered(
            ServerUnreachable(address.url, str(failure) or "no connection"),
            may_repeat=not is_consumed(call),
        ) from failure
    except httpx.TransportError as failure:
        is_timeout = isinstance(failure, httpx.TimeoutException)
        reason = "no answer in time" if is_timeout else str(failure) or type(failure).__name__
        error = ServerUnreachable(address.url, reason, is_write=not call.is_safe)
        raise Unanswered(error, may_repeat=call.is_safe and not is_timeout) from failure
    except httpx.InvalidURL as failure:
        raise BadRequest(f"'{address.url}' is not the address of a server: {failure}") from failure


def is_consumed(call: Call[Any]) -> bool:
    """Whether a body can be sent only once."""
    return call.body is not None and not isinstance(call.body, bytes)


def request_options(address: Address, call: Call[Any]) -> dict[str, Any]:
    """Return the arguments of a request of httpx."""
    return {
        "method": call.method,
        "url": address.url_of(call.path),
        "params": list(call.query) or None,
        "headers": dict(call.headers),
        "content": call.body,
    }


def read_answer(call: Call[Answer], response: httpx.Response) -> Answer:
    """Return the decoded answer, or raise the error it describes."""
    if response.status_code >= 400:
        raise rebuild_error(response.status_code, response.content, call.source_name)
    return call.decode(response)


def load_httpx() -> Any:
    """Return httpx, which only this room needs."""
    try:
        import httpx
    except ModuleNotFoundError as missing:
        if missing.name != "httpx":
            raise
        raise MissingExtra("a graph behind a server", package="httpx", extra="client") from missing
    return httpx


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
