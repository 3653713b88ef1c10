"""A load that is given up leaves no files behind, not even those of tasks that outlive it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import PipelineCancelled
from omnigraph.storage.location import Location
from tests.engine import graphs

SCHEMA = "node P { k: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    return graphs.new_graph(Location(str(tmp_path / "g.omni")), SCHEMA)


def files_left(graph: OpenGraph) -> list[str]:
    staging = Path(graph.root.uri, "__staging")
    return [str(path) for path in staging.rglob("*")] if staging.exists() else []


class CutOff(LocalRunner):
    """A runner whose user presses Ctrl-C when the first task is done; one more task goes on until later."""

    def __init__(self) -> None:
        self.late: list[Callable[[], Any]] = []

    def each(self, stage: str, items: Sequence[Any], task: Callable[[Any], Any]) -> Iterator[Any]:
        yield task(items[0])
        self.late.append(lambda: task(items[0]))
        raise KeyboardInterrupt


def test_ctrl_c_while_files_are_read_removes_what_was_written(graph: OpenGraph, tmp_path: Path) -> None:
    records = tmp_path / "p.jsonl"
    records.write_text('{"type":"P","data":{"k":"a"}}\n', encoding="utf-8")
    runner = CutOff()
    request = LoadRequest((records,), Mode.APPEND)
    with pytest.raises(KeyboardInterrupt):
        load(graph, request, Author("main"), engine=lambda _: Engine(runner, "a test"))
    assert files_left(graph) == []
    (late,) = runner.late
    with pytest.raises(PipelineCancelled):
        late()
    assert files_left(graph) == []


KILLED = """
import os, pyarrow as pa
from omnigraph.engine.tasks import runner
runner.HELD_IN_MEMORY = 1
keyed = runner.KeyedRows("t", pa.table({"k": [str(at) for at in range(1000)]}), "k")
answers = runner.LocalRunner().grouped("ids", [1, 2], lambda item: iter([keyed]), len, 4)
next(answers)
os._exit(86)
"""


def test_a_killed_load_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == 86
    assert list(tmp_path.iterdir()) == []
