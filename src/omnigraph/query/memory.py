"""The memory that reads may keep between queries: one budget, the least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from omnigraph.storage.cache_budget import cache_bytes

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    nbytes: int
    goes_with: Hashable | None


class Memory:
    """Values by key that together stay inside a budget; safe to share between threads.

    What is kept never changes, so a value that is forgotten while a query uses it stays good for that
    query.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._users: dict[Hashable, set[Hashable]] = {}
        """The keys of what goes when that of a key goes."""
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """How many bytes are kept."""
        with self._lock:
            return self._used

    def get(self, key: Hashable) -> Any | None:
        """The value kept under a key, which makes it the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            if entry.goes_with is not None:
                self._entries.move_to_end(entry.goes_with)  # it is in use as well
            return entry.value

    def knows(self, key: Hashable, value: object, nbytes: int) -> bool:
        """Whether that value is kept under a key with that size, which makes it the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.value is not value or entry.nbytes != nbytes:
                return False
            self._entries.move_to_end(key)
            return True

    def keep(self, key: Hashable, value: Kept, nbytes: int, goes_with: Hashable | None = None) -> Kept:
        """Keep a value if it fits the budget at all, and forget others until it does.

        A value that holds on to another one `goes_with` that one: forgetting only the other would
        free nothing.
        """
        with self._lock:
            self._drop(key, alone=True)
            is_lost = goes_with is not None and goes_with not in self._entries
            if is_lost or nbytes > self.limit or self.limit == 0:
                self._drop_users(key)
                return value  # what is kept may have grown until it does not fit any more
            self._used += nbytes
            self._entries[key] = _Entry(value, nbytes, goes_with)
            if goes_with is not None:
                self._users.setdefault(goes_with, set()).add(key)
            while self._used > self.limit:
                self._drop(next(iter(self._entries)))
        return value

    def _drop(self, key: Hashable, *, alone: bool = False) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._used -= entry.nbytes
        if entry.goes_with is not None and (users := self._users.get(entry.goes_with)) is not None:
            users.discard(key)
        if not alone:
            self._drop_users(key)

    def _drop_users(self, key: Hashable) -> None:
        for user in self._users.pop(key, ()):
            self._drop(user)

    def get_or_make(self, key: Hashable, make: Callable[[], Kept], size: Callable[[Kept], int]) -> Kept:
        """The value under a key, made now when it is not kept."""
        found: Kept | None = self.get(key)
        if found is not None:
            return found
        made = make()
        return self.keep(key, made, size(made))

    def forget_graph(self, uri: str) -> None:
        """Drop everything of one graph; keys are tuples that begin with where it is."""
        with self._lock:
            for key in [key for key in self._entries if isinstance(key, tuple) and key[0] == uri]:
                self._drop(key)

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
            self._users.clear()
            self._used = 0


@cache
def shared_memory() -> Memory:
    """The one memory of this process."""
    return Memory(cache_bytes())
