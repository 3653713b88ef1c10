"""The writes of this process to a branch: those that touch other tables need not wait to be prepared."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from omnigraph.engine.graph.coordinator import Coordinator


class RunningWrites:
    """The tables that the writes to one branch touch, as far as they are known ahead.

    It only decides what is prepared early. The gates decide what takes effect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[object, Collection[str] | None] = {}

    @contextmanager
    def join(self, tables: Collection[str] | None) -> Iterator[bool]:
        """Count a write as running; whether there are others, and none of them touches one of its tables.

        `tables` is None for a write that may touch any. Without others nothing is known about the holder of the
        branch's lock, if there is one.
        """
        me = object()
        with self._lock:
            others = list(self._tables.values())
            self._tables[me] = tables
        try:
            yield bool(others) and all(
                tables is not None and other is not None and set(other).isdisjoint(tables) for other in others
            )
        finally:
            with self._lock:
                del self._tables[me]


_by_branch: WeakKeyDictionary[Coordinator, RunningWrites] = WeakKeyDictionary()
_lock = threading.Lock()


def running_writes(coordinator: Coordinator) -> RunningWrites:
    """Return the running writes to a branch."""
    with _lock:
        return _by_branch.setdefault(coordinator, RunningWrites())
