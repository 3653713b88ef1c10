"""How far a job is, and stopping it: one block around each action on a DataFrame."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmnigraphError, PipelineCancelled
from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.failures import explained
from omnigraph.progress import Stage, begin_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_STOP = 2.5
"""Spark looks every two seconds whether a Python process works for nobody any more, and then ends it."""


@contextmanager
def watched(spark: SparkSession, stage: str, *, cancel: threading.Event | None = None) -> Iterator[None]:
    """Run the actions of a stage: failures become errors of ours, Ctrl-C and `cancel` stop the tasks.

    Who listens hears of it from another thread while an action runs, and once more with the last figures.
    """
    job: _Job = _ConnectJob(spark) if is_connect(spark) else _ClassicJob(spark)
    told = _Told(begin_stage(stage))
    job.begin(told)
    with _ctrl_c() as interrupt:
        looks = _Looks(job, told, cancel, interrupt)
        looks.start()
        try:
            with explained(stage):
                yield
        except OmnigraphError as failure:
            if interrupt.heard:
                # Until the processes of tasks are gone: what they write can then be removed for good.
                threading.Event().wait(SECONDS_TO_STOP)
                raise KeyboardInterrupt from failure
            if looks.cancelled:
                raise PipelineCancelled(stage) from failure
            raise
        finally:
            looks.stop()
            job.end()
    if interrupt.heard:
        # It was done before it could be stopped.
        raise KeyboardInterrupt
    # The last look may have been before the end, or there was none.
    job.look(told)
    told.last()


class _Interrupt:
    """Whether Ctrl-C was pressed."""

    heard = False


@contextmanager
def _ctrl_c() -> Iterator[_Interrupt]:
    """Note Ctrl-C instead of raising it: the tasks are stopped, and the action then fails by itself.

    An exception out of nowhere in the client of a Connect server can leave a lock of it closed for ever. A
    second Ctrl-C is raised at once.
    """
    interrupt = _Interrupt()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        # Only the main thread hears of it, and only unless the process was told to ignore it.
        yield interrupt
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        interrupt.heard = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


class _Told:
    """What was reported of all of Spark's stages; nothing is reported twice, and figures never go back."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: dict[int, tuple[int, int]] = {}
        self._done = self._tasks = 0

    def tasks(self, stages: Iterable[tuple[int, int, int]]) -> None:
        for number, done, total in stages:
            self._seen[number] = (done, total)
        self._report(sum(done for done, _ in self._seen.values()))

    def last(self) -> None:
        """All is done."""
        self._report(sum(total for _, total in self._seen.values()))
        self._stage.end()

    def _report(self, done: int) -> None:
        tasks = max(self._tasks, sum(total for _, total in self._seen.values()))
        done = max(self._done, min(done, tasks))
        if (done, tasks) != (self._done, self._tasks):
            self._stage.expect(tasks - self._tasks)
            self._stage.advance(tasks=done - self._done)
            self._done, self._tasks = done, tasks


class _Job:
    """What Spark knows of the actions of one block."""

    def begin(self, told: _Told) -> None:
        raise NotImplementedError

    def look(self, told: _Told) -> None:
        """Report how far it is, where that has to be asked for."""

    def cancel(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class _ClassicJob(_Job):
    """Actions in this process's own Spark, kept apart by a job group."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._group = f"omnigraph-{uuid.uuid4().hex}"

    def begin(self, told: _Told) -> None:
        self._context.setJobGroup(self._group, "omnigraph", interruptOnCancel=True)

    def look(self, told: _Told) -> None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        numbers = {number for job in jobs if job is not None for number in job.stageIds}
        stages = [tracker.getStageInfo(number) for number in sorted(numbers)]
        told.tasks((one.stageId, one.numCompletedTasks, one.numTasks) for one in stages if one is not None)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def end(self) -> None:
        # None is not among the declared types, but it is what forgets a property of the thread.
        forget: Any = self._context.setLocalProperty
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            forget(name, None)


class _ConnectJob(_Job):
    """Actions on a Connect server, kept apart by a tag."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"omnigraph-{uuid.uuid4().hex}"
        self._thread = threading.get_ident()
        self._handler: Any = None

    def begin(self, told: _Told) -> None:
        def on_stages(stages: Any, **_: Any) -> None:
            # Handlers hear of every action of the session; those of other threads are not ours.
            if threading.get_ident() == self._thread:
                told.tasks((one.stage_id, one.num_completed_tasks, one.num_tasks) for one in stages or ())

        self._handler = on_stages
        self._spark.addTag(self._tag)
        self._spark.registerProgressHandler(self._handler)

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def end(self) -> None:
        self._spark.removeProgressHandler(self._handler)
        self._spark.removeTag(self._tag)


class _Looks(threading.Thread):
    """Looks at a job now and then until its block ends."""

    def __init__(self, job: _Job, told: _Told, cancel: threading.Event | None, interrupt: _Interrupt) -> None:
        super().__init__(name="omnigraph-progress", daemon=True)
        self._job = job
        self._told = told
        self._cancel = cancel
        self._interrupt = interrupt
        self._ended = threading.Event()
        self.cancelled = False

    def run(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            self.cancelled |= self._cancel is not None and self._cancel.is_set()
            if self.cancelled or self._interrupt.heard:
                # Again at each look: an action that begins after the first would not be stopped by it.
                self._job.cancel()
            self._job.look(self._told)

    def stop(self) -> None:
        self._ended.set()
        self.join()
