"""The branch lock between processes: every writer of a branch holds it.

A folder has a lock of the kernel (`record_lock`), a bucket a lease (`lease`). Locks keep writers from
wasting each other's work; what may become visible is decided elsewhere, by compare-and-swap.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import quote, unquote

from omnigraph import ctrl_c, errors
from omnigraph.storage.folder import LOCK_FOLDER, LOCK_SUFFIX
from omnigraph.storage.lease import LeaseLock, decode_lease, read_lease_status
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import THIS_PROCESS, Gate, Holder, LockStatus, LockTable
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.record_lock import RecordLock, find_gate, last_holder, read_lock_status

LEASE_SUFFIX = ".json"
DEFAULT_TTL = 30.0
NAME_REUSE_AFTER = 600.0
"""Longer than any client goes on repeating a request."""

_WAIT_SETTING = "OMNIGRAPH_LOCK_WAIT"
_DEFAULT_WAIT = 10.0
_FIRST_PAUSE = 0.005


class _Lock(Protocol):
    """The use of one branch lock by one thread."""

    longest_pause: float

    @property
    def gate(self) -> Gate: ...
    def holder(self) -> Holder | None: ...
    def attempt(self, operation_id: str | None, *, creating: bool, first: bool) -> Holder | None: ...
    def fresh(self) -> bool: ...
    def confirm(self) -> bool: ...
    def mark_deleted(self) -> None: ...
    def release(self) -> None: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...


class HeldLocks:
    """Branch locks that are held; leaving the `with` block gives them back."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}
        self._pid = os.getpid()

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches whose locks these are."""
        return tuple(self._locks)

    def still_held(self) -> bool:
        """True while a durable effect may be started."""
        return self._is_owner_process() and all(lock.fresh() for lock in self._locks.values())

    def require(self) -> None:
        """Refuse to go on when a lock is no longer held."""
        for branch, lock in self._locks.items():
            if not self._is_owner_process() or not lock.fresh():
                raise errors.LockLost(branch)

    def confirm(self) -> None:
        """The same, by what the store says: a `Fence` for deletes. In a bucket a request for each lock."""
        for branch, lock in self._locks.items():
            if not self._is_owner_process() or not lock.confirm():
                raise errors.LockLost(branch)

    def mark_deleted(self, branch: str) -> None:
        """Note that `branch` is about to be deleted; call it before its reference goes."""
        self._locks[branch].mark_deleted()

    def release(self) -> None:
        """Give the locks back; a second call does nothing."""
        with ctrl_c.postpone_ctrl_c():  # or one could stay with this process for ever
            locks, self._locks = self._locks, {}
            if self._is_owner_process():
                _release_all(list(locks.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _add_lock(self, branch: str, lock: _Lock) -> None:
        self._locks[branch] = lock

    def _is_owner_process(self) -> bool:
        """False in a forked child: the locks stayed with its parent."""
        return os.getpid() == self._pid


class BranchLocks:
    """The branch locks of one graph; clock, pause and times are arguments so that tests need not wait."""

    def __init__(
        self,
        store: ObjectStore,
        root: Location,
        *,
        clock: Callable[[], float] | None = None,
        pause: Callable[[float], None] = time.sleep,
        ttl: float = DEFAULT_TTL,
        reuse_after: float = NAME_REUSE_AFTER,
        table: LockTable = THIS_PROCESS,
    ) -> None:
        self._store = store
        self._folder = root / LOCK_FOLDER
        self._addresses: dict[str, Location] = {}
        self._clock = clock or monotonic_seconds
        self._pause = pause
        self._ttl = ttl
        self._reuse_after = reuse_after
        self._table = table

    def hold(
        self,
        branches: Iterable[str],
        *,
        operation_id: str | None = None,
        wait: float | None = None,
        creating: Collection[str] = (),
    ) -> HeldLocks:
        """Take the locks of `branches`, always in the same order, waiting at most `wait` seconds in all.

        `wait` is `OMNIGRAPH_LOCK_WAIT` when not given; `creating` are those of the branches that are about
        to be made: in a bucket the name of a deleted branch cannot be used again at once.
        """
        patience = _WaitBudget(self._clock, read_lock_wait() if wait is None else wait)
        held = HeldLocks()
        try:
            for branch in sorted(set(branches)):
                held._add_lock(branch, self._take_lock(branch, operation_id, branch in creating, patience))  # noqa: SLF001
        except BaseException:
            held.release()
            raise
        return held

    def try_acquire(self, branches: Iterable[str], *, operation_id: str | None = None) -> HeldLocks | None:
        """Take the locks if all are free at this moment, else None; never waits."""
        try:
            return self.hold(branches, operation_id=operation_id, wait=0.0)
        except errors.WriterBusy:
            return None

    def is_used_here(self, branch: str) -> bool:
        """Whether a thread of this process has the lock, or waits for it, at this moment; asks no store."""
        at = self._lock_location(branch)
        if at.is_local:
            gate = find_gate(at.path, self._table)
        else:
            slot = self._table.known((self._store.scope, at.uri))
            gate = None if slot is None else slot.gate
        return gate is not None and not gate.idle()

    def read_status(self, branch: str, *, wall: float) -> LockStatus | None:
        """Whether `try_acquire` would find the lock taken at this moment; takes and writes nothing.

        `wall` is the time of this machine in seconds: in a bucket the lease of a dead process looks taken
        until it expired by that time.
        """
        at = self._lock_location(branch)
        if at.is_local:
            return read_lock_status(at.path, self._table)
        return read_lease_status(self._store, at, self._table, clock=self._clock, wall=wall)

    def last_holder(self, branch: str) -> Holder | None:
        """Who took this lock last, whether or not it is held now."""
        at = self._lock_location(branch)
        if at.is_local:
            return last_holder(at.path, self._table)
        text = self._store.read_text_if_exists(at)
        return None if text is None else decode_lease(text, at).holder()

    def branch_of_operation(self, operation_id: str) -> str | None:
        """The branch whose lock was lately taken for this operation, if that is still written there."""
        for branch in self._known_branches():
            holder = self.last_holder(branch)
            if holder is not None and operation_id in holder.operations():
                return branch
        return None

    def _take_lock(
        self, branch: str, operation_id: str | None, creating: bool, patience: _WaitBudget
    ) -> _Lock:
        lock = self._find_lock(branch)
        try:
            entered = lock.gate.enter(patience.left())
        except BaseException:
            lock.close()
            raise
        if not entered:
            busy = lock.holder() or Holder(owner=self._table.owner)
            lock.close()
            raise patience.exhausted(branch, busy)
        try:
            self._attempt_lock(lock, branch, operation_id, creating, patience)
        except BaseException:
            lock.abandon()
            raise
        return lock

    def _attempt_lock(
        self, lock: _Lock, branch: str, operation_id: str | None, creating: bool, patience: _WaitBudget
    ) -> None:
        busy = lock.attempt(operation_id, creating=creating, first=True)
        for longest in _pause_lengths(lock.longest_pause):
            if busy is None:
                return
            if patience.left() <= 0:
                raise patience.exhausted(branch, busy)
            # Jitter, so that waiters who came together do not come back together.
            self._pause(min(random.uniform(0.5, 1.0) * longest, patience.left()))
            busy = lock.attempt(operation_id, creating=creating, first=False)

    def _find_lock(self, branch: str) -> _Lock:
        at = self._lock_location(branch)
        if at.is_local:
            return RecordLock(at.path, self._table)
        return LeaseLock(
            self._store, at, self._table, clock=self._clock, ttl=self._ttl, reuse_after=self._reuse_after
        )

    def _lock_location(self, branch: str) -> Location:
        found = self._addresses.get(branch)
        if found is None:
            suffix = LOCK_SUFFIX if self._folder.is_local else LEASE_SUFFIX
            found = self._addresses[branch] = self._folder / f"{quote(branch, safe='')}{suffix}"
        return found

    def _known_branches(self) -> list[str]:
        suffix = LOCK_SUFFIX if self._folder.is_local else LEASE_SUFFIX
        names = [at.name for at in self._store.list_dir(self._folder)]
        return sorted(unquote(name.removesuffix(suffix)) for name in names if name.endswith(suffix))


class _WaitBudget:
    """How long one operation still waits."""

    def __init__(self, clock: Callable[[], float], wait: float) -> None:
        self._clock = clock
        self._started = clock()
        self._wait = wait

    def left(self) -> float:
        return self._wait - (self._clock() - self._started)

    def exhausted(self, branch: str, busy: Holder) -> errors.WriterBusy:
        return errors.WriterBusy(
            branch,
            owner=str(busy.owner),
            waited=self._clock() - self._started,
            operation_id=busy.operation_id,
        )


def monotonic_seconds() -> float:
    """Return seconds that never run backwards; where the system supports it, they include suspended time."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def read_lock_wait() -> float:
    """How long a writer waits for a busy branch: `OMNIGRAPH_LOCK_WAIT` seconds, 10 when not set."""
    text = os.environ.get(_WAIT_SETTING, "").strip()
    if not text:
        return _DEFAULT_WAIT
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise errors.BadRequest(
            f"{_WAIT_SETTING} must be a number of seconds, not '{text}'",
            remedy=f"set {_WAIT_SETTING} to 0 or more, or unset it",
        )
    return seconds


def _pause_lengths(longest: float) -> Iterable[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, longest)


def _release_all(locks: list[_Lock]) -> None:
    """Release every lock, the last taken first, even when one of them fails."""
    if locks:
        try:
            locks[-1].release()
        finally:
            _release_all(locks[:-1])
