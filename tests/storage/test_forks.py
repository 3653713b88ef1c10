from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.forks import Forks
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Recorder
from omnigraph.storage.references import Fork
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Table, Tables

SCHEMA = pa.schema([pa.field("id", pa.string())])


@dataclass
class Graph:
    at: Location
    objects: ObjectStore
    tables: Tables
    forks: Forks
    main: Table


@pytest.fixture
def graph(shared_root: Location) -> Graph:
    objects = ObjectStore.at(shared_root)
    tables = Tables(objects=objects)
    main = tables.create(shared_root / "people", SCHEMA, primary_key="id")
    for name in ("ann", "bob"):
        main = added(main, name)
    return Graph(shared_root / "people", objects, tables, Forks(tables, objects), main)


def added(table: Table, *ids: str) -> Table:
    return commit_staged(stage_append(table, pa.table({"id": list(ids)}, schema=SCHEMA)))


def ids(table: Table) -> list[str]:
    found: list[str] = table.scan(["id"]).column("id").to_pylist()
    return found


def kind(caught: pytest.ExceptionInfo[StorageFailure]) -> str:
    return caught.value.kind


def test_a_fork_starts_at_exactly_its_source_and_moves_nothing(graph: Graph) -> None:
    old = graph.tables.open(graph.at, 2)
    fork = graph.forks.create(old, "work/a")
    assert (fork.branch, fork.version, ids(fork)) == ("work/a", 2, ["ann"])
    assert ids(added(fork, "zoe")) == ids(graph.tables.tip(graph.at, branch="work/a")) == ["ann", "zoe"]
    assert graph.main.latest() is graph.main


def test_a_fork_of_a_fork_starts_at_the_forks_own_version(graph: Graph) -> None:
    fork = added(graph.forks.create(graph.main, "work"), "zoe")
    child = graph.forks.create(fork, "child")
    assert (child.version, ids(child)) == (4, ["ann", "bob", "zoe"])
    found = graph.forks.find(graph.at, "child")
    assert found is not None
    assert (found.parent, found.parent_version) == ("work", 4)


def test_one_read_finds_a_fork_and_the_listing_agrees(graph: Graph) -> None:
    names = ["a", "a/b", "Ünï.x-y_z", "z"]
    for name in names:
        graph.forks.create(graph.main, name)
    listed = graph.forks.list(graph.at)
    assert list(listed) == sorted(names)
    recorder = Recorder()
    graph.objects.observe = recorder
    for name in names:
        assert graph.forks.find(graph.at, name) == listed[name]
    assert recorder.counts() == {"read_text_if_exists": len(names)}
    assert listed["a/b"] == Fork("a/b", None, 3, listed["a/b"].identity)
    assert graph.forks.find(graph.at, "nobody") is None
    assert graph.forks.identity(graph.at, None) == ()
    assert graph.forks.identity(graph.at, "nobody") is None


def test_notes_about_a_fork_are_found_with_it_and_replace_earlier_ones(graph: Graph) -> None:
    fork = graph.forks.create(graph.main, "work")
    for notes in ({"owner": "ann", "since": "1"}, {"owner": "bob"}):
        graph.forks.note(fork, notes)
        found = graph.forks.find(graph.at, "work")
        assert found is not None
        assert found.notes == graph.forks.list(graph.at)["work"].notes == notes
    assert ids(fork.latest()) == ["ann", "bob"]


def test_a_name_created_again_has_another_identity(graph: Graph) -> None:
    graph.forks.create(graph.main, "work")
    first = graph.forks.identity(graph.at, "work")
    graph.forks.delete(graph.at, "work")
    graph.forks.create(graph.main, "work")
    second = graph.forks.identity(graph.at, "work")
    assert first is not None
    assert second is not None
    assert first != second


