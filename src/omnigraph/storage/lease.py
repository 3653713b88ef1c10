"""The branch lock of a bucket: a lease object, taken, renewed and given back by conditional puts.

No two bodies of one lease are equal, because an ETag is a hash of the content: each change raises `beat`
and each new holder raises `epoch`. Nothing is decided by the clocks of two machines: a waiter measures
how long it has seen one beat on its own monotonic clock, or compares two times that the store itself set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal
from urllib.parse import unquote

import msgspec

from omnigraph import errors
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import EARLIER_OPERATIONS, Gate, Holder, LockStatus, LockTable, Owner
from omnigraph.storage.objects import ObjectStore, VersionedText

KEEP_LIMIT = 16
"""How many operations of one process may follow each other before others get a chance."""

_TIME_GRANULARITY = 1.0
"""S3 counts the time of a change in whole seconds."""

_log = logging.getLogger(__name__)

_STANDS_BACK = 7
"""How often who gave the lease back leaves it to one that waits: about as long as that may pause."""

_ROUNDS = 3
"""How often a rival may be faster in one attempt."""

Clock = Callable[[], float]
State = Literal["held", "free", "deleted"]


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a lease object."""

    epoch: int
    beat: int
    state: State
    owner: Owner
    ttl_s: float
    operation_id: str | None = None
    earlier: tuple[str, ...] = ()
    retired: bool = False
    """The branch of this name was deleted; kept during a cleanup under the lock."""
    wanted: bool = False
    """Another process waits for it, and wrote this; it changes nothing for the holder."""

    def encode(self) -> str:
        """The JSON text."""
        return msgspec.json.encode(self).decode()

    def holder(self) -> Holder:
        """Who holds it, or held it last."""
        return Holder(owner=self.owner, operation_id=self.operation_id, earlier=self.earlier)

    def same_beat(self, other: Lease) -> bool:
        """True when the holder did not renew it between the two."""
        return (self.epoch, self.beat, self.owner) == (other.epoch, other.beat, other.owner)


class LeaseSlot:
    """One lease of this process, shared by its threads."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.mutex = threading.RLock()
        self.current: tuple[Lease, str] | None = None
        """Our last put and its token: held, or given back and not known to be taken by another process."""
        self.sent = 0.0
        """When our last successful put was sent."""
        self.operations = 0
        self.stands_back = 0
        """How often we still leave the lease that we gave back to others."""
        self.sighting: tuple[Lease, float] | None = None
        self.stop = threading.Event()

    def forget_in_child(self) -> None:
        """The child never reaches this slot again."""

    def saw_expire(self, lease: Lease, now: float) -> bool:
        """Whether this process has seen the same beat of another's lease for its whole time to live."""
        seen = self.sighting
        return seen is not None and seen[0].same_beat(lease) and now - seen[1] >= lease.ttl_s

    def held(self) -> Lease | None:
        """Our lease, if we have it."""
        current = self.current
        return current[0] if current is not None and current[0].state == "held" else None


