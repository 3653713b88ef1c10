"""Loads for the crash matrix whose rows wait in files of their own, as those of a load of any size do."""

from __future__ import annotations

from unittest.mock import patch

from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.load import load_job as job
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from tests.engine.crash.steps import BRANCH, Step, Write, make_branch, rows_to_load, touch_branch
from tests.engine.crash.world import load_rows


def _loads(mode: Mode, branch: str = "main") -> Step:
    def step(graph: OpenGraph) -> object:
        # Tasks reach the graph by themselves. Here they do so in a way that is observed.
        with patch.object(job, "shared_root", lambda *_: graph.root):
            engine = Engine(LocalRunner(), "asked for")
            return load_rows(graph, rows_to_load(mode), mode, branch, engine=lambda _: engine)

    return step


LARGE_LOADS: dict[str, Write] = {
    "load-large-append": Write(_loads(Mode.APPEND)),
    "load-large-merge": Write(_loads(Mode.MERGE)),
    "load-large-patch": Write(_loads(Mode.PATCH)),
    "load-large-overwrite": Write(_loads(Mode.OVERWRITE)),
    "load-large-append-first-touch": Write(_loads(Mode.APPEND, BRANCH), make_branch, BRANCH),
    "load-large-merge-first-touch": Write(_loads(Mode.MERGE, BRANCH), make_branch, BRANCH),
    "load-large-overwrite-branch": Write(_loads(Mode.OVERWRITE, BRANCH), touch_branch, BRANCH),
}
