"""Children that are killed in the middle of a run: `python -m tests.pipeline.declared.dying FOLDER`.

It imports everything and uses none of it, so that a fork of it is as good as a new process. Each folder in
FOLDER has a pipeline, of a file or of a cluster, and a file `point` that names where its child is killed: a
failpoint, or the number of a storage call on the records. A run that failed is retried instead of starting
another. The answer is a line for each: folder, process and how it ended.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from omnigraph import failpoints
from omnigraph.cluster.applied_pipelines import AppliedPipelines
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.records import RunRecord, Status
from omnigraph.pipeline.declared.run import RunOptions, retry, run
from omnigraph.storage.stores import open_store
from tests.engine.crash.killing import Disturber
from tests.pipeline.declared.world import Given, Growing

ROWS = {"node:Person": {"email": ["a@x"]}}
UPPER = "2024-01-01"
POINT = "point"


def find_pipeline(folder: Path) -> Pipeline:
    """The pipeline of a file, or else the one that the cluster of a folder has applied."""
    file = folder / "crm.yaml"
    return read_pipeline(file) if file.exists() else AppliedPipelines.open(str(folder)).read("crm")


def die(folder: Path) -> None:
    """Run the pipeline of a folder up to its point."""
    try:
        point = (folder / POINT).read_text(encoding="utf-8")
        if point.isdecimal():
            die_at_call(find_pipeline(folder), Growing(folder, ROWS, UPPER), int(point))
        with failpoints.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            run(find_pipeline(folder), Given(folder, ROWS, UPPER))
    except BaseException:  # noqa: BLE001 - the status is the only way to tell
        traceback.print_exc()
    os._exit(1)


def die_at_call(pipeline: Pipeline, rows: Given, number: int) -> None:
    """Run the pipeline up to a storage call on its records."""
    disturber = Disturber(number, signal.SIGKILL)
    disturber.armed = True
    run_or_retry(pipeline, rows, RunOptions(open_store=lambda at: open_store(at, disturber)))


def run_or_retry(pipeline: Pipeline, rows: Given, order: RunOptions) -> RunRecord:
    """Take up the last run if it failed, or begin one."""
    last = next(iter(open_ledger(pipeline).list_runs(1)), None)
    if last is not None and last.status is Status.FAILED:
        return retry(pipeline, rows, last.run_id, order)
    return run(pipeline, rows, order)


def main(at: Path) -> None:
    for folder in sorted(at.iterdir()):
        child = os.fork()
        if child == 0:
            die(folder)
        print(folder.name, child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
