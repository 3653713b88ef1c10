"""The root of a graph: its layout, stores, locks, clock and id generator."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import Layout
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.durability import Sync, configured_sync
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import LockStatus
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Tables

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)
_SHIFTS = range(120, -1, -10)


def ulid(milliseconds: int, entropy: bytes) -> str:
    """The ULID of a moment since 1970, with ten random bytes."""
    bits = milliseconds << 80 | int.from_bytes(entropy)
    return "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])


def new_id() -> str:
    """Return a ULID: unique, and sorted by time as far as clocks agree."""
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
        """Return the graph root at a location, without any I/O. Without `sync` the environment decides."""
        objects = open_store(location, observe)
        tables = Tables(
            observe,
            sync=sync or configured_sync(location),
            objects=objects,
            checksums=Checksums(location.path) if location.is_local else None,
        )
        layout = Layout(location)
        forks = Forks(tables, objects, layout.derived)
        return cls(layout, objects, tables, forks, BranchLocks(objects, location))

    @property
    def uri(self) -> str:
        """The location, as the user sees it."""
        return self.layout.root.uri

    def taken(self, branch: str) -> LockStatus | None:
        """Return who holds the lock of a branch now, or None; takes and writes nothing."""
        return self.locks.read_status(branch, wall=self.clock() / 1_000_000)


@lru_cache(maxsize=8)
def shared_root(uri: str, _job: str) -> Root:
    """Return the root that all tasks of one job share within a process.

    The name of a job is unique: by the next job another graph may be at the same location, with tables of
    the same paths and version numbers.
    """
    return Root.at(Location(uri))
