"""What each operation asks of the store, counted; a rise fails, whatever the history and the number of types.

`OMNIGRAPH_UPDATE_GOLDEN=1` writes the counts of this run into `costs/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.lineage import walk_first_parents
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT, compact_manifest
from omnigraph.storage import stores
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import bare_publish, kept_publish, new_graph, schema_of

GOLDEN = Path(__file__).with_name("costs")
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))
TORTURE = bool(os.environ.get("OMNIGRAPH_TORTURE"))

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Scene:
    """A graph, a recorder on everything it does, and another process beside it."""

    recorder: Recorder
    graph: OpenGraph
    other: Coordinator


def scene(at: Location) -> Scene:
    recorder = Recorder()
    graph = OpenGraph.open(Root.at(at, recorder))
    graph.snapshot(AtBranch())
    return Scene(recorder, graph, Coordinator(Root.at(at), "main"))


def cold_open(here: Scene) -> None:
    stores._proven.clear()
    warm_open(here)


def warm_open(here: Scene) -> None:
    root = Root.at(here.graph.root.layout.root, here.recorder)
    OpenGraph.open(root).snapshot(AtBranch())


def read_only_open(here: Scene) -> None:
    root = Root.at(here.graph.root.layout.root, here.recorder)
    OpenGraph.open(root, read_only=True).snapshot(AtBranch())


def warm_snapshot(here: Scene) -> None:
    here.graph.snapshot(AtBranch())
    here.graph.schema()


def warm_branch_snapshot(here: Scene) -> None:
    here.graph.snapshot(AtBranch("steady"))
    here.graph.schema()


def stale_snapshot(here: Scene) -> None:
    here.graph.snapshot(AtBranch())


def publishing(here: Scene) -> None:
    with here.graph.root.locks.hold(["main"]):
        kept_publish(here.graph.coordinator("main"), NewCommit(here.graph.root.new_id()))


def time_travel_by_commit(here: Scene) -> None:
    """To a past that the process did not see when it was the present."""
    graph = OpenGraph.open(here.graph.root)
    state = graph.coordinator("main").load().state
    assert state.head is not None
    chain = list(walk_first_parents(state.commits, state.head.id))
    here.recorder.clear()
    graph.snapshot(AtCommit(chain[len(chain) // 2].id))


def time_travel_to_a_moment_ago(here: Scene) -> None:
    main = here.graph.coordinator("main")
    before = main.load().state.head
    assert before is not None
    publish(main, ManifestChanges(), NewCommit(here.graph.root.new_id()))
    here.recorder.clear()
    here.graph.snapshot(AtCommit(before.id))


def time_travel_by_time(here: Scene) -> None:
    state = here.graph.coordinator("main").load().state
    here.recorder.clear()
    here.graph.snapshot(AtTime("main", min(commit.created_at for commit in state.commits.values())))


def branch_create(here: Scene) -> None:
    create_branch(here.graph, "passing")


def branch_delete(here: Scene) -> None:
    delete_branch(here.graph, "passing")


# In this order: a branch that is created is deleted next, and what is published last makes no one stale.
OPERATIONS: dict[str, Callable[[Scene], None]] = {
    operation.__name__: operation
    for operation in (
        cold_open,
        warm_open,
        read_only_open,
        warm_snapshot,
        warm_branch_snapshot,
        stale_snapshot,
        time_travel_by_commit,
        time_travel_to_a_moment_ago,
        time_travel_by_time,
        branch_create,
        branch_delete,
        publishing,
    )
}


def measure_calls(at: Location) -> dict[str, Counts]:
    """The calls of every operation on a graph as it is now."""
    here = scene(at)
    here.graph.snapshot(AtBranch("steady"))
    found = {}
    for name, operation in OPERATIONS.items():
        if operation is stale_snapshot:
            bare_publish(here.other)
        here.recorder.clear()
        operation(here)
        found[name] = dict(sorted(here.recorder.counts().items()))
    return found


def io_of_a_publish(at: Location) -> Counts:
    """Requests inside Lance for a publish right after a compaction."""
    main = Coordinator(Root.at(at), "main")
    for _ in range(FRAGMENT_LIMIT + 1):
        bare_publish(main)
    assert compact_manifest(main)
    loaded = main.load()
    loaded.table.native.io_stats_incremental()
    bare_publish(main)
    done = loaded.table.native.io_stats_incremental()
    return {"read_iops": done.read_iops, "write_iops": done.write_iops}


def grow(at: Location, commits: int) -> None:
    """Publish until main has so many commits, kept cheap as writers keep it."""
    root = Root.at(at)
    main = Coordinator(root, "main")
    missing = commits - len(main.load().state.commits)
    with root.locks.hold(["main"]):
        for _ in range(missing):
            kept_publish(main, NewCommit(root.new_id()))
    assert missing > 0
    # So that none of the next ones is due to do it.
    compact_manifest(main, thorough=True)


def make_graph(at: Location, types: int) -> Location:
    graph = new_graph(at, schema_of(types))
    publish(graph.coordinator("main"), ManifestChanges(), NewCommit(graph.root.new_id()))
    create_branch(graph, "steady")
    return at


def golden(name: str) -> Counts:
    found: Counts = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def write_golden(found: dict[str, Counts]) -> None:
    for name, counts in found.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(counts, indent=2) + "\n")


def require_golden(found: dict[str, Counts], where: str) -> None:
    for name, counts in found.items():
        risen = {op: count for op, count in counts.items() if count > golden(name).get(op, 0)}
        assert not risen, f"{name} {where} costs more than recorded: {risen}, recorded {golden(name)}"
        assert counts == golden(name), (
            f"{name} {where} became cheaper: record it with OMNIGRAPH_UPDATE_GOLDEN=1"
        )


def test_no_operation_costs_more_with_history(folder: Location) -> None:
    make_graph(folder, 8)
    first = measure_calls(folder)
    if UPDATE:
        write_golden(first)
    require_golden(first, "in a new graph")
    io = io_of_a_publish(folder)
    # A graph of a thousand commits is looked at in test_aged_graph.py, too.
    for commits in (100, 1000 if TORTURE else 300):
        grow(folder, commits)
        require_golden(measure_calls(folder), f"after {commits} commits")
        later = io_of_a_publish(folder)
        assert later["write_iops"] == io["write_iops"]
        assert abs(later["read_iops"] - io["read_iops"]) <= 4, f"after {commits} commits: {later}, first {io}"


def test_no_operation_costs_more_with_types(folder: Location) -> None:
    make_graph(folder, 140)
    require_golden(measure_calls(folder), "with 140 types")


def test_every_golden_file_belongs_to_an_operation() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "op", "budget"),
    [
        ("warm_snapshot", "probe", 1),
        ("warm_snapshot", "scan", 0),
        ("warm_snapshot", "open", 0),
        ("warm_snapshot", "read_text_if_exists", 3),
        ("warm_branch_snapshot", "read_text_if_exists", 4),
        ("stale_snapshot", "probe", 2),
        ("stale_snapshot", "open", 0),
        ("stale_snapshot", "scan", 1),
        ("publishing", "merge_rows", 1),
        ("publishing", "scan", 0),
        ("publishing", "open", 0),
        ("warm_open", "scan", 1),
    ],
)
def test_what_is_recorded_keeps_to_the_budget(operation: str, op: str, budget: int) -> None:
    # The golden files follow the code; these few numbers are what it was designed for.
    assert golden(operation).get(op, 0) <= budget
