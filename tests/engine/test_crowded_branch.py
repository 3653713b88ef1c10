"""Many threads that write to one branch all get their turn, in the order in which they came."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.lineage import walk_first_parents
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.progress import Progress, ProgressEvent, ProgressListener, progress_to
from omnigraph.storage.location import Location
from tests.engine.crash.turns import turns
from tests.engine.writing import write

THREADS, EACH = 16, 3


@pytest.fixture
def graph(shared_root: Location, monkeypatch: pytest.MonkeyPatch) -> OpenGraph:
    """A graph of one type, in a folder and in a bucket, whose writers wait as long as it takes."""
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "3600")
    create_graph(Root.at(shared_root), "node P { k: String @key }")
    return OpenGraph.open(Root.at(shared_root))


def insert(graph: OpenGraph, key: str) -> str:
    """Insert one row; the id of the commit."""
    compiled = compile_query("query q($k: String) { insert P { k: $k } }", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    done = mutate(graph, compiled, {"k": key}, Author("main"))
    assert done.commit is not None
    return done.commit.id


def keys(graph: OpenGraph) -> list[str]:
    """The keys of all rows."""
    found = open_table(graph, graph.snapshot(AtBranch()), "node:P").scan(["k"])
    return sorted(found.column("k").to_pylist())


def chain(graph: OpenGraph) -> list[str]:
    """The commits of main after the first, oldest first."""
    state = graph.load("main").state
    assert state.head is not None
    found = [commit.id for commit in walk_first_parents(state.commits, state.head.id)]
    assert len(found) == len(state.commits)
    return found[-2::-1]


def start_threads(*work: Callable[[], object]) -> list[threading.Thread]:
    crew = [threading.Thread(target=one) for one in work]
    for one in crew:
        one.start()
    return crew


def until_queued(graph: OpenGraph, count: int) -> None:
    """Wait until so many threads wait for the lock of main."""
    gate = graph.root.locks._find_lock("main").gate
    while gate.waiting() < count:
        os.sched_yield()


def test_no_writer_of_disjoint_keys_starves(graph: OpenGraph) -> None:
    start = threading.Barrier(THREADS)
    acknowledged: list[str] = []
    each = EACH if graph.root.layout.root.is_local else 1

    def work(number: int) -> None:
        start.wait()
        acknowledged.extend(insert(graph, f"{number}-{turn}") for turn in range(each))

    for one in start_threads(*(lambda number=number: work(number) for number in range(THREADS))):
        one.join()

    assert sorted(chain(graph)) == sorted(acknowledged)
    assert len(keys(graph)) == len(acknowledged) == THREADS * each


def test_no_writer_has_a_second_turn_before_every_waiting_one_had_its_first(graph: OpenGraph) -> None:
    threads = THREADS if graph.root.layout.root.is_local else 3
    gate = graph.root.locks._find_lock("main").gate
    busy = set(range(threads))
    authors: dict[str, int] = {}

    def work(number: int) -> None:
        try:
            authors.update((insert(graph, f"{number}-{turn}"), number) for turn in range(2))
        finally:
            busy.discard(number)

    def let_the_others_queue() -> None:
        while gate.waiting() < len(busy) - 1:
            os.sched_yield()

    # The holder goes on once all others want the lock again, so that none is late by chance.
    with failpoints.arm(failpoints.RECOVERY_SIDECAR_WRITE, let_the_others_queue):
        with graph.root.locks.hold(["main"]):
            crew = start_threads(*(partial(work, number) for number in range(threads)))
            until_queued(graph, threads)
        for one in crew:
            one.join()

    turns = [authors[commit] for commit in chain(graph)]
    assert sorted(turns[:threads]) == list(range(threads))
    assert turns == turns[:threads] * 2


def test_writers_that_find_the_branch_taken_follow_in_the_order_they_came(graph: OpenGraph) -> None:
    names = [f"w{number}" for number in range(6)]
    done: dict[str, str] = {}
    crew: list[threading.Thread] = []

    def write(name: str) -> None:
        done[name] = insert(graph, name)

    with graph.root.locks.hold(["main"]):
        for place, name in enumerate(names):
            crew += start_threads(partial(write, name))
            until_queued(graph, place + 1)
    for one in crew:
        one.join()
    assert chain(graph) == [done[name] for name in names]


def test_a_write_that_finds_the_branch_taken_is_prepared_once_and_not_before_its_turn(
    graph: OpenGraph,
) -> None:
    heads: list[str | None] = []

    def prepare(transaction: Transaction) -> PreparedWrite:
        heads.append(transaction.base.head)
        return PreparedWrite("Mutation", {}, strict=False)

    with graph.root.locks.hold(["main"]):
        (late,) = start_threads(lambda: write(graph, Author("main"), prepare))
        until_queued(graph, 1)
        assert heads == []
    late.join()
    assert len(heads) == 1


def noting(read: list[int]) -> ProgressListener:
    """Notes how many lines there were whenever all files have been read."""

    def note(now: Progress) -> None:
        if now.stage == "read" and now.event is ProgressEvent.ENDED:
            read.append(now.rows)

    return note


def test_a_load_reads_its_files_before_it_queues(graph: OpenGraph, tmp_path: Path) -> None:
    records = tmp_path / "p.jsonl"
    records.write_text('{"type":"P","data":{"k":"mine"}}\n', encoding="utf-8")
    read: list[int] = []

    def load_it() -> None:
        with progress_to(noting(read)):
            load(graph, LoadRequest((records,), Mode.APPEND), Author("main"))

    with graph.root.locks.hold(["main"]):
        (one,) = start_threads(load_it)
        until_queued(graph, 1)
        assert read == [1]
    one.join()
    assert (read, keys(graph)) == ([1], ["mine"])


def test_an_uncontended_load_is_prepared_and_staged_without_the_lock(
    graph: OpenGraph, tmp_path: Path
) -> None:
    records = tmp_path / "p.jsonl"
    records.write_text('{"type":"P","data":{"k":"mine"}}\n', encoding="utf-8")
    free: list[bool] = []

    def look() -> None:
        with graph.root.locks.hold(["main"], wait=0):
            free.append(True)

    point = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with turns(reverse=False), failpoints.arm(point, failpoints.once(look)):
        load(graph, LoadRequest((records,), Mode.APPEND), Author("main"))
    assert (free, keys(graph)) == ([True], ["mine"])


def test_a_load_that_is_overtaken_reads_its_files_once(graph: OpenGraph, tmp_path: Path) -> None:
    records = tmp_path / "p.jsonl"
    records.write_text('{"type":"P","data":{"k":"mine"}}\n', encoding="utf-8")
    read: list[int] = []

    def overtake() -> None:
        insert(OpenGraph.open(graph.root), "faster")

    request = LoadRequest((records,), Mode.APPEND)
    point = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    # In turn: in a bucket the lock is taken while rows are staged.
    with turns(reverse=False), progress_to(noting(read)), failpoints.arm(point, failpoints.once(overtake)):
        done = load(graph, request, Author("main"))

    assert done.nodes == {"P": 1}
    assert read == [1]
    assert keys(graph) == ["faster", "mine"]
