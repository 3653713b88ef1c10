"""A job tells how far it is, and stops when it is asked to."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import PipelineCancelled
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.progress import watch_stage
from omnigraph.progress import Progress, ProgressEvent, progress_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE = pa.schema([("item", pa.int64())])


def finishing() -> Callable[[int], Iterator[pa.RecordBatch]]:
    # Workers cannot import this module; a function within a function travels by value.
    def task(item: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[item]], schema=DONE)

    return task


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """Where a task announces itself; it then waits for an answer that never comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        yield listening


def waits_at(port: int) -> Callable[[int], Iterator[pa.RecordBatch]]:
    def task(item: int) -> Iterator[pa.RecordBatch]:
        import socket

        with socket.create_connection(("127.0.0.1", port)) as line:
            line.recv(1)
        yield

    return task


def when_the_task_runs(door: socket.socket, act: Callable[[], None]) -> Callable[[], bool]:
    """Acts as soon as the task has announced itself; gives a question: did the task end?"""
    ended = threading.Event()

    def wait() -> None:
        line, _ = door.accept()
        with line:
            act()
            line.settimeout(120)
            if line.recv(1) == b"":
                ended.set()

    thread = threading.Thread(target=wait)
    thread.start()

    def answer() -> bool:
        thread.join()
        return ended.is_set()

    return answer


def test_the_last_report_has_every_task_done(spark: SparkSession) -> None:
    reports: list[Progress] = []
    with progress_to(reports.append), watch_stage(spark, "stage one"):
        fan_out(spark, range(6), finishing(), DONE).toArrow()
    assert (reports[0].event, reports[0].tasks_done) == (ProgressEvent.BEGUN, 0)
    assert (reports[-1].event, reports[-1].stage, reports[-1].tasks_done, reports[-1].tasks) == (
        ProgressEvent.ENDED,
        "stage one",
        6,
        6,
    )
    assert [one.tasks_done for one in reports] == sorted(one.tasks_done for one in reports)


def test_a_running_job_is_reported_and_can_be_cancelled(spark: SparkSession, door: socket.socket) -> None:
    cancel, reports = threading.Event(), []

    def note(progress: Progress) -> None:
        if progress.tasks:
            reports.append((progress.stage, progress.tasks_done, progress.tasks))
            cancel.set()

    ended = when_the_task_runs(door, lambda: None)
    with (
        pytest.raises(PipelineCancelled, match="stage 'wait' was cancelled"),
        progress_to(note),
        watch_stage(spark, "wait", cancel=cancel),
    ):
        fan_out(spark, [1], waits_at(door.getsockname()[1]), DONE).toArrow()
    assert reports[0] == ("wait", 0, 1)
    assert ended()


def test_ctrl_c_stops_the_tasks(spark: SparkSession, door: socket.socket) -> None:
    ended = when_the_task_runs(door, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), watch_stage(spark, "wait"):
        fan_out(spark, [1], waits_at(door.getsockname()[1]), DONE).toArrow()
    assert ended()
    with watch_stage(spark, "after"):
        assert fan_out(spark, [1, 2], finishing(), DONE).toArrow().num_rows == 2


def test_a_load_names_its_spark_stages_and_says_what_their_tasks_cost(
    spark: SparkSession, tmp_path: Path
) -> None:
    told: list[Progress] = []
    rows = spark.range(0, 4, 1, 4).selectExpr("concat('p', id) as slug")
    with og.init(tmp_path / "graph", schema="node Person { slug: String @key }") as graph:
        done = graph.load(rows, type="Person", mode="append", engine="spark", progress=told.append)
    assert done.engine is not None
    spooled, read, *_ = done.engine.tasks
    assert (spooled.stage, spooled.tasks, spooled.failed_tasks, read.stage) == ("rows", 4, 0, "read")
    assert spooled.task_seconds is not None
    assert spooled.task_seconds > 0
    assert spooled.spark_jobs
    ended = [one for one in told if one.event is ProgressEvent.ENDED and one.stage == "rows"]
    assert [one.spark_stages for one in ended] == [spooled.spark_stages]
    assert ended[0].to_json()["spark"] == {
        "jobs": list(spooled.spark_jobs),
        "stages": list(spooled.spark_stages),
    }
    assert max(spooled.spark_stages) < min(read.spark_stages)
