"""How much one actor may have under way: a number of requests, and an estimate of their bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import TooManyRequests
from omnigraph.server.settings import Limits

ANONYMOUS = "anonymous"
"""The bucket of requests without an actor."""
BRANCH_BYTES = 256
"""What an operation on a branch counts as."""


@dataclass(slots=True)
class _Usage:
    requests: int = 0
    bytes: int = 0


class Admission:
    """Counts what each actor has in flight; a refused request leaves nothing behind."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._usage: dict[str, _Usage] = {}
        self._lock = threading.Lock()

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a request while it runs; raises `TooManyRequests` when it is one too many."""
        name = ANONYMOUS if actor is None else actor
        self._enter(name, size)
        try:
            yield
        finally:
            self._leave(name, size)

    def in_flight(self) -> int:
        """How many admitted requests run."""
        with self._lock:
            return sum(usage.requests for usage in self._usage.values())

    def _enter(self, name: str, size: int) -> None:
        with self._lock:
            usage = self._usage.get(name) or _Usage()
            if usage.requests >= self._limits.inflight:
                raise TooManyRequests(
                    f"actor in-flight count cap {self._limits.inflight} exceeded", actor=name
                )
            if usage.bytes + size > self._limits.bytes:
                raise TooManyRequests(
                    f"actor byte budget exceeded: would use {usage.bytes + size} bytes "
                    f"against cap {self._limits.bytes}",
                    actor=name,
                )
            usage.requests += 1
            usage.bytes += size
            self._usage[name] = usage

    def _leave(self, name: str, size: int) -> None:
        with self._lock:
            usage = self._usage[name]
            usage.requests -= 1
            usage.bytes -= size
            if not usage.requests:
                del self._usage[name]
