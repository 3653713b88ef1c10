"""The lease of a bucket: who has it, for how long, and what lost answers of the store do to it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest

from omnigraph import errors
from omnigraph.storage.bucket import BucketStore
from omnigraph.storage.lease import LeaseLock
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import LockTable
from omnigraph.storage.locks import BranchLocks, HeldLocks
from omnigraph.storage.objects import Recorder, VersionedBytes

ROOT = Location.parse("s3://memory/g")
LEASE = ROOT / "__locks" / "main.json"

Process = Callable[[], BranchLocks]


class Clock:
    """A clock that moves only when somebody pauses; `meanwhile` runs after each pause."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Bucket(BucketStore):
    """A bucket in memory whose leases can be old and whose answers can get lost."""

    def __init__(self) -> None:
        blank = BucketStore.in_memory("memory")
        super().__init__("memory", blank._client, blank.scope)
        self.age = 0.0
        self.lose_next_answer: Literal["refused", "broken"] | None = None

    def _get_object(self, at: Location) -> VersionedBytes | None:
        found = super()._get_object(at)
        if found is None or at.name == "clock":
            return found
        return VersionedBytes(found.body, found.token, found.modified - self.age)

    def _swap_object(self, at: Location, body: bytes, token: str) -> str | None:
        landed = super()._swap_object(at, body, token)
        lost, self.lose_next_answer = self.lose_next_answer, None
        if lost == "refused":
            return None
        if lost == "broken":
            raise errors.StorageFailure("connection reset", kind="Transient", uri=at.uri)
        return landed

    def lease(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.read_text(LEASE))
        return body


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def process(bucket: Bucket, clock: Clock) -> Process:
    """Makes what another process would have: locks that share nothing but the bucket."""

    def start() -> BranchLocks:
        return BranchLocks(bucket, ROOT, clock=clock, pause=clock.pause, table=LockTable())

    return start


def _lock(held: HeldLocks) -> LeaseLock:
    lock = held._locks["main"]
    assert isinstance(lock, LeaseLock)
    return lock


def test_who_gives_the_lease_back_leaves_it_to_one_that_waits(
    process: Process, bucket: Bucket, clock: Clock
) -> None:
    mine, other = process(), process()
    held = mine.hold(["main"])
    pauses = 0

    def meanwhile() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            assert bucket.lease()["wanted"]
            _lock(held).renew()
            held.require()
            held.release()
            with pytest.raises(errors.WriterBusy):
                mine.hold(["main"], wait=0)

    clock.meanwhile = meanwhile
    with other.hold(["main"], wait=5):
        assert pauses == 2, "it came with its next look"
        assert "wanted" not in bucket.lease()
    with mine.hold(["main"], wait=0):
        assert bucket.lease()["epoch"] == 3


def test_a_lease_that_is_not_taken_is_not_left_to_others_for_long(
    process: Process, bucket: Bucket, clock: Clock
) -> None:
    mine, gone = process(), process()
    with mine.hold(["main"]):
        with pytest.raises(errors.WriterBusy):
            gone.hold(["main"], wait=1)
        assert bucket.lease()["wanted"]
    started = clock.now
    with mine.hold(["main"], wait=5):
        assert 0 < clock.now - started < 1
    started = clock.now
    with mine.hold(["main"], wait=5):
        assert clock.now == started, "no thread waits any more"


def test_a_lease_that_is_wanted_is_anybodys_but_for_who_had_it(process: Process, bucket: Bucket) -> None:
    mine, waiting, third = process(), process(), process()
    with mine.hold(["main"]), pytest.raises(errors.WriterBusy):
        waiting.hold(["main"], wait=1)
    with third.hold(["main"], wait=0):
        assert bucket.lease()["epoch"] == 2
    with mine.hold(["main"], wait=0):
        assert bucket.lease()["epoch"] == 3


def test_a_lease_has_one_holder_and_says_who(process: Process, bucket: Bucket) -> None:
    mine, other = process(), process()
    with mine.hold(["main"], operation_id="01MINE") as held:
        held.require()
        body = bucket.lease()
        assert (body["epoch"], body["beat"], body["state"], body["ttl_s"]) == (1, 0, "held", 30.0)
        assert set(body["owner"]) == {"host", "pid", "token"}
        with pytest.raises(errors.WriterBusy) as busy:
            other.hold(["main"], wait=0)
        assert busy.value.operation_id == "01MINE"
        assert other.branch_of_operation("01MINE") == "main"
    assert bucket.lease()["state"] == "free"
    with other.hold(["main"], wait=0):
        assert bucket.lease()["epoch"] == 2


