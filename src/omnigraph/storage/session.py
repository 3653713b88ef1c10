"""Lance sessions of this process, and the thin layer around every Lance call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.storage.cache_budget import read_cache_budget
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.durability import Sync
from omnigraph.storage.lance_errors import wrap_lance_errors
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Observer
from omnigraph.storage.version_files import NewestVersion

LEAST_BYTES = 8 << 20
"""The least cache of a session, for indexes and for metadata: below it, every call re-reads them."""
_INDEX_SHARE, _METADATA_SHARE = 4, 16
"""The divisors of the cache budget for indexes and for metadata."""
_OWN_BYTES = 16 << 20
BRANCHES = 8
"""How many branches have cached forks, each in a session; together they use the budget of one."""


def _new_bounded_session(sharers: int = 1) -> Session:
    """Return a session with a bounded cache; Lance's default is gigabytes on any machine."""
    budget = read_cache_budget() // sharers
    return Session(
        index_cache_size_bytes=max(LEAST_BYTES, budget // _INDEX_SHARE),
        metadata_cache_size_bytes=max(LEAST_BYTES, budget // _METADATA_SHARE),
    )


class _Sessions:
    """Sessions created on first use, and again in a forked child: their threads do not survive a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: WeakKeyDictionary[Access, Session] = WeakKeyDictionary()
        self._tip: Session | None = None

    def pinned(self, access: Access) -> Session:
        with self._lock:
            found = self._pinned.get(access)
            if found is None:
                found = self._pinned[access] = _new_bounded_session()
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


def _reset_in_child() -> None:
    global _sessions, _generation  # noqa: PLW0603 - the child must not touch the parent's lock either
    _sessions = _Sessions()
    _generation += 1


os.register_at_fork(after_in_child=_reset_in_child)


def pinned_session(access: Access) -> Session:
    """Return the caching session of an open graph, for pinned versions of its tables.

    Lance caches by the location and number of a version only. Both repeat when a graph is created where
    another one was, and rows would be looked for at old offsets. So each opened graph has its own session.
    """
    return _sessions.pinned(access)


def drop_pinned_session(access: Access) -> None:
    """Drop everything that was cached so far."""
    _sessions.drop(access)


def fork_session() -> Session:
    """Return a caching session for forks, whose locations and versions repeat when a branch is recreated.

    It must never serve two incarnations of a fork; see `fork_cache.py`.
    """
    return _new_bounded_session(BRANCHES)


def fork_generation() -> int:
    """Return how often this process was forked: sessions created before the last fork are unusable."""
    return _generation


def tip_session() -> Session:
    """Return the session for tables opened at their newest version; it caches nothing."""
    return _sessions.tip()


def own_session() -> Session:
    """Return a session for one handle and those derived from it."""
    return Session(metadata_cache_size_bytes=_OWN_BYTES, index_cache_size_bytes=0)


class Access:
    """The layer around every Lance call: it announces the call to the observer, and converts its errors."""

    def __init__(
        self, observe: Observer | None = None, sync: Sync | None = None, checksums: Checksums | None = None
    ) -> None:
        self.observe = observe
        self.sync = sync
        """How new versions are synced to disk; None when that is left to the operating system."""
        self.checksums = checksums
        """Where the checksums of new files are recorded; None where none are."""
        self.unindexed: set[tuple[str, int]] = set()
        """The tables and versions that lost files of an index: they are read without any."""
        self.newest: dict[str, NewestVersion] = {}
        """The newest known version of tables and forks in a folder, by their URI."""
        self.relocated: dict[str, str] = {}
        """The forks that record their shared files at an old location, with one of the recorded paths."""
        self.saw_moved_fork = False
        """Whether there was ever such a fork."""
        self.rewrite_fork: Callable[[Location, str], object] | None = None
        """Rewrites all versions of a fork to record the present location."""

    def announce(self, operation: str, uri: str) -> None:
        """Report a call to the observer just before it is made."""
        if self.observe is not None:
            self.observe(operation, uri)

    def call(self, operation: str, uri: str) -> AbstractContextManager[None]:
        """Announce a call, and convert errors of its block; an error of the observer passes unchanged."""
        self.announce(operation, uri)
        return wrap_lance_errors(operation, uri)

    def continue_call(self, operation: str, uri: str) -> AbstractContextManager[None]:
        """Convert errors of a block that continues a call announced before."""
        return wrap_lance_errors(operation, uri)