class LeaseLock:
    """The use of one lease by one thread, from asking for it to giving it back."""

    longest_pause = 0.25
    """Between two attempts: each of them is a request."""

    def __init__(
        self,
        store: ObjectStore,
        at: Location,
        table: LockTable,
        *,
        clock: Clock,
        ttl: float,
        reuse_after: float,
    ) -> None:
        self._store = store
        self._at = at
        self._owner = table.owner
        self._clock = clock
        self._ttl = ttl
        self._reuse_after = reuse_after
        self._slot = table.slot((store.scope, at.uri), LeaseSlot)

    @property
    def gate(self) -> Gate:
        """The turn among the threads of this process."""
        return self._slot.gate

    def holder(self) -> Holder | None:
        """Who held the lease when this process last looked."""
        lease = self._slot.held()
        return None if lease is None else lease.holder()

    def attempt(self, operation_id: str | None, *, creating: bool, first: bool) -> Holder | None:
        """Take the lease if it is free or expired; otherwise say who has it.

        `creating` refuses a name that was deleted a short while ago; `first` marks the first attempt of an
        operation, which also asks the store whether the lease is long dead.
        """
        with self._slot.mutex:
            if self._kept_for_us(operation_id, creating) or self._take_back(operation_id):
                return None
            for _ in range(_ROUNDS):
                asked = self._clock()
                found = self._store.read_text_versioned(self._at)
                if found is None:
                    if self._create_lease(operation_id):
                        return None
                    continue
                lease = decode_lease(found.text, self._at)
                if not self._is_available(lease, found, asked, first):
                    if not first and not lease.wanted:
                        self._say_that_we_wait(lease, found.token)
                    return lease.holder()
                if self._stand_back(lease):
                    return lease.holder()
                retired = lease.retired or lease.state == "deleted"
                if creating and retired:
                    self._refuse_recent_name(found)
                if self._take_lease(lease, found.token, operation_id, retired=retired and not creating):
                    return None
            return self._faster_rival()

    def fresh(self) -> bool:
        """True while a durable effect may still be started under this lease."""
        return self._slot.held() is not None and self._clock() - self._slot.sent < self._ttl / 2

    def confirm(self) -> bool:
        """Whether the store still has this lease as ours, and no other process can take it for some time."""
        with self._slot.mutex:
            lease = self._slot.held()
            if lease is None:
                return False
            found = self._store.read_text_versioned(self._at)
            stored = None if found is None else decode_lease(found.text, self._at)
            if stored is None or (stored.epoch, stored.owner) != (lease.epoch, lease.owner):
                self._forget()
        return self.fresh()

    def mark_deleted(self) -> None:
        """Note, durably, that the branch is about to go, so that its name is not reused at once."""
        with self._slot.mutex:
            if self._slot.held() is None or not self._write_beat(retired=True):
                raise errors.LockLost(branch_of(self._at))

    def release(self) -> None:
        """Keep the lease for a waiting thread of this process, or give it back; best effort."""
        slot = self._slot
        slot.operations += 1
        if slot.operations < KEEP_LIMIT and self.fresh() and self.gate.leave_to_waiter():
            return
        try:
            self.give_back()
        finally:
            self.gate.leave()

    def abandon(self) -> None:
        """Leave the gate without the lease."""
        self.gate.leave()

    def close(self) -> None:
        """Nothing is open between operations."""

    def give_back(self) -> None:
        """Make the lease free for everybody."""
        slot = self._slot
        slot.stop.set()
        with slot.mutex:
            lease = slot.held()
            if lease is None:
                slot.current = None
                return
            try:
                done = self._write_beat(state="deleted" if lease.retired else "free")
                if done and slot.current is not None and slot.current[0].wanted:
                    slot.stands_back = _STANDS_BACK
            except errors.StorageFailure as failure:
                # It will expire, and this process recognises it as its own.
                _log.warning("lease not given back: %s", failure)
                slot.current = None

    def renew(self) -> None:
        """Renew the lease; one that turns out to be taken is forgotten."""
        with self._slot.mutex:
            if self._slot.held() is not None:
                self._write_beat()

    def _kept_for_us(self, operation_id: str | None, creating: bool) -> bool:
        """True when another thread of this process left us the lease."""
        slot = self._slot
        lease = slot.held()
        if lease is None:
            return False
        if not self.fresh():
            self.renew()
        if creating and lease.retired:
            self.give_back()
        if not self.fresh() or slot.current is None or slot.held() is None:
            return False
        # The name of the operation reaches the store with the next beat.
        body, token = slot.current
        slot.current = (_with_operation(body, operation_id), token)
        return True

    def _take_back(self, operation_id: str | None) -> bool:
        """Take the lease back with one put and the token of our release, if it was not taken since."""
        current = self._slot.current
        if current is None or current[0].state != "free" or self._slot.stands_back:
            return False
        return self._take_lease(*current, operation_id)

    def _stand_back(self, lease: Lease) -> bool:
        """Whether to leave a free lease to another process: we had it last, and one waited.

        A process that gives a lease back and wants it again would mostly beat one that polls. If the lease
        stays free, the waiter is gone.
        """
        slot = self._slot
        if lease.state == "held" or lease.owner.token != self._owner.token:
            slot.stands_back = 0
        if not slot.stands_back:
            return False
        slot.stands_back -= 1
        return True

    def _say_that_we_wait(self, lease: Lease, token: str) -> None:
        """Mark the lease as wanted; the holder sees it at its next beat, or we retry if a beat came first."""
        wanted = msgspec.structs.replace(lease, wanted=True)
        self._store.write_text_if_match(self._at, wanted.encode(), token)

    def _faster_rival(self) -> Holder:
        found = self._store.read_text_versioned(self._at)
        return Holder(owner=self._owner) if found is None else decode_lease(found.text, self._at).holder()

    def _is_available(self, lease: Lease, found: VersionedText, asked: float, first: bool) -> bool:
        """True when it is free, or its holder can no longer act under it."""
        if lease.state != "held":
            return True
        if lease.owner.token == self._owner.token:
            # The acknowledgement of an earlier put of ours was lost; no other thread is past the gate.
            return True
        slot = self._slot
        if slot.sighting is None or not slot.sighting[0].same_beat(lease):
            slot.sighting = (lease, self._clock())
        elif slot.saw_expire(lease, asked):
            return True
        return first and _is_long_expired(lease, found, self._store_time())

    def _refuse_recent_name(self, found: VersionedText) -> None:
        passed = max(0.0, self._store_time() - found.modified)
        if passed < self._reuse_after:
            left = round(self._reuse_after - passed)
            raise errors.Unavailable(
                f"branch name '{branch_of(self._at)}' was deleted {passed:.0f} s ago and may still be in use",
                remedy=f"choose another name, or try again in {left} s",
            )

    def _store_time(self) -> float:
        """The time by the clock of the store: that of an object put just now."""
        at = Location(self._at.uri.rpartition("/")[0]) / "clock"
        self._store.write_text(at, self._owner.token)
        found = self._store.read_text_versioned(at)
        return 0.0 if found is None else found.modified

    def _create_lease(self, operation_id: str | None) -> bool:
        lease = Lease(
            epoch=1, beat=0, state="held", owner=self._owner, ttl_s=self._ttl, operation_id=operation_id
        )
        return self._begin_lease(lease, None)

    def _take_lease(
        self, base: Lease, token: str, operation_id: str | None, *, retired: bool = False
    ) -> bool:
        lease = msgspec.structs.replace(
            _with_operation(base, operation_id),
            epoch=base.epoch + 1,
            beat=0,
            state="held",
            owner=self._owner,
            ttl_s=self._ttl,
            retired=retired,
            wanted=False,
        )
        return self._begin_lease(lease, token)

    def _begin_lease(self, lease: Lease, replacing: str | None) -> bool:
        """Become the holder, unless another process was faster."""
        slot = self._slot
        slot.current = None
        if not self._put_lease(lease, replacing):
            return False
        slot.operations = slot.stands_back = 0
        slot.stop.set()
        slot.stop = threading.Event()
        _start_timer(self, slot.stop, self._ttl / 3)
        return True

    def _write_beat(self, *, state: State = "held", retired: bool = False) -> bool:
        """Write the next beat of our own lease; False, and it is forgotten, when another process took it."""
        slot = self._slot
        for _ in range(_ROUNDS):
            assert slot.current is not None
            body, token = slot.current
            lease = msgspec.structs.replace(
                body, beat=body.beat + 1, state=state, retired=body.retired or retired
            )
            if self._put_lease(lease, token):
                return True
            found = self._store.read_text_versioned(self._at)
            stored = None if found is None else decode_lease(found.text, self._at)
            if found is None or stored is None or (stored.epoch, stored.owner) != (body.epoch, body.owner):
                break
            # An earlier beat of ours arrived although its acknowledgement did not.
            slot.current = (stored, found.token)
        self._forget()
        return False

    def _forget(self) -> None:
        """Stop to renew a lease that another process took."""
        self._slot.current = None
        self._slot.stop.set()

    def _put_lease(self, lease: Lease, replacing: str | None) -> bool:
        """Put a body; a failed precondition may be caused by our own put, retried by the client."""
        sent = self._clock()
        text = lease.encode()
        if replacing is None:
            token = self._store.create_text(self._at, text)
        else:
            token = self._store.write_text_if_match(self._at, text, replacing)
        if token is None:
            found = self._store.read_text_versioned(self._at)
            if found is None or found.text != text:
                return False
            token = found.token
        self._slot.current = (lease, token)
        self._slot.sent = sent
        return True

    def beat_or_stop(self) -> bool:
        """One turn of the timer; False when there is nothing left to renew.

        A lease that was kept for a thread which then went away is given back.
        """
        with self._slot.mutex:
            # Asked under the mutex: a thread that comes now finds the lease given back, not half taken.
            if self.gate.idle():
                self.give_back()
                return False
        try:
            self.renew()
        except errors.StorageFailure as failure:
            # The deadline of the holder decides; the next beat may get through.
            _log.warning("lease not renewed: %s", failure)
            return True
        return self._slot.held() is not None


