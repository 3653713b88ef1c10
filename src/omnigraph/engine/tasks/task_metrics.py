"""What the tasks of a stage cost, for the receipt of a load or of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The tasks of one stage, as Spark counted them; None where it does not tell."""

    stage: str
    """As progress calls it."""
    spark_jobs: tuple[int, ...]
    """Spark's numbers, as in its event log; a Connect server shows none of its jobs."""
    spark_stages: tuple[int, ...]
    tasks: int
    failed_tasks: int | None = None
    task_seconds: float | None = None
    """Of all tasks together."""
    garbage_seconds: float | None = None
    """The part of it that the JVM spent on garbage collection."""
    input_rows: int | None = None
    """Rows that Spark itself read; those that our tasks read from files are in the stages of a load."""
    input_bytes: int | None = None
    shuffle_bytes: int | None = None
    spilled_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The value as scripts read it."""
        seconds = {"task_seconds": self.task_seconds, "garbage_seconds": self.garbage_seconds}
        return {
            "stage": self.stage,
            "spark_jobs": list(self.spark_jobs),
            "spark_stages": list(self.spark_stages),
            "tasks": self.tasks,
            "failed_tasks": self.failed_tasks,
            **{name: None if value is None else round(value, 3) for name, value in seconds.items()},
            "input_rows": self.input_rows,
            "input_bytes": self.input_bytes,
            "shuffle_bytes": self.shuffle_bytes,
            "spilled_bytes": self.spilled_bytes,
        }


_collected: ContextVar[list[TaskMetrics] | None] = ContextVar("omnigraph_task_metrics", default=None)


@contextmanager
def collect_metrics() -> Iterator[list[TaskMetrics]]:
    """Collect the metrics of all stages in the block; a block around it gets them, too."""
    outer, found = _collected.get(), list[TaskMetrics]()
    before = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(before)
        if outer is not None:
            outer += found


def collects_metrics() -> bool:
    """Whether anything collects metrics: to ask Spark for them takes a while."""
    return _collected.get() is not None


def add_metrics(metrics: TaskMetrics) -> None:
    """Add the metrics of a stage that is over."""
    found = _collected.get()
    if found is not None:
        found.append(metrics)
