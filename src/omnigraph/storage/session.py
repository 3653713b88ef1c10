"""How this process reaches Lance: its sessions, and the one thin layer every call passes."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.storage.cache_budget import cache_bytes
from omnigraph.storage.durability import Sync
from omnigraph.storage.lance_errors import typed
from omnigraph.storage.objects import Observer
from omnigraph.storage.version_files import Newest

LEAST_BYTES = 8 << 20
"""What a session may keep at least, of indexes and of metadata: below, every call reads them anew."""
_INDEX_SHARE, _METADATA_SHARE = 4, 16
"""One part in so many of the memory that reads may keep."""
_OWN_BYTES = 16 << 20
BRANCHES = 8
"""Of the forks of so many branches something is kept, each in a session; all together keep one share."""


def _bounded(sharers: int = 1) -> Session:
    """A session that keeps its share; by itself it would keep gigabytes, whatever the machine has."""
    budget = cache_bytes() // sharers
    return Session(
        index_cache_size_bytes=max(LEAST_BYTES, budget // _INDEX_SHARE),
        metadata_cache_size_bytes=max(LEAST_BYTES, budget // _METADATA_SHARE),
    )


class _Sessions:
    """Made on first use, and anew in a forked child: a session owns threads that do not survive a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: WeakKeyDictionary[Access, Session] = WeakKeyDictionary()
        self._tip: Session | None = None

    def pinned(self, access: Access) -> Session:
        with self._lock:
            found = self._pinned.get(access)
            if found is None:
                found = self._pinned[access] = _bounded()
            return found

    def drop(self, access: Access) -> None:
        with self._lock:
            self._pinned.pop(access, None)

    def tip(self) -> Session:
        with self._lock:
            if self._tip is None:
                self._tip = Session(metadata_cache_size_bytes=0, index_cache_size_bytes=0)
            return self._tip


_sessions = _Sessions()
_generation = 0


def _forget() -> None:
    global _sessions, _generation  # noqa: PLW0603 - the child must not touch the parent's lock either
    _sessions = _Sessions()
    _generation += 1


os.register_at_fork(after_in_child=_forget)


def pinned_session(access: Access) -> Session:
    """The caching session of a graph that is open, for versions of its tables that never change.

    What Lance keeps goes by the place and number of a version, and in part by nothing else. Where another
    graph was made in the place of an old one these repeat, and rows would be looked for where those of the
    old one were. So graphs that were opened apart share nothing.
    """
    return _sessions.pinned(access)


def drop_pinned_session(access: Access) -> None:
    """Keep nothing of what was read so far."""
    _sessions.drop(access)


def fork_session() -> Session:
    """A caching session for forks, whose places and numbers repeat when a branch is made anew.

    It must never serve two lives of one; see `lives.py`.
    """
    return _bounded(BRANCHES)


def generation() -> int:
    """How often this process was forked from another one: sessions made before that serve no longer."""
    return _generation


def tip_session() -> Session:
    """The session of this process for tables opened at their newest version; it keeps nothing."""
    return _sessions.tip()


def own_session() -> Session:
    """A session for one handle and those that come from it; what it keeps goes with them."""
    return Session(metadata_cache_size_bytes=_OWN_BYTES, index_cache_size_bytes=0)


class Access:
    """The layer every Lance call passes: it is announced to the observer, and its errors become ours."""

    def __init__(self, observe: Observer | None = None, sync: Sync | None = None) -> None:
        self.observe = observe
        self.sync = sync
        """How new versions are brought to the disk; None when they are left to the operating system."""
        self.unindexed: set[tuple[str, int]] = set()
        """The tables and versions that lost files of an index: they are read without any."""
        self.newest: dict[str, Newest] = {}
        """What was found to be the newest version of a table or fork in a folder, by where that is."""

    def announce(self, operation: str, uri: str) -> None:
        """Tell the observer of a call that is about to be made."""
        if self.observe is not None:
            self.observe(operation, uri)

    def call(self, operation: str, uri: str) -> AbstractContextManager[None]:
        """Announce one call, and type its errors in a block; an error of the observer passes unchanged."""
        self.announce(operation, uri)
        return typed(operation, uri)

    def rest(self, operation: str, uri: str) -> AbstractContextManager[None]:
        """Type the errors of a call that was announced before and goes on."""
        return typed(operation, uri)
