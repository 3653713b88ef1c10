"""Lance sessions of this process, the layer around every Lance call, and a cache of open forks.

Lance caches by location and version number. Both repeat when a branch is deleted and created again, so a
session serves one incarnation of a fork only. All forks of a branch share a session, as their locations
differ; when one of them turns out to be another incarnation, the whole entry of the branch is dropped.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.cache_budget import read_cache_budget
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.durability import Sync
from omnigraph.storage.failures import wrap_lance_errors
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.references import Incarnation
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

    It must never serve two incarnations of a fork; see `ForkCache`.
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
        self.objects: ObjectStore | None = None
        """Where single files of a table are looked for by name; None where Lance does that."""
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


_HANDLES = 64

_Handle = TypeVar("_Handle")


@dataclass(slots=True)
class _Branch(Generic[_Handle]):
    session: Session = field(default_factory=fork_session)
    incarnations: dict[str, Incarnation] = field(default_factory=dict)
    """By the location of a fork."""
    handles: OrderedDict[tuple[str, int], _Handle] = field(default_factory=OrderedDict)
    """By the location of a fork and a version."""


class ForkCache(Generic[_Handle]):
    """Sessions and handles of the most recently used branches; safe to share between threads."""

    def __init__(self) -> None:
        self._branches: OrderedDict[str, _Branch[_Handle]] = OrderedDict()
        self._generation = fork_generation()
        self._lock = threading.Lock()

    def session(self, branch: str, uri: str, incarnation: Incarnation) -> Session:
        """Return the session of one incarnation of a fork; it never read another incarnation."""
        with self._lock:
            return self._entry_of(branch, uri, incarnation).session

    def find(self, branch: str, uri: str, incarnation: Incarnation, version: int) -> _Handle | None:
        """Return the cached handle of a version, if there is one."""
        with self._lock:
            handles = self._entry_of(branch, uri, incarnation).handles
            found = handles.get((uri, version))
            if found is not None:
                handles.move_to_end((uri, version))
            return found

    def keep(self, branch: str, uri: str, incarnation: Incarnation, version: int, handle: _Handle) -> _Handle:
        """Cache the handle of a version, and return the one that was cached first."""
        with self._lock:
            handles = self._entry_of(branch, uri, incarnation).handles
            kept = handles.setdefault((uri, version), handle)
            while len(handles) > _HANDLES:
                handles.popitem(last=False)
            return kept

    def drop(self, branch: str) -> None:
        """Drop everything cached for a branch."""
        with self._lock:
            self._branches.pop(branch, None)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._branches.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._branches)

    def _entry_of(self, branch: str, uri: str, incarnation: Incarnation) -> _Branch[_Handle]:
        if self._generation != fork_generation():
            # A session owns threads that do not survive a fork of the process.
            self._branches.clear()
            self._generation = fork_generation()
        known = self._branches.get(branch)
        if known is None or known.incarnations.get(uri, incarnation) != incarnation:
            known = self._branches[branch] = _Branch()
        known.incarnations[uri] = incarnation
        self._branches.move_to_end(branch)
        while len(self._branches) > BRANCHES:
            self._branches.popitem(last=False)
        return known
