"""Threads that run the calls of `Graph`, so that the event loop stays free.

Reads are bounded to the cores: more of them at once would only make each slower. Writes wait for locks and
disks, so they have threads of their own, as have the short look-ups that come before admission.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

Made = TypeVar("Made")

MOST_WRITES = 8
MOST_LOOKUPS = 4


class Pool(StrEnum):
    """Which threads run a call."""

    READ = "read"
    WRITE = "write"
    LOOKUP = "lookup"


class Workers:
    """The thread pools of a worker; several processes divide the cores between them."""

    def __init__(self, processes: int = 1, changed: Callable[[], None] = lambda: None) -> None:
        sizes = {
            Pool.READ: max(2, (os.cpu_count() or 2) // processes),
            Pool.WRITE: MOST_WRITES,
            Pool.LOOKUP: MOST_LOOKUPS,
        }
        self._pools = {
            pool: ThreadPoolExecutor(size, f"omnigraph {pool.value}") for pool, size in sizes.items()
        }
        self._changed = changed
        self._waiting = dict.fromkeys(Pool, 0)

    def submit(self, pool: Pool, work: Callable[[], Made]) -> Future[Made]:
        """Run a call as soon as a thread of the pool is free; called on the event loop only."""
        self._waiting[pool] += 1
        self._changed()
        return self._pools[pool].submit(work)

    def finished(self, pool: Pool) -> None:
        """Count a call out; called on the event loop only."""
        self._waiting[pool] -= 1
        self._changed()

    def in_progress(self) -> dict[str, int]:
        """How many calls run or wait, by pool."""
        return {pool.value: count for pool, count in self._waiting.items()}

    def close(self) -> None:
        """Wait for running calls, and drop those that have not begun."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
