"""What making and deleting a branch costs, by the number of types in the graph."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import Result, interleaved
from omnigraph.engine.branches import create_branch, delete_branch, list_branches
from omnigraph.engine.initialise import initialise
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.storage.location import Location

SIZES = (8, 50, 140)
NAME = "work"


def run(*, short: bool = False) -> Result:
    """Create and delete at several sizes, next to the same on a bare Lance dataset."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = {size: _graph(Path(folder) / str(size), size) for size in SIZES}
        # Turn by turn each branch is made and deleted again, so every call sees the same graph.
        tasks: dict[str, Callable[[], object]] = {}
        for size, graph in graphs.items():
            tasks[f"create, {size} types"] = lambda graph=graph: create_branch(graph, NAME)
            tasks[f"delete, {size} types"] = lambda graph=graph: delete_branch(graph, NAME)
        root = graphs[SIZES[0]].root
        table = root.layout.table(graphs[SIZES[0]].load("main").state.locations["node:Type0"])
        tasks["lance: create"] = lambda: root.forks.create(root.tables.tip(table), NAME)
        tasks["lance: delete"] = lambda: root.forks.delete(table, NAME)
        timings = interleaved(tasks, rounds=3 if short else 50, calls=1)
        for graph in graphs.values():
            assert [branch.name for branch in list_branches(graph)] == ["main"], "every branch must be gone"
    return Result(
        name="branches",
        timings=timings,
        yardsticks=(
            f"create, {SIZES[0]} types",
            f"delete, {SIZES[0]} types",
            "lance: create",
            "lance: delete",
        ),
        targets={},
        facts={"sizes": list(SIZES), "python": platform.python_version()},
    )


def _graph(at: Path, types: int) -> OpenGraph:
    root = Root.at(Location.parse(at))
    initialise(root, "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(types)))
    return OpenGraph.open(root)
