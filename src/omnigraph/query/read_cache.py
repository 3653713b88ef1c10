"""The cache that reads share between queries: an LRU with a budget in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.cache_budget import read_cache_budget

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    nbytes: int
    depends_on: Hashable | None


class _Turn:
    """Threads that want the same value: one makes it while the others wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.made: Any = None


class ReadCache:
    """Values by key within a budget, least recently used dropped first; safe to share between threads.

    Values never change, so one that is dropped while a query uses it stays valid for that query.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._users: dict[Hashable, set[Hashable]] = {}
        """The keys to drop together with a key."""
        self._turns: dict[Hashable, _Turn] = {}
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """How many bytes are kept."""
        with self._lock:
            return self._used

    def get(self, key: Hashable) -> Any | None:
        """Return the value of a key and make it the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            if entry.depends_on is not None:
                self._entries.move_to_end(entry.depends_on)  # it is in use as well
            return entry.value

    def knows(self, key: Hashable, value: object, nbytes: int) -> bool:
        """Whether a key has this value with this size; makes it the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.value is not value or entry.nbytes != nbytes:
                return False
            self._entries.move_to_end(key)
            return True

    def keep(self, key: Hashable, value: Kept, nbytes: int, depends_on: Hashable | None = None) -> Kept:
        """Keep a value if it fits the budget at all, dropping others to make room; return it.

        A value that references another one `depends_on` its key: dropping only the other would free nothing.
        """
        with self._lock:
            self._drop_entry(key, alone=True)
            is_lost = depends_on is not None and depends_on not in self._entries
            if is_lost or nbytes > self.limit or self.limit == 0:
                self._drop_users(key)
                return value  # it may have grown until it does not fit any more
            self._used += nbytes
            self._entries[key] = _Entry(value, nbytes, depends_on)
            if depends_on is not None:
                self._users.setdefault(depends_on, set()).add(key)
            while self._used > self.limit:
                self._drop_entry(next(iter(self._entries)))
        return value

    def _drop_entry(self, key: Hashable, *, alone: bool = False) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._used -= entry.nbytes
        if entry.depends_on is not None and (users := self._users.get(entry.depends_on)) is not None:
            users.discard(key)
        if not alone:
            self._drop_users(key)

    def _drop_users(self, key: Hashable) -> None:
        for user in self._users.pop(key, ()):
            self._drop_entry(user)

    def get_or_make(self, key: Hashable, make: Callable[[], Kept], size: Callable[[Kept], int]) -> Kept:
        """Return the value of a key, made now when it is not cached."""
        found: Kept | None = self.get(key)
        if found is not None:
            return found
        made = make()
        return self.keep(key, made, size(made))

    def make_once(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return the value of a key; of the threads that miss it at one time, one makes and keeps it.

        Others would spend as much time on a value of their own, and what is derived from that would fit no
        later read. Where making it fails, the next thread tries.
        """
        found: Kept | None = self.get(key)
        if found is not None:
            return found
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.threads += 1
        try:
            with turn.lock:
                if turn.made is None:
                    found = self.get(key)
                    turn.made = make() if found is None else found
                made: Kept = turn.made
                return made
        finally:
            with self._lock:
                turn.threads -= 1
                if turn.threads == 0:
                    del self._turns[key]

    def forget_graph(self, uri: str) -> None:
        """Drop everything of one graph; keys are tuples that start with its address."""
        with self._lock:
            for key in [key for key in self._entries if isinstance(key, tuple) and key[0] == uri]:
                self._drop_entry(key)

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
            self._users.clear()
            self._used = 0


@cache
def shared_cache() -> ReadCache:
    """Return the cache of this process."""
    return ReadCache(read_cache_budget())
