"""Long work beside the thread that asked for it, which stops waiting as soon as nobody wants the answer.

A sort or a scan of millions of rows is one call into Arrow, NumPy or Lance, which hears neither Ctrl-C nor
`cancel` nor that the time is up. So work on very many rows is done by a thread made for it, while the one
that asked waits and looks. What is left behind goes on to the end of that call, or to where the query next
asks whether to go on. Nobody sees any of it, but for a column or an adjacency that it finished: that is kept
for the next query, inside the budget. It holds no lock but that of the one thing it makes; who needs that
very thing waits for it in the same way, and may stop waiting, too. All else it took is freed when it ends.
Who asks again and again and never waits does not pile up such work: of very much, none is begun.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from omnigraph import ctrl_c
from omnigraph.failpoints import QUERY_APART, reach
from omnigraph.query.request import Request

Made = TypeVar("Made")

LONG = 400_000
"""Work on fewer rows is over before anybody could wait for it, and not worth a thread."""
NAME = "omnigraph query"
"""What threads are called that do such work."""
MOST_LEFT = 4
"""While so much work goes on that nobody waits for, no other is begun."""
_LOOK = 0.02
"""Seconds between two looks whether the answer is still wanted."""


class Asking:
    """A query, and the thread that waits for its answer."""

    def __init__(self, request: Request, settle: Callable[[], None]) -> None:
        self.request = request
        self._settle = settle
        self._left = False

    @property
    def may_stop(self) -> bool:
        """Whether anything can end the waiting: Ctrl-C is heard by one thread only."""
        limits = self.request.limits
        stoppable = limits.cancel is not None or limits.seconds is not None
        return stoppable or threading.current_thread() is threading.main_thread()

    def settle(self) -> None:
        """Put in order what the query shares with others; work that was left does that when it ends."""
        if not self._left:
            self._settle()

    def leave(self) -> None:
        """Have work that goes on end where it next asks."""
        self._left = self.request.left = True

    def settle_after_leaving(self) -> None:
        """The same at the end of work that was left."""
        self._settle()


class _Here(threading.local):
    """Whose query this thread runs; None in a thread that may take its time."""

    asking: Asking | None = None


_here = _Here()


def promptly(batches: Iterator[Made], asking: Asking) -> Iterator[Made]:
    """The same items, with the long work for each done apart from the thread that asks for it."""
    while True:
        before, _here.asking = _here.asking, asking
        try:
            found = next(batches)
        except StopIteration:
            return
        finally:
            _here.asking = before
        yield found


def apart(rows: float, work: Callable[[], Made]) -> Made:
    """What the work makes; on very many rows another thread does it, so that this one can stop waiting."""
    if rows < LONG:
        return work()
    asking = _here.asking
    if asking is None or not asking.may_stop:
        return work()
    beside = _Apart(work, asking)
    # No daemon: at the end of the process those are torn out of whatever they are in.
    thread = threading.Thread(target=copy_context().run, args=(beside.run,), name=NAME)
    while len(_left) >= MOST_LEFT:
        asking.request.check()
        time.sleep(_LOOK)
    try:
        with ctrl_c.postponed():  # inside of it Ctrl-C could leave a lock of Python's own behind
            thread.start()
        while not beside.ended.wait(_LOOK):
            asking.request.check()
    except BaseException:
        beside.leave()
        raise
    return beside.outcome()


def is_anything_left() -> bool:
    """Whether such work goes on in this process."""
    return any(thread.name == NAME for thread in threading.enumerate())


class _Apart(Generic[Made]):
    """Work that another thread does."""

    def __init__(self, work: Callable[[], Made], asking: Asking) -> None:
        self.ended = threading.Event()
        self._work: Callable[[], Made] | None = work
        self._asking = asking
        self._made: list[Made] = []
        self._failure: BaseException | None = None
        self._is_begun = False
        self._is_left = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Do it; whatever fails is told to whoever waits, if anybody does."""
        work, self._work = self._work, None
        assert work is not None
        with self._lock:
            self._is_begun = True
            if self._is_left:
                _left.add(self)
        try:
            reach(QUERY_APART)
            made = [work()]
            failure = None
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            made, failure = [], error
        del work
        with self._lock:
            is_left = self._is_left
            if not is_left:
                self._made, self._failure = made, failure
            self.ended.set()
        if is_left:
            _left.discard(self)
            self._asking.settle_after_leaving()

    def leave(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            if not self.ended.is_set():
                self._is_left = True
                if self._is_begun:  # Ctrl-C may have come before that, or even before there was a thread
                    _left.add(self)
                self._asking.leave()

    def outcome(self) -> Made:
        """What came of it."""
        failure, self._failure = self._failure, None
        if failure is None:
            return self._made.pop()
        try:
            raise failure
        finally:
            del failure  # it holds this frame, which must not hold it


_left: set[_Apart[Any]] = set()
"""Work that goes on although nobody waits for it."""
