"""What a server has open: the current revision, and older ones that requests still use.

A request works on the revision it began with to its end. An older one is closed with its last request, so
that a reload drops none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.server.boot import Booted


class Revisions:
    """Safe to share between the event loop and the thread that reloads."""

    def __init__(self, booted: Booted) -> None:
        self._lock = threading.Lock()
        self._current = booted
        self._users: dict[int, int] = {}
        self._retired: dict[int, Booted] = {}

    @property
    def current(self) -> Booted:
        """What new requests get."""
        return self._current

    @contextmanager
    def use(self) -> Iterator[Booted]:
        """Keep the current revision open for one request."""
        with self._lock:
            booted = self._current
            self._users[id(booted)] = self._users.get(id(booted), 0) + 1
        try:
            yield booted
        finally:
            with self._lock:
                self._users[id(booted)] -= 1
            self._close_unused()

    def swap(self, booted: Booted) -> None:
        """Let new requests use another revision."""
        with self._lock:
            self._retired[id(self._current)] = self._current
            self._current = booted
        self._close_unused()

    def close(self) -> None:
        """Close all revisions; no request may be under way."""
        for booted in (*self._retired.values(), self._current):
            booted.close()

    def _close_unused(self) -> None:
        if not self._retired:
            return
        with self._lock:
            unused = [key for key in self._retired if not self._users.get(key)]
            closing = [self._retired.pop(key) for key in unused]
            for key in unused:
                self._users.pop(key, None)
        for booted in closing:
            booted.close()