def test_no_two_bodies_of_a_lease_are_equal(process: Process, bucket: Bucket, clock: Clock) -> None:
    bodies: list[str] = []

    def note(op: str, uri: str) -> None:
        if (found := bucket._get_object(LEASE)) is not None:
            bodies.append(found.body.decode())

    bucket.observe = note
    for locks in (process(), process()):
        for _ in range(2):
            with locks.hold(["main"]) as held:
                _lock(held).renew()
                _lock(held).renew()
                held.mark_deleted("main")
    distinct = [body for n, body in enumerate(bodies) if n == 0 or body != bodies[n - 1]]
    assert len(distinct) > 10
    assert len(set(distinct)) == len(distinct)


def test_a_waiter_gives_up_after_its_wait(process: Process, clock: Clock) -> None:
    with process().hold(["main"]), pytest.raises(errors.WriterBusy) as busy:
        process().hold(["main"], wait=5.0)
    assert busy.value.waited == pytest.approx(5.0)
    assert clock.now == pytest.approx(1005.0)


def test_a_lease_without_a_sign_of_life_is_taken_over_after_its_time(
    process: Process, bucket: Bucket, clock: Clock
) -> None:
    dead = process().hold(["main"])
    with process().hold(["main"], wait=31.0) as held:
        assert clock.now >= 1030.0
        assert bucket.lease()["epoch"] == 2
        with pytest.raises(errors.LockLost, match="lock of branch 'main'"):
            dead.require()
        dead.release()
        assert bucket.lease()["state"] == "held"
        held.require()


def test_a_renewed_lease_is_never_taken_over(process: Process, bucket: Bucket, clock: Clock) -> None:
    alive = process().hold(["main"])

    def renew_now_and_then() -> None:
        if clock.now - _lock(alive)._slot.sent > 10:
            _lock(alive).renew()

    clock.meanwhile = renew_now_and_then
    with pytest.raises(errors.WriterBusy):
        process().hold(["main"], wait=200.0)
    alive.require()
    assert bucket.lease()["beat"] >= 15


def test_what_a_process_saw_counts_in_its_next_attempt(process: Process, clock: Clock) -> None:
    process().hold(["main"])
    waiter = process()
    with pytest.raises(errors.WriterBusy):
        waiter.hold(["main"], wait=10.0)
    clock.now += 19.9
    assert waiter.try_acquire(["main"]) is None
    clock.now += 0.2
    assert waiter.try_acquire(["main"]) is not None


def test_a_lease_long_dead_by_the_clock_of_the_store_is_taken_at_once(
    process: Process, bucket: Bucket
) -> None:
    process().hold(["main"])
    bucket.age = 60.5
    assert process().try_acquire(["main"]) is None
    bucket.age = 62.0
    assert process().try_acquire(["main"]) is not None


def test_reading_a_lease_shows_whether_it_is_taken(process: Process, bucket: Bucket) -> None:
    mine, other, now = process(), process(), time.time()
    assert other.read_status("main", wall=now) is None
    heard = Recorder()
    with mine.hold(["main"], operation_id="01ONE"):
        bucket.observe = heard
        for one in (mine, other):
            busy = one.read_status("main", wall=now)
            assert busy is not None
            assert busy.holder is not None
            assert busy.holder.operation_id == "01ONE"
        bucket.observe = None
    assert mine.read_status("main", wall=now) is other.read_status("main", wall=now) is None
    assert heard.counts() == {"read_text_versioned": 1}


def test_the_lease_of_a_dead_process_looks_taken_until_it_expired(process: Process, bucket: Bucket) -> None:
    """As an attempt to take it would find it, but by the clock of this machine."""
    process().hold(["main"])
    bucket.age = 60.5
    assert process().read_status("main", wall=time.time()) is not None
    assert process().try_acquire(["main"]) is None
    bucket.age = 62.0
    assert process().read_status("main", wall=time.time()) is None
    assert process().try_acquire(["main"]) is not None


def test_a_lease_that_this_process_saw_expire_is_not_taken(process: Process, clock: Clock) -> None:
    process().hold(["main"])
    waiter = process()
    with pytest.raises(errors.WriterBusy):
        waiter.hold(["main"], wait=10.0)
    clock.now += 19.9
    assert waiter.read_status("main", wall=time.time()) is not None
    clock.now += 0.2
    assert waiter.read_status("main", wall=time.time()) is None


