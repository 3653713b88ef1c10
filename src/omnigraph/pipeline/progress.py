"""Progress, cancellation and cost of a Spark job: one block around each action on a DataFrame."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.tasks.runner import TaskMetrics, add_metrics, collects_metrics
from omnigraph.errors import OmnigraphError, PipelineCancelled
from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.failures import translate_failures
from omnigraph.progress import Stage, begin_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


from collections.abc import Sequence
from typing import Protocol


class NumberedStage(Protocol):
    """One of Spark's stages."""

    @property
    def number(self) -> int: ...
    @property
    def tasks(self) -> int: ...


def stage_metrics(name: str, store: Any, jobs: Iterable[int], stages: Sequence[NumberedStage]) -> TaskMetrics:
    """Return the metrics of some of Spark's stages together; `store` is the one of a SparkContext."""
    # A stage whose output an earlier job left behind is skipped, and has no attempt.
    ran = [attempt for one in stages if (attempt := _last_attempt(store, one.number)) is not None]
    return TaskMetrics(
        name,
        tuple(sorted(jobs)),
        tuple(sorted(one.number for one in stages)),
        sum(one.tasks for one in stages),
        failed_tasks=sum(int(one.numFailedTasks()) for one in ran),
        task_seconds=sum(one.executorRunTime() for one in ran) / 1000,
        garbage_seconds=sum(one.jvmGcTime() for one in ran) / 1000,
        input_rows=sum(int(one.inputRecords()) for one in ran),
        input_bytes=sum(int(one.inputBytes()) for one in ran),
        shuffle_bytes=sum(int(one.shuffleWriteBytes()) for one in ran),
        spilled_bytes=sum(int(one.diskBytesSpilled()) for one in ran),
    )


def _last_attempt(store: Any, number: int) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return store.lastStageAttempt(number)
    except Py4JJavaError as missing:
        if "NoSuchElementException" in str(missing.java_exception.toString()):
            return None
        raise


POLL_SECONDS = 0.2
SECONDS_TO_STOP = 2.5
"""Every two seconds Spark ends the Python processes whose task was cancelled."""


@contextmanager
def watch_stage(spark: SparkSession, stage: str, *, cancel: threading.Event | None = None) -> Iterator[None]:
    """Run the actions of a stage: failures become Omnigraph errors, Ctrl-C and `cancel` stop the tasks.

    Listeners get progress from another thread while an action runs, and the final counts at its end.
    """
    job: _Job = _ConnectJob(spark) if is_connect(spark) else _ClassicJob(spark)
    counts = _TaskCounts(begin_stage(stage))
    job.begin(counts)
    with _defer_interrupt() as interrupt:
        watcher = _Watcher(job, counts, cancel, interrupt)
        watcher.start()
        try:
            with translate_failures(stage):
                yield
        except OmnigraphError as failure:
            if interrupt.pressed:
                # Wait until the task processes are gone, so that what they write can be removed.
                threading.Event().wait(SECONDS_TO_STOP)
                raise KeyboardInterrupt from failure
            if watcher.cancelled:
                raise PipelineCancelled(stage) from failure
            raise
        finally:
            watcher.stop()
            job.end()
    if interrupt.pressed:
        # It was done before it could be stopped.
        raise KeyboardInterrupt
    # The last look may have been before the end, or there was none.
    job.look(counts)
    counts.report_all_done()
    if collects_metrics() and counts.stages:
        with translate_failures(stage):
            add_metrics(job.read_metrics(stage, counts))


@dataclass(frozen=True, slots=True)
class StageState:
    """How far one of Spark's stages is."""

    number: int
    done: int
    tasks: int
    bytes: int = 0
    """What Spark itself has read; tasks that open files report it with their answers."""


class _Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def _defer_interrupt() -> Iterator[_Interrupt]:
    """Record Ctrl-C instead of raising it: the tasks are stopped, and the action then fails.

    An asynchronous exception in the client of a Connect server can leave one of its locks held for ever. A
    second Ctrl-C is raised at once.
    """
    interrupt = _Interrupt()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        # Only the main thread gets signals, and only if the process does not ignore this one.
        yield interrupt
        return

    def note_interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupt.pressed = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note_interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


