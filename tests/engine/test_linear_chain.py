from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import KEY
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep import manifest_upkeep as upkeep
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT
from omnigraph.errors import PublishContention
from omnigraph.storage.location import Location
from tests.engine.graphs import (
    PERSON,
    add_branch,
    manifest_rows,
    new_graph,
    require_consistent,
    require_linear,
)
from tests.python_process import PIPE, Python

WORKER = Path(__file__).with_name("publish_worker.py")
TORTURE = bool(os.environ.get("OMNIGRAPH_TORTURE"))


def race(at: Location, workers: int, each: int, *options: str, branch: str = "main") -> list[str]:
    """Processes that publish at the same time; returns every commit that was acknowledged to one of them."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                Python(str(WORKER), at.uri, branch, str(each), *options, stdin=PIPE, stdout=PIPE)
            )
            for _ in range(workers)
        ]
        for worker in running:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in running:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [worker.communicate()[0].splitlines() for worker in running]
    assert [worker.returncode for worker in running] == [0] * workers
    return [commit for answer in answers for commit in answer[0].split()]


def require_all(at: Location, made: list[str], total: int, branch: str = "main") -> None:
    """Nothing lost, nothing doubled, one chain."""
    assert len(made) == len(set(made)) == total
    loaded = Coordinator(Root.at(at), branch).load()
    state = loaded.state
    require_linear(state.commits.values(), made)
    require_consistent(state, branch)
    assert state.entries()[PERSON].version == 1 + total, "every publish rested on the one before it"
    keys = manifest_rows(Root.at(at), None if branch == "main" else branch).column(KEY).to_pylist()
    assert len(keys) == len(set(keys))


# --- processes -------------------------------------------------------------------------------------


def test_processes_that_collect_old_versions_lose_nothing_and_disturb_no_reader(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(upkeep.SETTING, "0")
    new_graph(folder)
    reader, over = Coordinator(Root.at(folder), "main"), threading.Event()

    def read() -> int:
        seen = [reader.load().state]
        # Without a breath in between it would take most of the machine from those who write.
        while not over.wait(0.02):
            seen.append(reader.load().state)
            assert seen[-1].commits.keys() >= seen[-2].commits.keys()
            Coordinator(Root.at(folder), "main").load()
        return len(seen)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            made = race(folder, 3, 90, "lock")
        finally:
            over.set()
        assert reading.result() > 1
    require_all(folder, made, 270)
    assert len(reader.load().table.versions()) < 256


def test_processes_under_the_lock_lose_nothing(folder: Location) -> None:
    new_graph(folder)
    workers, each = (8, 50) if TORTURE else (4, 20)
    made = race(folder, workers, each, "lock")
    require_all(folder, made, workers * each)
    assert Coordinator(Root.at(folder), "main").load().table.fragment_count <= FRAGMENT_LIMIT + 1


def test_processes_without_the_lock_lose_nothing_either(folder: Location) -> None:
    new_graph(folder)
    workers, each = (8, 50) if TORTURE else (4, 10)
    require_all(folder, race(folder, workers, each), workers * each)


def test_processes_on_one_branch_leave_the_others_alone(folder: Location) -> None:
    graph = new_graph(folder)
    add_branch(graph, "work")
    before = graph.load("main").state
    require_all(folder, race(folder, 3, 8, "lock", branch="work"), 24, branch="work")
    assert graph.load("main").state == before


@pytest.mark.s3
def test_processes_on_a_bucket_under_the_lease_lose_nothing(s3_root: Location) -> None:
    new_graph(s3_root)
    workers, each = (8, 50) if TORTURE else (3, 3)
    require_all(s3_root, race(s3_root, workers, each, "lock"), workers * each)


@pytest.mark.s3
def test_processes_on_a_bucket_without_the_lease_lose_nothing_either(s3_root: Location) -> None:
    new_graph(s3_root)
    # Nothing compacts here, and every attempt reads every fragment: more would only take longer.
    workers, each = (8, 10) if TORTURE else (3, 3)
    require_all(s3_root, race(s3_root, workers, each), workers * each)


# --- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("writers", [2, 8])
@pytest.mark.parametrize("shared", [True, False], ids=["one-graph", "graph-each"])
def test_threads_without_the_lock_make_one_chain(folder: Location, writers: int, shared: bool) -> None:
    graph = new_graph(folder)
    start = threading.Barrier(writers)

    def write(number: int) -> list[str]:
        own = graph if shared else OpenGraph.open(Root.at(folder))
        coordinator = own.coordinator("main")
        start.wait()
        return [patiently(coordinator, f"{number}-{step}") for step in range(3)]

    with ThreadPoolExecutor(writers) as pool:
        made = [commit for done in pool.map(write, range(writers)) for commit in done]
    state = graph.load("main").state
    require_linear(state.commits.values(), made)
    assert len(made) == writers * 3
    assert state == Coordinator(Root.at(folder), "main").load().state


def patiently(coordinator: Coordinator, actor: str) -> str:
    lineage = NewCommit(coordinator.root.new_id(), actor=actor)
    while True:
        try:
            return publish(coordinator, ManifestChanges(), lineage).commit.id
        except PublishContention:
            continue


def test_two_branches_grow_apart_at_the_same_time(graph: OpenGraph) -> None:
    add_branch(graph, "left")
    add_branch(graph, "right")
    start = threading.Barrier(2)

    def write(branch: str) -> list[str]:
        start.wait()
        return [
            publish(graph.coordinator(branch), ManifestChanges(), NewCommit(graph.root.new_id())).commit.id
            for _ in range(8)
        ]

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(write, ["left", "right"])
    require_linear(graph.load("left").state.commits.values(), left)
    require_linear(graph.load("right").state.commits.values(), right)
    require_linear(graph.load("main").state.commits.values(), [])