def test_a_lease_of_ours_whose_answer_was_lost_is_not_taken(process: Process, bucket: Bucket) -> None:
    mine, now = process(), time.time()
    mine.hold(["main"]).release()
    bucket.lose_next_answer = "broken"
    with pytest.raises(errors.StorageFailure):
        mine.hold(["main"])
    assert bucket.lease()["state"] == "held"
    assert mine.read_status("main", wall=now) is None
    assert process().read_status("main", wall=now) is not None
    assert mine.try_acquire(["main"]) is not None


def test_a_holder_may_not_begin_anything_in_the_second_half_of_its_lease(
    process: Process, clock: Clock
) -> None:
    held = process().hold(["main"])
    clock.now += 14.9
    held.require()
    clock.now += 0.1
    assert not held.still_held()
    with pytest.raises(errors.LockLost):
        held.require()
    _lock(held).renew()
    held.require()


def test_the_deadline_counts_from_sending_not_from_the_answer(
    process: Process, bucket: Bucket, clock: Clock
) -> None:
    def slow(op: str, uri: str) -> None:
        if op.startswith("write_text_if"):
            clock.now += 16.0

    bucket.observe = slow
    assert not process().hold(["main"]).still_held()


def test_the_second_operation_costs_one_put_to_begin_and_one_to_end(process: Process, bucket: Bucket) -> None:
    locks = process()
    with locks.hold(["main"]):
        pass
    recorder = Recorder()
    bucket.observe = recorder
    with locks.hold(["main"]):
        pass
    assert recorder.counts() == {"write_text_if_match": 2}


def test_a_second_release_takes_nothing_from_the_next_thread(process: Process, bucket: Bucket) -> None:
    locks = process()
    first = locks.hold(["main"])
    first.release()
    with locks.hold(["main"]) as second:
        first.release()
        second.require()
        assert bucket.lease()["state"] == "held"


def test_a_remembered_release_is_useless_once_somebody_else_was_here(
    process: Process, bucket: Bucket
) -> None:
    first, second = process(), process()
    for locks in (first, second):
        with locks.hold(["main"]):
            pass
    with first.hold(["main"]):
        assert bucket.lease()["epoch"] == 3
    with second.hold(["main"]):
        assert first.try_acquire(["main"]) is None


def _waiting(locks: BranchLocks) -> int:
    return locks._find_lock("main").gate.waiting()