class _TaskCounts:
    """The tasks of all of Spark's stages; nothing is reported twice, and counts never decrease."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: dict[int, StageState] = {}
        self._done = self._tasks = self._bytes = 0
        self.jobs: set[int] = set()

    @property
    def stages(self) -> list[StageState]:
        return list(self._seen.values())

    def update_tasks(self, stages: Iterable[StageState], jobs: Iterable[int] = ()) -> None:
        self._seen.update({one.number: one for one in stages})
        self.jobs.update(jobs)
        self._report_done(sum(one.done for one in self.stages))

    def report_all_done(self) -> None:
        """All is done."""
        self._report_done(sum(one.tasks for one in self.stages))
        self._stage.end()

    def _report_done(self, done: int) -> None:
        tasks = max(self._tasks, sum(one.tasks for one in self.stages))
        size = max(self._bytes, sum(one.bytes for one in self.stages))
        done = max(self._done, min(done, tasks))
        if (done, tasks, size) != (self._done, self._tasks, self._bytes):
            self._stage.note_spark(self.jobs, self._seen)
            self._stage.expect(tasks - self._tasks)
            self._stage.advance(tasks=done - self._done, size=size - self._bytes)
            self._done, self._tasks, self._bytes = done, tasks, size


class _Job:
    """The actions of one block, as Spark sees them."""

    def begin(self, counts: _TaskCounts) -> None:
        raise NotImplementedError

    def look(self, counts: _TaskCounts) -> None:
        """Report how far it is, where that has to be asked for."""

    def read_metrics(self, stage: str, counts: _TaskCounts) -> TaskMetrics:
        """What the tasks cost, when they are done."""
        raise NotImplementedError

    def cancel(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class _ClassicJob(_Job):
    """Actions in this process's own Spark, kept apart by a job group."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._group = f"omnigraph-{uuid.uuid4().hex}"

    def begin(self, counts: _TaskCounts) -> None:
        self._context.setJobGroup(self._group, "omnigraph", interruptOnCancel=True)

    def look(self, counts: _TaskCounts) -> None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        numbers = {number for job in jobs if job is not None for number in job.stageIds}
        stages = [tracker.getStageInfo(number) for number in sorted(numbers)]
        counts.update_tasks(
            (
                StageState(one.stageId, one.numCompletedTasks, one.numTasks)
                for one in stages
                if one is not None
            ),
            (job.jobId for job in jobs if job is not None),
        )

    def read_metrics(self, stage: str, counts: _TaskCounts) -> TaskMetrics:
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        return stage_metrics(stage, store, counts.jobs, counts.stages)

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

    def begin(self, counts: _TaskCounts) -> None:
        def on_stages(stages: Any, **_: Any) -> None:
            # Handlers get every action of the session; those of other threads are not ours.
            if threading.get_ident() == self._thread:
                counts.update_tasks(
                    StageState(one.stage_id, one.num_completed_tasks, one.num_tasks, one.num_bytes_read)
                    for one in stages or ()
                )

        self._handler = on_stages
        self._spark.addTag(self._tag)
        self._spark.registerProgressHandler(self._handler)

    def read_metrics(self, stage: str, counts: _TaskCounts) -> TaskMetrics:
        """What a server shows of its stages."""
        return TaskMetrics(
            stage,
            (),
            tuple(sorted(one.number for one in counts.stages)),
            sum(one.tasks for one in counts.stages),
            input_bytes=sum(one.bytes for one in counts.stages),
        )

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def end(self) -> None:
        self._spark.removeProgressHandler(self._handler)
        self._spark.removeTag(self._tag)


class _Watcher(threading.Thread):
    """Polls a job until its block ends."""

    def __init__(
        self, job: _Job, counts: _TaskCounts, cancel: threading.Event | None, interrupt: _Interrupt
    ) -> None:
        super().__init__(name="omnigraph-progress", daemon=True)
        self._job = job
        self._counts = counts
        self._cancel = cancel
        self._interrupt = interrupt
        self._ended = threading.Event()
        self.cancelled = False

    def run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.cancelled |= self._cancel is not None and self._cancel.is_set()
            if self.cancelled or self._interrupt.pressed:
                # Repeated, because an action that begins later is not stopped by the first call.
                self._job.cancel()
            self._job.look(self._counts)

    def stop(self) -> None:
        self._ended.set()
        self.join()
