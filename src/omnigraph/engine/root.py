"""Everything one graph is reached through: its places, stores, locks, clock and ids."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from omnigraph.engine.layout import Layout
from omnigraph.engine.ulids import ulid
from omnigraph.storage.durability import Sync, configured_sync
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import Taken
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.tables import Tables


def new_id() -> str:
    """A ULID: unique, and sorted by time as far as clocks agree."""
    return ulid(time.time_ns() // 1_000_000, os.urandom(10))


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a graph and the tools to work on it; clock and ids are replaceable for tests."""

    layout: Layout
    objects: ObjectStore
    tables: Tables
    forks: Forks
    locks: BranchLocks
    clock: Callable[[], int] = wall_clock
    new_id: Callable[[], str] = new_id

    @classmethod
    def at(cls, location: Location, observe: Observer | None = None, sync: Sync | None = None) -> Root:
        """The graph root at a place; nothing is contacted yet. Without `sync` the environment decides."""
        objects = ObjectStore.at(location, observe)
        tables = Tables(observe, sync=sync or configured_sync(location), objects=objects)
        return cls(Layout(location), objects, tables, Forks(tables, objects), BranchLocks(objects, location))

    @property
    def uri(self) -> str:
        """The place, as the user sees it."""
        return self.layout.root.uri

    def taken(self, branch: str) -> Taken | None:
        """Whether somebody has the lock of a branch at this moment; nothing is taken or written."""
        return self.locks.taken(branch, wall=self.clock() / 1_000_000)


@lru_cache(maxsize=8)
def root_for(uri: str, _work: str) -> Root:
    """The root that the tasks of one piece of work share in a process that runs some of them.

    Work has a name that nothing else has: by the next one another graph may be in the same place, and
    versions of its tables have the same places and numbers.
    """
    return Root.at(Location(uri))