def test_threads_of_a_process_follow_each_other_under_one_lease_sixteen_times_at_most(
    process: Process, bucket: Bucket
) -> None:
    locks = process()
    done: list[str] = []

    def work(n: int) -> None:
        with locks.hold(["main"], operation_id=f"op{n}", wait=60.0) as held:
            held.require()
            done.append(f"op{n}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(19)]
    with locks.hold(["main"]):
        for thread in threads:
            thread.start()
        while _waiting(locks) < 19:
            os.sched_yield()
    for thread in threads:
        thread.join()
    assert len(done) == 19
    assert (bucket.lease()["epoch"], bucket.lease()["state"]) == (2, "free")


def test_a_lease_kept_for_a_thread_that_went_away_is_given_back(process: Process, bucket: Bucket) -> None:
    held = process().hold(["main"])
    lock = _lock(held)
    assert lock.beat_or_stop()
    lock.gate.leave()
    assert not lock.beat_or_stop()
    assert bucket.lease()["state"] == "free"


def test_the_timer_renews_by_itself(bucket: Bucket) -> None:
    renewed = threading.Event()
    locks = BranchLocks(bucket, ROOT, ttl=0.03, table=LockTable())
    with locks.hold(["main"]):
        bucket.observe = lambda op, uri: renewed.set() if op == "write_text_if_match" else None
        assert renewed.wait(30)


def test_a_put_that_landed_although_it_was_reported_refused_counts(process: Process, bucket: Bucket) -> None:
    locks = process()
    with locks.hold(["main"]):
        pass
    bucket.lose_next_answer = "refused"
    with locks.hold(["main"]) as held:
        assert bucket.lease()["epoch"] == 2
        bucket.lose_next_answer = "refused"
        _lock(held).renew()
        held.require()


def test_a_lost_answer_to_taking_the_lease_delays_no_thread_of_this_process(
    process: Process, bucket: Bucket
) -> None:
    locks = process()
    with locks.hold(["main"]):
        pass
    bucket.lose_next_answer = "broken"
    with pytest.raises(errors.StorageFailure):
        locks.hold(["main"])
    assert bucket.lease()["state"] == "held"
    assert process().try_acquire(["main"]) is None
    with locks.hold(["main"], wait=0) as held:
        held.require()


def test_a_lost_answer_to_a_renewal_loses_nothing(process: Process, bucket: Bucket) -> None:
    with process().hold(["main"]) as held:
        bucket.lose_next_answer = "broken"
        assert _lock(held).beat_or_stop()
        assert bucket.lease()["beat"] == 1
        # What is sent next is another text than the one that landed.
        held.mark_deleted("main")
        assert (bucket.lease()["beat"], bucket.lease()["retired"]) == (2, True)
        held.require()


def test_a_lost_answer_to_a_release_is_healed_by_the_next_operation(process: Process, bucket: Bucket) -> None:
    locks = process()
    held = locks.hold(["main"])
    bucket.lose_next_answer = "broken"
    held.release()
    with locks.hold(["main"], wait=0) as again:
        again.require()


def test_a_lease_taken_by_somebody_else_cannot_be_renewed(
    process: Process, bucket: Bucket, clock: Clock
) -> None:
    stopped = process().hold(["main"])
    taken = process().hold(["main"], wait=40.0)
    _lock(stopped).renew()
    assert not stopped.still_held()
    with pytest.raises(errors.LockLost):
        stopped.mark_deleted("main")
    taken.require()
    assert bucket.lease()["epoch"] == 2


def test_the_name_of_a_deleted_branch_is_not_reused_for_ten_minutes(process: Process, bucket: Bucket) -> None:
    with process().hold(["main"]) as held:
        held.mark_deleted("main")
    assert bucket.lease()["state"] == "deleted"
    bucket.age = 598.0
    with pytest.raises(errors.Unavailable, match=r"'main' was deleted 59[89] s ago") as refusal:
        process().hold(["main"], creating=["main"])
    assert refusal.value.retryable
    bucket.age = 601.0
    with process().hold(["main"], creating=["main"]):
        pass
    assert bucket.lease()["state"] == "free"


def test_tidying_up_after_a_deleted_branch_does_not_free_its_name(process: Process, bucket: Bucket) -> None:
    with process().hold(["main"]) as held:
        held.mark_deleted("main")
    with process().hold(["main"], wait=0):
        assert bucket.lease()["state"] == "held"
    assert bucket.lease()["state"] == "deleted"
    with pytest.raises(errors.Unavailable):
        process().hold(["main"], creating=["main"], wait=0)


def test_a_crash_after_marking_does_not_free_the_name(process: Process, bucket: Bucket, clock: Clock) -> None:
    process().hold(["main"]).mark_deleted("main")
    with pytest.raises(errors.Unavailable, match="was deleted"):
        process().hold(["main"], creating=["main"], wait=40.0)
    with process().hold(["main"], wait=40.0):
        pass
    assert bucket.lease()["state"] == "deleted"


def test_a_thread_that_waits_to_reuse_a_name_deleted_meanwhile_is_refused(
    process: Process, bucket: Bucket
) -> None:
    locks = process()
    refusals: list[errors.OmnigraphError] = []

    def create() -> None:
        with pytest.raises(errors.Unavailable) as refusal:
            locks.hold(["main"], creating=["main"], wait=60.0)
        refusals.append(refusal.value)

    creator = threading.Thread(target=create)
    with locks.hold(["main"]) as held:
        creator.start()
        while _waiting(locks) < 1:
            os.sched_yield()
        held.mark_deleted("main")
    creator.join()
    assert "was deleted" in refusals[0].message
    assert bucket.lease()["state"] == "deleted"


def test_a_lease_of_an_unknown_writer_is_reported_not_replaced(process: Process, bucket: Bucket) -> None:
    bucket.write_text(LEASE, '{"epoch": "x"}')
    with pytest.raises(errors.CorruptGraph) as failure:
        process().hold(["main"])
    assert failure.value.object_id == LEASE.uri
    assert bucket.read_text(LEASE) == '{"epoch": "x"}'


def test_a_store_that_fails_while_waiting_is_not_mistaken_for_a_free_lease(
    process: Process, bucket: Bucket
) -> None:
    locks = process()

    def broken(op: str, uri: str) -> None:
        raise errors.StorageFailure("no answer", kind="Transient", uri=uri)

    bucket.observe = broken
    with pytest.raises(errors.StorageFailure):
        locks.hold(["main"])
    bucket.observe = None
    with locks.hold(["main"], wait=0):
        pass
