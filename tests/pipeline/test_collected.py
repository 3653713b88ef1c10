"""Tasks whose answers come back to this process, and what is reported when they fail."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import BranchNotFound, PipelineFailed, PipelineWorkerLost
from omnigraph.pipeline.fan_out import collect_answers
from omnigraph.pipeline.progress import watch_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_answers_come_in_the_order_of_items_each_from_a_task_of_its_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_SENT", "yes")

    def task(item: str) -> tuple[str, int, str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return item, context.partitionId(), os.environ["OMNIGRAPH_SENT"]

    with watch_stage(spark, "read"):
        found = list(collect_answers(spark, ["a", "b", "c"], task))
    assert found == [("a", 0, "yes"), ("b", 1, "yes"), ("c", 2, "yes")]


def test_what_goes_wrong_is_reported_unchanged(spark: SparkSession) -> None:
    def task(item: str) -> None:
        if item == "work":
            raise BranchNotFound(item)
        if item == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(f"item {item} is odd")

    with pytest.raises(BranchNotFound) as ours, watch_stage(spark, "read"):
        collect_answers(spark, ["work"], task)
    assert ours.value.to_json() == BranchNotFound("work").to_json()
    with pytest.raises(PipelineFailed) as other, watch_stage(spark, "read"):
        collect_answers(spark, ["seven"], task)
    assert str(other.value) == "stage 'read' failed: ValueError: item seven is odd"
    with pytest.raises(PipelineWorkerLost), watch_stage(spark, "read"):
        collect_answers(spark, ["die"], task)
