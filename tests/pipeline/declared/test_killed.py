"""Processes that are killed in the middle of a run, and what the next one makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.lease import read_lease
from omnigraph.pipeline.declared.run import retry, run
from tests.pipeline.declared.dying import POINT, ROWS, UPPER
from tests.pipeline.declared.killing import kill_runs
from tests.pipeline.declared.world import Given, declare_pipeline, graph_at, into, people

pytestmark = pytest.mark.crash

KILLED_AT = {
    failpoints.PIPELINE_AFTER_START: "pending",
    failpoints.PIPELINE_AFTER_STAGE: "staged",
    failpoints.PIPELINE_AFTER_MERGE: "merging",
    failpoints.PIPELINE_BEFORE_CHECKPOINT: "succeeded",
    failpoints.PIPELINE_AFTER_CHECKPOINT: "succeeded",
}


def test_rows_come_once_wherever_the_process_was_killed(tmp_path: Path) -> None:
    pipelines = {}
    for point in KILLED_AT:
        graph_at(tmp_path / point / "team")
        pipelines[point] = declare_pipeline(tmp_path / point, into(), "checkpoint: watermark")
        (tmp_path / point / POINT).write_text(point)
    for number, (point, pid) in enumerate(kill_runs(tmp_path).items()):
        pipeline, folder = pipelines.pop(point), tmp_path / point
        ledger = open_ledger(pipeline)
        [cut] = ledger.list_runs()
        left = read_lease(ledger)
        assert (cut.status, cut.targets["graph.team"].status) == ("running", KILLED_AT[point])
        assert left is not None
        assert (left.run_id, left.pid) == (cut.run_id, pid)
        given = Given(folder, ROWS, UPPER)
        if number % 2:
            assert retry(pipeline, given, cut.run_id).status == "succeeded"
        else:
            # Once the rows have landed there is nothing new behind the checkpoint.
            landed = KILLED_AT[point] in ("merging", "succeeded")
            given.rows = {"node:Person": {"email": []}} if landed else given.rows
            assert run(pipeline, given).status == "succeeded"
        assert people(folder / "team") == ["a@x"]
        assert ledger.read_checkpoint()["graph.team"]["people"].upper == UPPER
        with og.open(folder / "team", read_only=True) as team:
            assert team.branches.list() == ["main"]
        assert read_lease(ledger) is None
    assert not pipelines
