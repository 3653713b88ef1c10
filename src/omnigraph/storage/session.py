"""How this process reaches Lance: its sessions, and the one thin layer every call passes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.storage.durability import Sync
from omnigraph.storage.lance_errors import typed
from omnigraph.storage.objects import Observer


class _Sessions:
    """Made on first use, and anew in a forked child: a session owns threads that do not survive a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: Session | None = None
        self._tip: Session | None = None

    def pinned(self) -> Session:
        with self._lock:
            if self._pinned is None:
                self._pinned = Session()
            return self._pinned

    def tip(self) -> Session:
        with self._lock:
            if self._tip is None:
                self._tip = Session(metadata_cache_size_bytes=0, index_cache_size_bytes=0)
            return self._tip


_sessions = _Sessions()


def _forget() -> None:
    global _sessions  # noqa: PLW0603 - the child must not touch the parent's lock either
    _sessions = _Sessions()


os.register_at_fork(after_in_child=_forget)


def pinned_session() -> Session:
    """The caching session of this process, for versions that never change."""
    return _sessions.pinned()


def tip_session() -> Session:
    """The session of this process for tables opened at their newest version; it keeps nothing."""
    return _sessions.tip()


class Access:
    """The layer every Lance call passes: it is announced to the observer, and its errors become ours."""

    def __init__(self, observe: Observer | None = None, sync: Sync | None = None) -> None:
        self.observe = observe
        self.sync = sync
        """How new versions are brought to the disk; None when they are left to the operating system."""
        self.unindexed: set[tuple[str, int]] = set()
        """The tables and versions that lost files of an index: they are read without any."""

    def announce(self, operation: str, uri: str) -> None:
        """Tell the observer of a call that is about to be made."""
        if self.observe is not None:
            self.observe(operation, uri)

    @contextmanager
    def call(self, operation: str, uri: str) -> Iterator[None]:
        """Announce one call and type its errors; an error of the observer passes unchanged."""
        self.announce(operation, uri)
        with typed(operation, uri):
            yield

    def rest(self, operation: str, uri: str) -> AbstractContextManager[None]:
        """Type the errors of a call that was announced before and goes on."""
        return typed(operation, uri)
