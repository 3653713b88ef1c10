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


def turns(*, reverse: bool) -> AbstractContextManager[None]:
    """Let what would run at the same time run in turn."""
    return take_turns(in_reverse if reverse else in_order)


class Groups:
    """Notes which of the recorded calls are made at the same time as others."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.numbers: set[int] = set()

    def run(self, calls: Calls) -> None:
        begin = len(self._recorder.calls)
        in_reverse(calls)
        self.numbers.update(range(begin, len(self._recorder.calls)))
