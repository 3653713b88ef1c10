from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import pytest

from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.errors import BranchNotFound
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.upkeep import compact
from tests.engine.graphs import PERSON, TEAM, add_branch, append_people, bare_publish, new_graph


def names(graph: OpenGraph, snapshot: Snapshot) -> list[str]:
    return sorted(open_table(graph, snapshot, PERSON).scan(["name"]).column("name").to_pylist())


def test_a_snapshot_stays_what_it_was(graph: OpenGraph) -> None:
    append_people(graph, "ada")
    snapshot = graph.snapshot(AtBranch())
    entries = dict(snapshot.entries)
    append_people(graph, "bob")
    compact(graph.load("main").table)
    assert (dict(snapshot.entries), names(graph, snapshot)) == (entries, ["ada"])
    assert names(graph, graph.snapshot(AtBranch())) == ["ada", "bob"]
    with pytest.raises(FrozenInstanceError):
        snapshot.version = 3  # type: ignore[misc]


def test_a_snapshot_of_the_live_branch_can_be_asked_for_again(graph: OpenGraph) -> None:
    append_people(graph, "ada")
    snapshot = graph.snapshot(AtBranch())
    append_people(graph, "bob")
    again = graph.snapshot(AtCommit(snapshot.id))
    assert dict(again.entries) == dict(snapshot.entries)


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_another_process_is_seen_at_the_next_snapshot(
    place: str, folder: Location, request: pytest.FixtureRequest
) -> None:
    graph = new_graph(folder if place == "folder" else request.getfixturevalue("s3_root"))
    other = OpenGraph.open(Root.at(graph.root.layout.root))
    assert graph.snapshot(AtBranch()).id == other.snapshot(AtBranch()).id
    for version in (2, 3):
        done = bare_publish(other.coordinator("main"), {PERSON: version})
        snapshot = graph.snapshot(AtBranch())
        assert (snapshot.id, snapshot.entries[PERSON].version) == (done.commit.id, version)


def test_a_reader_never_sees_half_of_a_publish(graph: OpenGraph, folder: Location) -> None:
    stop = threading.Event()

    def watch() -> int:
        reader = OpenGraph.open(Root.at(folder), read_only=True)
        seen = set()
        while not stop.is_set():
            snapshot = reader.snapshot(AtBranch())
            assert snapshot.entries[PERSON].version == snapshot.entries[TEAM].version
            assert snapshot.commit is not None
            seen.add(snapshot.id)
        return len(seen)

    with ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(watch) for _ in range(2)]
        try:
            for version in range(2, 30):
                bare_publish(graph.coordinator("main"), {PERSON: version, TEAM: version})
                if version % 10 == 0:
                    compact(graph.load("main").table)
        finally:
            stop.set()
        assert all(watcher.result() > 1 for watcher in watchers)


def test_threads_that_share_a_graph_share_one_state(graph: OpenGraph) -> None:
    for version in range(2, 6):
        bare_publish(graph.coordinator("main"), {PERSON: version})
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: graph.load("main").state, range(32)))
    assert all(state is states[0] for state in states)


def test_a_warm_state_costs_one_probe_and_a_stale_one_a_probe_and_a_small_read(graph: OpenGraph) -> None:
    recorder = Recorder()
    reader = OpenGraph(Root.at(graph.root.layout.root, recorder), read_only=True)
    reader.load("main")
    recorder.clear()
    reader.load("main")
    assert recorder.counts() == {"probe": 1}
    bare_publish(graph.coordinator("main"))
    recorder.clear()
    reader.load("main")
    assert recorder.counts() == {"probe": 1, "scan": 1}


# --- branches that come and go ---------------------------------------------------------------------


def test_branches_do_not_see_each_other(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    bare_publish(work, {PERSON: 5})
    bare_publish(graph.coordinator("main"), {PERSON: 3})
    assert graph.snapshot(AtBranch("work")).entries[PERSON].version == 5
    assert graph.snapshot(AtBranch("main")).entries[PERSON].version == 3


def test_a_deleted_branch_is_gone_for_warm_readers_too(graph: OpenGraph) -> None:
    add_branch(graph, "work")
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    reader.load("work")
    graph.root.forks.delete(graph.root.layout.manifest, "work")
    with pytest.raises(BranchNotFound):
        reader.snapshot(AtBranch("work"))


@pytest.mark.parametrize("publishes", [1, 3, 5])
def test_a_branch_recreated_is_not_taken_for_the_old_one(graph: OpenGraph, publishes: int) -> None:
    work = add_branch(graph, "work")
    for version in range(2, 5):
        bare_publish(work, {PERSON: version})
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    old = reader.snapshot(AtBranch("work"))
    graph.root.forks.delete(graph.root.layout.manifest, "work")
    graph.forget("work")
    again = add_branch(graph, "work")
    for version in range(102, 102 + publishes):
        bare_publish(again, {PERSON: version})
    new = reader.snapshot(AtBranch("work"))
    assert new.entries[PERSON].version == 101 + publishes, "also where both lives reached the same version"
    assert old.entries[PERSON].version == 4
    assert not {old.id} & reader.load("work").state.commits.keys()
