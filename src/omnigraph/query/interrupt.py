"""Run long work in a worker thread, so that the calling thread can stop waiting for it.

A sort or a scan of millions of rows is one call into Arrow, NumPy or Lance, which notices neither Ctrl-C nor
`cancel` nor a timeout. So work on very many rows runs in a worker thread while the caller waits and polls.
Abandoned work runs to the end of that call, or to the query's next check. Its results are dropped, except a
finished column or adjacency, which stays in the cache for the next query. It holds no lock but that of the
one thing it makes; another query that needs the same thing waits the same way and can stop waiting, too. All
other memory is freed when it ends. Callers that keep giving up do not pile up work: see `MAX_ABANDONED`.
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

LONG_WORK_ROWS = 400_000
"""Work on fewer rows is too short to be worth a thread."""
THREAD_NAME = "omnigraph query"
"""The name of worker threads."""
MAX_ABANDONED = 4
"""While this many abandoned tasks still run, no new one starts."""
_POLL_SECONDS = 0.02
"""Seconds between two checks whether the result is still wanted."""


class WaitingQuery:
    """A query whose thread may wait for worker threads."""

    def __init__(self, request: Request, settle: Callable[[], None]) -> None:
        self.request = request
        self._settle = settle
        self._is_abandoned = False

    @property
    def may_stop(self) -> bool:
        """Whether anything can end the wait: only the main thread gets Ctrl-C."""
        limits = self.request.limits
        stoppable = limits.cancel is not None or limits.seconds is not None
        return stoppable or threading.current_thread() is threading.main_thread()

    def settle(self) -> None:
        """Update the cache sizes of what the query used; abandoned work does that when it ends."""
        if not self._is_abandoned:
            self._settle()

    def abandon(self) -> None:
        """Make running work stop at its next check."""
        self._is_abandoned = self.request.abandoned = True

    def settle_abandoned(self) -> None:
        """Update the cache sizes at the end of abandoned work."""
        self._settle()


class _Here(threading.local):
    """The query this thread runs; None where work is not interruptible."""

    asking: WaitingQuery | None = None


_here = _Here()


def make_interruptible(batches: Iterator[Made], asking: WaitingQuery) -> Iterator[Made]:
    """Yield the same items, with the long work for each done in a worker thread."""
    while True:
        before, _here.asking = _here.asking, asking
        try:
            found = next(batches)
        except StopIteration:
            return
        finally:
            _here.asking = before
        yield found


def run_in_worker(rows: float, work: Callable[[], Made]) -> Made:
    """Return what `work` returns; on very many rows a worker thread runs it."""
    if rows < LONG_WORK_ROWS:
        return work()
    asking = _here.asking
    if asking is None or not asking.may_stop:
        return work()
    task = _WorkerTask(work, asking)
    # Not a daemon: those are killed in the middle of a call when the process exits.
    thread = threading.Thread(target=copy_context().run, args=(task.run,), name=THREAD_NAME)
    while len(_abandoned) >= MAX_ABANDONED:
        asking.request.check()
        time.sleep(_POLL_SECONDS)
    try:
        with ctrl_c.postpone_ctrl_c():  # Ctrl-C in there could leave one of Python's own locks behind
            thread.start()
        while not task.ended.wait(_POLL_SECONDS):
            asking.request.check()
    except BaseException:
        task.abandon()
        raise
    return task.result()


def has_abandoned_work() -> bool:
    """Whether a worker thread runs in this process."""
    return any(thread.name == THREAD_NAME for thread in threading.enumerate())


class _WorkerTask(Generic[Made]):
    """One piece of work in a worker thread."""

    def __init__(self, work: Callable[[], Made], asking: WaitingQuery) -> None:
        self.ended = threading.Event()
        self._work: Callable[[], Made] | None = work
        self._asking = asking
        self._made: list[Made] = []
        self._failure: BaseException | None = None
        self._is_begun = False
        self._is_abandoned = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run the work; a failure is raised in the waiting thread, if it still waits."""
        work, self._work = self._work, None
        assert work is not None
        with self._lock:
            self._is_begun = True
            if self._is_abandoned:
                _abandoned.add(self)
        try:
            reach(QUERY_APART)
            made = [work()]
            failure = None
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            made, failure = [], error
        del work
        with self._lock:
            is_abandoned = self._is_abandoned
            if not is_abandoned:
                self._made, self._failure = made, failure
            self.ended.set()
        if is_abandoned:
            _abandoned.discard(self)
            self._asking.settle_abandoned()

    def abandon(self) -> None:
        """Stop waiting for the work."""
        with self._lock:
            if not self.ended.is_set():
                self._is_abandoned = True
                if self._is_begun:  # Ctrl-C may have come before that, or even before there was a thread
                    _abandoned.add(self)
                self._asking.abandon()

    def result(self) -> Made:
        """Return the result, or raise the failure."""
        failure, self._failure = self._failure, None
        if failure is None:
            return self._made.pop()
        try:
            raise failure
        finally:
            del failure  # it holds this frame, which must not hold it


_abandoned: set[_WorkerTask[Any]] = set()
"""Abandoned tasks that still run."""
