"""The turn among the threads of one process: first come, first served, and none slips in between."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from omnigraph.storage.lock_table import Gate


def until_queued(gate: Gate, count: int) -> None:
    while gate.waiting() < count:
        os.sched_yield()


def test_threads_enter_in_the_order_they_came() -> None:
    gate, order = Gate(), list[int]()
    assert gate.enter(0)

    def work(number: int) -> None:
        assert gate.enter(60)
        order.append(number)
        gate.leave()

    crew = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for place, one in enumerate(crew):
        one.start()
        until_queued(gate, place + 1)
    gate.leave()
    for one in crew:
        one.join()
    assert order == list(range(8))
    assert gate.idle()


@pytest.mark.parametrize("leave", [Gate.leave, Gate.leave_to_waiter])
def test_a_newcomer_does_not_get_ahead_of_a_thread_that_waits(leave: Callable[[Gate], None]) -> None:
    gate, entered, go = Gate(), threading.Event(), threading.Event()
    assert gate.enter(0)

    def work() -> None:
        assert gate.enter(60)
        entered.set()
        go.wait()
        gate.leave()

    waiter = threading.Thread(target=work)
    waiter.start()
    until_queued(gate, 1)
    leave(gate)
    assert not gate.enter(0), "the turn was handed over, whether or not its thread woke up"
    assert entered.wait(60)
    go.set()
    waiter.join()
    assert gate.enter(0)


def test_a_thread_that_gives_up_leaves_the_queue_to_the_others() -> None:
    gate, entered = Gate(), threading.Event()
    assert gate.enter(0)
    assert not gate.enter(0.001)
    assert gate.waiting() == 0

    def work() -> None:
        assert gate.enter(60)
        entered.set()

    waiter = threading.Thread(target=work)
    waiter.start()
    until_queued(gate, 1)
    assert not gate.enter(0.001)
    gate.leave()
    waiter.join()
    assert entered.is_set()
    assert not gate.idle()


def test_there_is_no_successor_when_no_thread_waits() -> None:
    gate = Gate()
    assert gate.enter(0)
    assert not gate.leave_to_waiter()
    assert not gate.idle()
    gate.leave()
    assert gate.idle()


class Interrupted(threading.Event):
    """A turn whose wait is broken off, as Control-C does; with `late` just after the turn came."""

    late: Gate | None = None

    def wait(self, timeout: float | None = None) -> bool:
        if self.late is not None:
            self.late.leave()
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True], ids=["before its turn", "as its turn came"])
def test_an_interrupted_thread_keeps_no_turn(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    assert gate.enter(0)
    monkeypatch.setattr(Interrupted, "late", gate if late else None)
    monkeypatch.setattr("omnigraph.storage.lock_table.threading.Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        gate.enter(60)
    assert gate.waiting() == 0
    assert gate.idle() == late
