"""Branch locks between real processes that are stopped, killed and forked."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage.folder import LOCK_FOLDER, LOCK_SUFFIX
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import LockTable
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.record_lock import RecordLock
from omnigraph.storage.stores import open_store
from tests.python_process import PIPE, Python

_WORKER = Path(__file__).with_name("lock_worker.py")
_LONG = 60.0
_SHORT = 0.8
"""The only way to see a lease of another process expire is to wait for it."""


class Worker:
    """A process that takes locks on command."""

    def __init__(self, root: Location, life: int, ttl: float) -> None:
        self._process = Python(
            str(_WORKER),
            root.uri,
            str(ttl),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=[life],
            env={**os.environ, "CHILD_LIFE": str(life)},
        )
        self.pid = self._process.pid
        assert self.answer() == "ready"

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        return line.strip()

    def do(self, command: str) -> str:
        self.send(command)
        return self.answer()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            # Wait until it has really stopped.
            self._process.wait_until_stopped()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


Start = Callable[..., Worker]


@pytest.fixture
def worker(shared_root: Location) -> Iterator[Start]:
    """Starts workers; they and their children end with the test."""
    life, end_of_life = os.pipe()
    started: list[Worker] = []

    def start(ttl: float = _LONG) -> Worker:
        started.append(Worker(shared_root, life, ttl))
        return started[-1]

    yield start
    for each in started:
        each.end()
    os.close(end_of_life)
    os.close(life)


@pytest.fixture
def locks(shared_root: Location) -> BranchLocks:
    return BranchLocks(open_store(shared_root), shared_root, ttl=_LONG)


def test_a_busy_branch_names_its_writer_and_the_operation(worker: Start, locks: BranchLocks) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    with pytest.raises(errors.WriterBusy) as busy:
        locks.hold(["main"], wait=0)
    assert f"process {owner.pid} on " in busy.value.owner
    assert busy.value.operation_id == f"op-{owner.pid}"
    assert busy.value.branch == "main"
    assert locks.try_acquire(["main"]) is None
    with locks.hold(["work"], wait=0):
        pass
    assert owner.do("release") == "done"
    with locks.hold(["main"], wait=0) as held:
        held.require()
        assert owner.do("hold 0 main") == "writer_busy"


def test_a_busy_branch_is_recognised_without_disturbing_its_writer(worker: Start, locks: BranchLocks) -> None:
    owner = worker()
    assert locks.read_status("main", wall=time.time()) is None
    assert owner.do("hold 0 main") == "done"
    owner.signal(signal.SIGSTOP)
    for _ in range(2):
        busy = locks.read_status("main", wall=time.time())
        assert busy is not None
        assert busy.holder is not None
        assert (busy.holder.owner.pid, busy.holder.operation_id) == (owner.pid, f"op-{owner.pid}")
    assert locks.read_status("work", wall=time.time()) is None
    owner.signal(signal.SIGCONT)
    assert owner.do("require") == "done"
    assert owner.do("release") == "done"
    assert locks.read_status("main", wall=time.time()) is None


def test_a_killed_writer_loses_its_lock(worker: Start, locks: BranchLocks) -> None:
    owner = worker(_SHORT)
    assert owner.do("hold 0 main") == "done"
    owner.kill()
    with locks.hold(["main"], wait=30) as held:
        held.require()


def test_a_waiting_process_gets_the_lock_when_it_is_given_back(worker: Start, locks: BranchLocks) -> None:
    owner, waiter = worker(), worker()
    assert owner.do("hold 0 main") == "done"
    waiter.send("hold 60 main")
    assert owner.do("release") == "done"
    assert waiter.answer() == "done"
    assert waiter.do("require") == "done"


@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_process_that_waits_is_not_overtaken_by_the_one_that_had_the_lock(
    worker: Start, tmp_path: Path
) -> None:
    root = Location.parse(tmp_path / "graph")
    owner = worker()
    answers = [owner.do("hold 0 main")]

    def meanwhile(_: float) -> None:
        answers.extend(owner.do(command) for command in ("release", "hold 0 main"))

    with BranchLocks(open_store(root), root, pause=meanwhile).hold(["main"], wait=_LONG):
        assert answers == ["done", "done", "writer_busy"]
    assert owner.do("hold 0 main") == "done"


@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_waiting_process_that_does_not_go_on_delays_no_other(worker: Start, tmp_path: Path) -> None:
    root = Location.parse(tmp_path / "graph")
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    stopped = RecordLock(root.path / LOCK_FOLDER / f"main{LOCK_SUFFIX}", LockTable())
    assert stopped.gate.enter(0)
    assert stopped.attempt("op", creating=False, first=True) is not None
    assert owner.do("release") == "done"
    assert owner.do("hold 0 main") == "writer_busy"
    assert owner.do(f"hold {_LONG} main") == "done"
    stopped.abandon()


def test_a_forked_child_has_no_lock_and_takes_none_away(worker: Start, locks: BranchLocks) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    child, state = owner.do("fork").split()
    assert state == "none"
    os.kill(int(child), signal.SIGKILL)
    assert locks.try_acquire(["main"]) is None
    assert owner.do("require") == "done"


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(worker: Start, locks: BranchLocks) -> None:
    owner = worker(_SHORT)
    assert owner.do("hold 0 main") == "done"
    child, _ = owner.do("fork").split()
    owner.kill()
    with locks.hold(["main"], wait=30) as held:
        held.require()
        os.kill(int(child), 0)


def test_no_increment_under_the_lock_is_lost(worker: Start, shared_root: Location) -> None:
    store = open_store(shared_root)
    store.write_text(shared_root / "number", "0")
    counters = [worker() for _ in range(3)]
    for counter in counters:
        counter.send("count 10")
    assert [counter.answer() for counter in counters] == ["done"] * 3
    assert store.read_text(shared_root / "number") == "30"


@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_forked_child_can_take_the_lock_after_its_parent(worker: Start) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    assert owner.do("fork-and-hold") == "writer_busy held"


@pytest.mark.s3
@pytest.mark.parametrize("shared_root", ["s3"], indirect=True)
def test_a_child_forked_after_a_bucket_was_used_is_rejected(worker: Start) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    assert owner.do("fork-and-hold") == "storage_failure storage_failure"


@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_lock_on_a_file_that_was_replaced_is_no_lock(
    worker: Start, locks: BranchLocks, shared_root: Location
) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"

    def recreate_the_graph(seconds: float) -> None:
        shutil.rmtree(shared_root.path)
        locks.hold(["main"], wait=0).release()
        owner.kill()

    waiter = BranchLocks(open_store(shared_root), shared_root, pause=recreate_the_graph)
    with pytest.raises(errors.ReadSetChanged, match="lock file"):
        waiter.hold(["main"], wait=60)


@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_stopped_writer_keeps_a_lock_of_the_kernel(worker: Start, locks: BranchLocks) -> None:
    owner = worker()
    assert owner.do("hold 0 main") == "done"
    owner.signal(signal.SIGSTOP)
    with pytest.raises(errors.WriterBusy):
        locks.hold(["main"], wait=0.5)
    owner.signal(signal.SIGCONT)
    assert owner.do("require") == "done"


@pytest.mark.s3
@pytest.mark.parametrize("shared_root", ["s3"], indirect=True)
def test_a_writer_stopped_beyond_its_lease_finds_it_lost(worker: Start, locks: BranchLocks) -> None:
    owner = worker(_SHORT)
    assert owner.do("hold 0 main") == "done"
    owner.signal(signal.SIGSTOP)
    with locks.hold(["main"], wait=30) as held:
        owner.signal(signal.SIGCONT)
        assert owner.do("require") == "lock_lost"
        assert owner.do("release") == "done"
        assert owner.do("hold 0 main") == "writer_busy"
        held.require()
    assert owner.do("hold 10 main") == "done"
