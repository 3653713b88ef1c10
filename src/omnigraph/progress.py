"""Report the progress of long operations to a listener.

An operation opens a `stage` and adds what is done; a caller sets a listener around the call, as in
`with progress_to(show): graph.optimize()`. Neither knows the other. The listener always gets a `Progress`,
whatever the operation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

from omnigraph.deferred_dataclass import dataclass


class ProgressEvent(StrEnum):
    """What happened to a stage."""

    BEGUN = "begun"
    PROGRESS = "progress"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage is."""

    stage: str
    event: ProgressEvent = ProgressEvent.PROGRESS
    tasks_done: int = 0
    tasks: int | None = None
    """How many there are; None where that is unknown before the end."""
    rows: int = 0
    all_rows: int | None = None
    bytes: int = 0
    all_bytes: int | None = None
    seconds: float = 0.0
    """Since the stage began."""
    spark_jobs: tuple[int, ...] = ()
    """The numbers of its jobs on Spark, as in Spark's event log; a Connect server does not show them."""
    spark_stages: tuple[int, ...] = ()
    """The numbers of its stages on Spark."""

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1; None where that is not known."""
        known = ((self.tasks_done, self.tasks), (self.rows, self.all_rows), (self.bytes, self.all_bytes))
        # Some figures come only with the answers of tasks, so the others are ahead of them.
        shares = [min(1.0, done / total) for done, total in known if total]
        return max(shares, default=None)

    @property
    def rows_per_second(self) -> float:
        """How fast rows go by."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """How fast bytes go by."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long it takes from here if it goes on like this; None where that is not known."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def to_json(self) -> dict[str, Any]:
        """The value as scripts read it."""
        left = self.seconds_left
        return {
            "event": self.event.value,
            "stage": self.stage,
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            "rows": self.rows,
            "total_rows": self.all_rows,
            "bytes": self.bytes,
            "total_bytes": self.all_bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_second),
            "bytes_per_second": round(self.bytes_per_second),
            "seconds_left": None if left is None else round(left, 1),
            "spark": {"jobs": list(self.spark_jobs), "stages": list(self.spark_stages)}
            if self.spark_stages
            else None,
        }


ProgressListener = Callable[[Progress], None]
"""Called with progress, in the thread that makes it; an exception ends the operation."""

_listener: ContextVar[ProgressListener | None] = ContextVar("omnigraph_progress", default=None)
_outer: ContextVar[Stage | None] = ContextVar("omnigraph_stage", default=None)


@contextmanager
def progress_to(listener: ProgressListener | None) -> Iterator[None]:
    """Send the progress of everything in the block to a listener; None changes nothing."""
    if listener is None:
        yield
        return
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


class Stage:
    """A part of some work; any thread may add to it."""

    def __init__(
        self,
        name: str,
        listener: ProgressListener | None,
        tasks: int | None,
        rows: int | None,
        size: int | None,
    ) -> None:
        self._name = name
        self._listener = listener
        self._tasks = tasks
        self._all_rows, self._all_bytes = rows, size
        self._done = self._rows = self._bytes = 0
        self._jobs: set[int] = set()
        self._stages: set[int] = set()
        self._begun = time.monotonic()
        self._mutex = threading.RLock()
        self._report(ProgressEvent.BEGUN)

    def advance(self, *, tasks: int = 0, rows: int = 0, size: int = 0) -> None:
        """Add what was done since the last time."""
        with self._mutex:
            self._done += tasks
            self._rows += rows
            self._bytes += size
            self._report(ProgressEvent.PROGRESS)

    def expect(self, tasks: int) -> None:
        """Add tasks to be done; they are reported with the next progress."""
        with self._mutex:
            if self._tasks is not None:
                self._tasks += tasks

    def note_spark(self, jobs: Iterable[int], stages: Iterable[int]) -> None:
        """Add numbers of jobs and stages on Spark; they are reported with the next progress."""
        with self._mutex:
            self._jobs.update(jobs)
            self._stages.update(stages)

    def end(self) -> None:
        """All of it is done."""
        self._report(ProgressEvent.ENDED)

    def _report(self, event: ProgressEvent) -> None:
        if self._listener is None:
            return
        with self._mutex:
            now = Progress(
                self._name,
                event,
                self._done,
                self._tasks,
                self._rows,
                self._all_rows,
                self._bytes,
                self._all_bytes,
                time.monotonic() - self._begun,
                tuple(sorted(self._jobs)),
                tuple(sorted(self._stages)),
            )
            self._listener(now)


class _Part(Stage):
    """A stage within another one: it adds to that one, and is not reported separately."""

    def __init__(self, whole: Stage, tasks: int | None) -> None:
        self._whole = whole
        whole.expect(tasks or 0)

    def advance(self, *, tasks: int = 0, rows: int = 0, size: int = 0) -> None:
        self._whole.advance(tasks=tasks, rows=rows, size=size)

    def expect(self, tasks: int) -> None:
        self._whole.expect(tasks)

    def note_spark(self, jobs: Iterable[int], stages: Iterable[int]) -> None:
        self._whole.note_spark(jobs, stages)

    def end(self) -> None:
        """The whole goes on."""


def begin_stage(
    name: str, *, tasks: int | None = 0, rows: int | None = None, size: int | None = None
) -> Stage:
    """Begin a stage; within an open stage it becomes a part of that one.

    For callers that cannot use the `stage` block; a stage that fails is simply never ended.
    """
    whole = _outer.get()
    return _Part(whole, tasks) if whole is not None else Stage(name, _listener.get(), tasks, rows, size)


@contextmanager
def stage(
    name: str, *, tasks: int | None = 0, rows: int | None = None, size: int | None = None
) -> Iterator[Stage]:
    """Report a block as one stage of so many tasks, rows and bytes, where they are known.

    Stages begun within it add their tasks to it. With `tasks=None` tasks are counted, and their total is
    unknown.
    """
    begun = begin_stage(name, tasks=tasks, rows=rows, size=size)
    before = _outer.set(begun)
    try:
        yield begun
    finally:
        _outer.reset(before)
    begun.end()
