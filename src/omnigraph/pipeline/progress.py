"""How far a job is, and stopping it: one block around each action on a DataFrame."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmnigraphError, PipelineCancelled
from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tasks of a stage of ours are done, over all of Spark's stages it takes."""

    stage: str
    tasks_done: int
    tasks: int


OnProgress = Callable[[Progress], None]


@contextmanager
def watched(
    spark: SparkSession,
    stage: str,
    *,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Iterator[None]:
    """Run the actions of a stage: failures become errors of ours, Ctrl-C and `cancel` stop the tasks.

    `on_progress` is called from another thread while an action runs, and once more with the last figures.
    """
    job: _Job = _ConnectJob(spark) if is_connect(spark) else _ClassicJob(spark)
    told = _Told(stage, on_progress)
    job.begin(told)
    looks = _Looks(job, told, cancel)
    looks.start()
    try:
        with explained(stage):
            yield
    except KeyboardInterrupt:
        job.cancel()
        raise
    except OmnigraphError as failure:
        if _interrupted(failure):
            raise KeyboardInterrupt from failure
        if looks.cancelled:
            raise PipelineCancelled(stage) from failure
        raise
    finally:
        looks.stop()
        job.end()
    # The last look may have been before the end, or there was none.
    job.look(told)
    told.last()


def _interrupted(failure: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: Spark then stops its jobs itself and reports what came of that."""
    while failure is not None and not isinstance(failure, KeyboardInterrupt):
        failure = failure.__cause__ or failure.__context__
    return failure is not None


class _Told:
    """What was reported last; nothing is reported twice, and figures never go back."""

    def __init__(self, stage: str, on_progress: OnProgress | None) -> None:
        self._stage = stage
        self._on_progress = on_progress
        self._seen: dict[int, tuple[int, int]] = {}
        self._reported: Progress | None = None

    def tasks(self, stages: Iterable[tuple[int, int, int]]) -> None:
        for number, done, total in stages:
            self._seen[number] = (done, total)
        self._report(sum(done for done, _ in self._seen.values()))

    def last(self) -> None:
        """All is done."""
        self._report(sum(total for _, total in self._seen.values()))

    def _report(self, done: int) -> None:
        tasks = sum(total for _, total in self._seen.values())
        now = Progress(self._stage, min(done, tasks), tasks)
        if self._on_progress is not None and tasks and now != self._reported:
            self._reported = now
            self._on_progress(now)


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

    def __init__(self, job: _Job, told: _Told, cancel: threading.Event | None) -> None:
        super().__init__(name="omnigraph-progress", daemon=True)
        self._job = job
        self._told = told
        self._cancel = cancel
        self._ended = threading.Event()
        self.cancelled = False

    def run(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            if self._cancel is not None and self._cancel.is_set():
                self.cancelled = True
                # Again at each look: an action that begins after the first would not be stopped by it.
                self._job.cancel()
            self._job.look(self._told)

    def stop(self) -> None:
        self._ended.set()
        self.join()