def read_lease_status(
    store: ObjectStore, at: Location, table: LockTable, *, clock: Clock, wall: float
) -> LockStatus | None:
    """Return who holds the lease at this moment, by reading alone; None when it is free.

    Asking the store for its time would put an object, so `wall`, the time of this machine, is used: good
    enough to predict what an attempt would find, and for nothing else.
    """
    slot = table.known((store.scope, at.uri))
    asked = clock()
    if isinstance(slot, LeaseSlot) and not slot.gate.idle():
        own = slot.held()
        return LockStatus(Holder(owner=table.owner) if own is None else own.holder())
    found = store.read_text_versioned(at)
    if found is None:
        return None
    lease = decode_lease(found.text, at)
    # One that is ours by its text was given back, or is taken again at once: no thread is past the gate.
    if lease.state != "held" or lease.owner.token == table.owner.token:
        return None
    expired = isinstance(slot, LeaseSlot) and slot.saw_expire(lease, asked)
    return None if expired or _is_long_expired(lease, found, wall) else LockStatus(lease.holder())


def _is_long_expired(lease: Lease, found: VersionedText, now: float) -> bool:
    """Whether the last beat is so old that no holder can act under it, however times were rounded."""
    return now - found.modified > 2 * lease.ttl_s + _TIME_GRANULARITY


def _with_operation(lease: Lease, operation_id: str | None) -> Lease:
    earlier = lease.holder().operations()[:EARLIER_OPERATIONS]
    return msgspec.structs.replace(lease, operation_id=operation_id, earlier=earlier)


def _start_timer(lock: LeaseLock, stop: threading.Event, interval: float) -> None:
    def run() -> None:
        while not stop.wait(interval) and lock.beat_or_stop():
            pass

    threading.Thread(target=run, name="omnigraph-lease", daemon=True).start()


def decode_lease(text: str, at: Location) -> Lease:
    """Return the lease in a text; any other text was not written by this package."""
    try:
        return msgspec.json.decode(text, type=Lease)
    except msgspec.DecodeError as failure:
        raise errors.CorruptGraph(
            f"the lock '{at.uri}' cannot be read: {failure}",
            object_id=at.uri,
            remedy="make sure that no process writes to this branch, then delete the object",
        ) from failure


def branch_of(at: Location) -> str:
    """Return the branch whose lock is at this location."""
    return unquote(at.name.rpartition(".")[0])
