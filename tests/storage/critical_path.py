"""How many requests of an operation follow one another: those that are made at the same time count once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from omnigraph.storage.concurrency import take_turns
from tests.storage.conftest import ask_s3


class CriticalPath:
    """Counts the requests of the longest chain; all calls are made in turn, so that the number is stable.

    Requests that Lance makes at the same time within one call are counted one by one: it decides that itself.
    """

    def __init__(self) -> None:
        self.length = 0
        self._counted = 0

    def advance(self) -> int:
        """Add the requests that came since it was asked last; how long the chain is by now."""
        count = ask_s3("count")
        self.length += count - self._counted
        self._counted = count
        return self.length

    def run_in_turn(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that begin together: the chain goes on after the longest."""
        begin, ends = self.advance(), []
        for call in calls:
            self.length = begin
            call()
            ends.append(self.advance())
        self.length = max(ends)


@contextmanager
def measure_critical_path() -> Iterator[CriticalPath]:
    """Measure the requests of a block, on a server that no one else uses; `length` is final afterwards."""
    path = CriticalPath()
    ask_s3("record")
    with take_turns(path.run_in_turn):
        yield path
    path.advance()
    ask_s3("requests")
