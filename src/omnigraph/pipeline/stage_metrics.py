"""What Spark counted of the tasks of its stages, from the status store behind its web page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from omnigraph.engine.tasks.runner import TaskMetrics


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
