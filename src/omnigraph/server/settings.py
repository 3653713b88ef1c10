"""What a server was started with."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest

INFLIGHT = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX"
"""The setting for how many requests of one actor may be in flight."""
BYTES = "OMNIGRAPH_PER_ACTOR_BYTES_MAX"
"""The setting for how many bytes the requests of one actor may be about."""
UNAUTHENTICATED = "OMNIGRAPH_UNAUTHENTICATED"
REQUIRE_ALL = "OMNIGRAPH_REQUIRE_ALL_GRAPHS"
CORS = "OMNIGRAPH_CORS_ORIGINS"
QUERY_TIMEOUT = "OMNIGRAPH_QUERY_TIMEOUT"
"""The setting for how many seconds a query of a server may take."""
RELOAD_SECONDS = "OMNIGRAPH_RELOAD_SECONDS"
"""The setting for how many seconds pass between two looks at the ledger of a cluster."""
ARROW_BYTES = "OMNIGRAPH_ARROW_LOAD_BYTES_MAX"
"""The setting for how many bytes of Arrow one load may send."""

DEFAULT_INFLIGHT = 16
DEFAULT_BYTES = 4 << 30
DEFAULT_QUERY_SECONDS = 300
DEFAULT_ARROW_BYTES = 4 << 30
DEFAULT_RELOAD_SECONDS = 5.0
MOST_RELOAD_SECONDS = 3600.0
DEFAULT_BIND = "127.0.0.1:8080"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bind:
    """The address to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Bind:
        """Return the address in `HOST:PORT`; an IPv6 host is in brackets."""
        host, sign, port = text.rpartition(":")
        if not sign or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise BadRequest(f"'{text}' is not an address", remedy="write HOST:PORT, such as 127.0.0.1:8080")
        return cls(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one actor may have under way, and how long a query may take."""

    inflight: int = DEFAULT_INFLIGHT
    bytes: int = DEFAULT_BYTES
    query_seconds: float = DEFAULT_QUERY_SECONDS
    arrow_bytes: int = DEFAULT_ARROW_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """Return the limits that the environment sets; a wrong value is reported and ignored."""
        return cls(
            _number(environment, INFLIGHT, DEFAULT_INFLIGHT),
            _number(environment, BYTES, DEFAULT_BYTES),
            _number(environment, QUERY_TIMEOUT, DEFAULT_QUERY_SECONDS),
            _number(environment, ARROW_BYTES, DEFAULT_ARROW_BYTES),
        )


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `omnigraph serve`."""

    store: str | None
    """The graph to serve; None with a cluster."""
    bind: Bind
    policy: Path | None = None
    server_policy: Path | None = None
    queries: tuple[Path, ...] = ()
    unauthenticated: bool = False
    require_all_graphs: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    limits: Limits = Limits()
    cors_origins: tuple[str, ...] = ()
    workers: int = 1
    """How many processes serve."""
    cluster: str | None = None
    """The cluster to serve: a directory or a storage URI."""
    reload: bool = False
    """Whether newer revisions of the cluster are served as they are applied."""
    reload_seconds: float = DEFAULT_RELOAD_SECONDS


def is_set(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a switch is on in the environment: not blank, not 0, not false."""
    return environment.get(name, "").strip().lower() not in ("", "0", "false")


def cors_origins(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the origins that browsers may call from."""
    return tuple(filter(None, (one.strip() for one in environment.get(CORS, "").split(","))))


def reload_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """Return how long to wait between two looks at the ledger; a wrong value is reported and ignored."""
    text = environment.get(RELOAD_SECONDS, "").strip()
    if not text:
        return DEFAULT_RELOAD_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= MOST_RELOAD_SECONDS:
        return seconds
    _log.warning("%s must be a number of seconds above 0; using %g", RELOAD_SECONDS, DEFAULT_RELOAD_SECONDS)
    return DEFAULT_RELOAD_SECONDS


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not int(text[:19]) > 0 or len(text) > 18:
        _log.warning("%s must be a whole number from 1 on; using %d", name, default)
        return default
    return int(text)