def test_a_pinned_read_of_a_name_created_again_shows_its_new_life(graph: Graph) -> None:
    for name in ("old", "new"):
        fork = graph.forks.create(graph.main, "work")
        pinned = added(fork, name).version
        seen = graph.tables.open(graph.at, pinned, branch="work")
        assert ids(seen) == ["ann", "bob", name]
        if name == "old":
            graph.forks.delete(graph.at, "work")


def test_creating_a_fork_twice_fails_and_leaves_the_first(graph: Graph) -> None:
    added(graph.forks.create(graph.main, "work"), "zoe")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, "work")
    assert kind(caught) == Trouble.EXISTS
    assert ids(graph.tables.tip(graph.at, branch="work")) == ["ann", "bob", "zoe"]


def test_of_rivals_creating_one_fork_exactly_one_wins(graph: Graph) -> None:
    start = threading.Barrier(4)

    def create(_: int) -> str:
        source = Tables().open(graph.at, 3)
        start.wait()
        try:
            graph.forks.create(source, "work")
        except StorageFailure as error:
            return error.kind
        return "won"

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(create, range(4)))
    assert outcomes.count("won") == 1
    # A loser that looks before the winner has written its reference sees files without a fork.
    assert set(outcomes) <= {"won", Trouble.EXISTS, Trouble.RESIDUE}
    assert ids(graph.tables.tip(graph.at, branch="work")) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["", "main", "a b", "../x", "a//b"])
def test_a_name_lance_refuses_is_told_as_invalid(graph: Graph, name: str) -> None:
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, name)
    assert kind(caught) == Trouble.INVALID


def test_deleting_tells_missing_from_used(graph: Graph) -> None:
    with pytest.raises(StorageFailure) as caught:
        graph.forks.delete(graph.at, "nobody")
    assert kind(caught) == Trouble.NOT_FOUND
    graph.forks.create(graph.forks.create(graph.main, "work"), "child")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.delete(graph.at, "work")
    assert kind(caught) == Trouble.IN_USE
    graph.forks.delete(graph.at, "child")
    graph.forks.delete(graph.at, "work")
    assert graph.forks.list(graph.at) == {}


def test_deleting_a_fork_keeps_one_stored_below_its_name(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    added(graph.forks.create(graph.main, "a/b"), "zoe")
    graph.forks.delete(graph.at, "a")
    assert ids(graph.tables.tip(graph.at, branch="a/b")) == ["ann", "bob", "zoe"]


def test_files_of_an_interrupted_creation_are_recognised_and_removed(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    graph.objects.delete(graph.at / "_refs/branches/a.json")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, "a")
    assert kind(caught) == Trouble.RESIDUE
    graph.forks.remove_residue(graph.at, "a")
    graph.forks.remove_residue(graph.at, "a")
    assert ids(graph.forks.create(graph.main, "a")) == ["ann", "bob"]


def test_residue_is_not_removed_while_a_fork_is_there_or_below(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    graph.forks.create(graph.main, "a/b")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.remove_residue(graph.at, "a")
    assert kind(caught) == Trouble.EXISTS
    graph.objects.delete(graph.at / "_refs/branches/a.json")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.remove_residue(graph.at, "a")
    assert kind(caught) == Trouble.IN_USE
    assert ids(graph.tables.tip(graph.at, branch="a/b")) == ["ann", "bob"]


def test_a_reference_that_cannot_be_understood_is_not_absence(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    graph.objects.write_text(graph.at / "_refs/branches/a.json", '{"identifier": 3}')
    with pytest.raises(StorageFailure) as caught:
        graph.forks.find(graph.at, "a")
    assert kind(caught) == Trouble.UNKNOWN


def test_forks_are_listed_while_others_come_and_go(graph: Graph) -> None:
    graph.forks.create(graph.main, "stays")
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            graph.forks.create(graph.main, "work")
            graph.forks.delete(graph.at, "work")

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(come_and_go)
        try:
            seen = [set(graph.forks.list(graph.at)) for _ in range(300 if graph.at.is_local else 30)]
        finally:
            over.set()
        going.result()
    assert all({"stays"} <= names <= {"stays", "work"} for names in seen)
