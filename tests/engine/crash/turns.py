"""Calls that a writer makes at the same time, made one after another: in their order, or in the reverse.

So the calls of a write have numbers. What is interrupted in the middle of several calls has made any of them;
the two orders leave each of two with the other made, and with the other not made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from omnigraph.storage.concurrency import take_turns
from omnigraph.storage.objects import Recorder

Calls = Sequence[Callable[[], None]]


def in_order(calls: Calls) -> None:
    for call in calls:
        call()


def in_reverse(calls: Calls) -> None:
    for call in reversed(calls):
        call()


def all_in_order(calls: Calls) -> None:
    """Make all calls, as threads do, also when one fails; the first failure is raised then."""
    failures = []
    for call in calls:
        try:
            call()
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)
    if failures:
        raise failures[0]


def all_in_reverse(calls: Calls) -> None:
    all_in_order(calls[::-1])


def turns(*, reverse: bool, dies: bool = True) -> AbstractContextManager[None]:
    """Let what would run at the same time run in turn.

    A writer that `dies` makes no call after the one that fails; one that lives makes them all.
    """
    if dies:
        return take_turns(in_reverse if reverse else in_order)
    return take_turns(all_in_reverse if reverse else all_in_order)


class Groups:
    """Notes which of the recorded calls are made at the same time as others."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.numbers: set[int] = set()

    def run(self, calls: Calls) -> None:
        begin = len(self._recorder.calls)
        in_reverse(calls)
        self.numbers.update(range(begin, len(self._recorder.calls)))
