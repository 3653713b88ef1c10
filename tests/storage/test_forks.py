from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Recorder
from omnigraph.storage.references import Fork
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables

SCHEMA = pa.schema([pa.field("id", pa.string())])

BELOW = ["b", "data", "_versions", "_transactions", "_deletions", "_indices", "tree", "data/b", "_versions/b"]
"""What a fork below another may be called: also as the folders of which each consists."""


@dataclass
class Graph:
    at: Location
    objects: ObjectStore
    tables: Tables
    forks: Forks
    main: Table


@pytest.fixture
def graph(shared_root: Location) -> Graph:
    return make_graph(shared_root)


@pytest.fixture
def here(tmp_path: Path) -> Graph:
    """The same in a folder only, for what is asked in many forms."""
    return make_graph(Location.parse(tmp_path))


def make_graph(root: Location) -> Graph:
    objects = open_store(root)
    tables = Tables(objects=objects)
    main = tables.create(root / "people", SCHEMA, primary_key="id")
    for name in ("ann", "bob"):
        main = add_rows(main, name)
    return Graph(root / "people", objects, tables, Forks(tables, objects), main)


def add_rows(table: Table, *ids: str) -> Table:
    return commit_staged(stage_append(table, pa.table({"id": list(ids)}, schema=SCHEMA)))


def ids(table: Table) -> list[str]:
    found: list[str] = table.scan(["id"]).column("id").to_pylist()
    return found


def fresh(graph: Graph, name: str) -> Table:
    """A fork as somebody sees it who has read nothing of it yet."""
    return Tables(objects=graph.objects).tip(graph.at, branch=name)


def kind(caught: pytest.ExceptionInfo[StorageFailure]) -> str:
    return caught.value.kind


def test_a_fork_starts_at_exactly_its_source_and_moves_nothing(graph: Graph) -> None:
    old = graph.tables.open(graph.at, 2)
    fork = graph.forks.create(old, "work/a")
    assert (fork.branch, fork.version, ids(fork)) == ("work/a", 2, ["ann"])
    assert ids(add_rows(fork, "zoe")) == ids(graph.tables.tip(graph.at, branch="work/a")) == ["ann", "zoe"]
    assert graph.main.latest() is graph.main


def test_a_fork_of_a_fork_starts_at_the_forks_own_version(graph: Graph) -> None:
    fork = add_rows(graph.forks.create(graph.main, "work"), "zoe")
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
    native = graph.tables.tip(graph.at).native.branches.list()
    assert {name: list(fork.identity) for name, fork in listed.items()} == {
        name: one["branch_identifier"] for name, one in native.items()
    }
    recorder = Recorder()
    graph.objects.observe = recorder
    for name in names:
        assert graph.forks.find(graph.at, name) == listed[name]
    assert recorder.counts() == {"read_text_if_exists": len(names)}
    assert listed["a/b"] == Fork("a/b", None, 3, listed["a/b"].identity)
    assert graph.forks.find(graph.at, "missing") is None
    assert graph.forks.identity(graph.at, None) == ()
    assert graph.forks.identity(graph.at, "missing") is None


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
        pinned = add_rows(fork, name).version
        seen = graph.tables.open(graph.at, pinned, branch="work")
        assert ids(seen) == ["ann", "bob", name]
        if name == "old":
            graph.forks.delete(graph.at, "work")


def test_creating_a_fork_twice_fails_and_leaves_the_first(graph: Graph) -> None:
    add_rows(graph.forks.create(graph.main, "work"), "zoe")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, "work")
    assert kind(caught) == TableFailureKind.EXISTS
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
    assert set(outcomes) <= {"won", TableFailureKind.EXISTS, TableFailureKind.RESIDUE}
    assert ids(graph.tables.tip(graph.at, branch="work")) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["", "main", "a b", "../x", "a//b"])
def test_a_name_lance_refuses_is_reported_as_invalid(graph: Graph, name: str) -> None:
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, name)
    assert kind(caught) == TableFailureKind.INVALID


def test_deleting_tells_missing_from_used(graph: Graph) -> None:
    with pytest.raises(StorageFailure) as caught:
        graph.forks.delete(graph.at, "missing")
    assert kind(caught) == TableFailureKind.NOT_FOUND
    graph.forks.create(graph.forks.create(graph.main, "work"), "child")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.delete(graph.at, "work")
    assert kind(caught) == TableFailureKind.IN_USE
    graph.forks.delete(graph.at, "child")
    graph.forks.delete(graph.at, "work")
    assert graph.forks.list(graph.at) == {}


@pytest.mark.parametrize("below", BELOW)
def test_deleting_a_fork_keeps_one_stored_below_its_name(here: Graph, below: str) -> None:
    add_rows(here.forks.create(here.main, "a"), "old")
    add_rows(here.forks.create(here.main, f"a/{below}"), "zoe")
    here.forks.delete(here.at, "a")
    assert not here.forks.has_residue(here.at, "a", [f"a/{below}"])
    assert ids(fresh(here, f"a/{below}")) == ["ann", "bob", "zoe"]


@pytest.mark.parametrize("below", [name for name in BELOW if not name.startswith("_versions")])
def test_deleting_a_fork_keeps_one_in_whose_folder_it_is(here: Graph, below: str) -> None:
    """With `_versions` below it Lance makes none."""
    add_rows(here.forks.create(here.main, f"a/{below}"), "zoe")
    kept = add_rows(here.forks.create(here.main, "a"), "old")
    kept = commit_staged(stage_delete(kept, pa.array(["ann"])))
    here.forks.delete(here.at, f"a/{below}")
    assert ids(fresh(here, "a")) == ["bob", "old"]
    assert ids(add_rows(kept.latest(), "new")) == ["bob", "old", "new"]
    assert not here.objects.exists(here.at / f"tree/a/{below}/_versions")


def test_files_of_an_interrupted_creation_are_recognised_and_removed(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    graph.objects.delete(graph.at / "_refs/branches/a.json")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.create(graph.main, "a")
    assert kind(caught) == TableFailureKind.RESIDUE
    graph.forks.remove_residue(graph.at, "a")
    graph.forks.remove_residue(graph.at, "a")
    assert ids(graph.forks.create(graph.main, "a")) == ["ann", "bob"]


def test_forks_whose_folders_are_parts_of_each_other_go_one_by_one(graph: Graph) -> None:
    add_rows(graph.forks.create(graph.main, "a/data"), "zoe")
    add_rows(graph.forks.create(graph.main, "a"), "old")
    add_rows(graph.forks.create(graph.main, "a/b"), "yan")
    graph.forks.delete(graph.at, "a/data")
    assert ids(fresh(graph, "a")) == ["ann", "bob", "old"]
    graph.forks.delete(graph.at, "a")
    assert not graph.forks.has_residue(graph.at, "a", ["a/b"])
    assert ids(fresh(graph, "a/b")) == ["ann", "bob", "yan"]


def test_residue_is_not_removed_while_the_fork_is_there(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.remove_residue(graph.at, "a")
    assert kind(caught) == TableFailureKind.EXISTS
    assert ids(fresh(graph, "a")) == ["ann", "bob"]


@pytest.mark.parametrize("below", BELOW)
def test_residue_goes_and_a_fork_inside_its_folder_stays(here: Graph, below: str) -> None:
    add_rows(here.forks.create(here.main, "a"), "old")
    add_rows(here.forks.create(here.main, f"a/{below}"), "zoe")
    here.objects.delete(here.at / "_refs/branches/a.json")
    assert here.forks.has_residue(here.at, "a", [f"a/{below}"])
    here.forks.remove_residue(here.at, "a")
    assert not here.forks.has_residue(here.at, "a", [f"a/{below}"])
    assert ids(fresh(here, f"a/{below}")) == ["ann", "bob", "zoe"]
    here.forks.delete(here.at, f"a/{below}")
    here.forks.remove_residue(here.at, "a")
    assert ids(here.forks.create(here.main, "a")) == ["ann", "bob"]


BROKEN = ["", '{"parentBranch": null, "ide', '{"identifier": 3}', "null", "\ufeff"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_reference_that_cannot_be_understood_is_not_absence(here: Graph, text: str) -> None:
    here.forks.create(here.main, "a/b")
    here.forks.create(here.main, "c")
    here.objects.write_text(here.at / "_refs/branches/a%2Fb.json", text)
    for asked in (lambda: here.forks.find(here.at, "a/b"), lambda: here.forks.list(here.at)):
        with pytest.raises(StorageFailure, match=r"'a/b' cannot be understood: .*a%2Fb.json'") as caught:
            asked()
        assert kind(caught) == TableFailureKind.UNKNOWN
        assert "delete branch 'a/b'" in str(caught.value.remedy)


def test_a_reference_that_is_no_text_is_reported_by_name(graph: Graph) -> None:
    graph.forks.create(graph.main, "a")
    graph.objects.write_bytes(graph.at / "_refs/branches/a.json", b"\xff\xfe")
    assert graph.forks.survey(graph.at).broken == {"a"}


@pytest.mark.parametrize("text", BROKEN)
def test_beside_a_broken_reference_others_are_found_and_made(here: Graph, text: str) -> None:
    for name in ("a", "b"):
        here.forks.create(here.main, name)
    kept = here.forks.find(here.at, "b")
    here.objects.write_text(here.at / "_refs/branches/a.json", text)
    found = here.forks.survey(here.at)
    assert (dict(found.forks), set(found.broken), set(found.names)) == ({"b": kept}, {"a"}, {"a", "b"})
    assert ids(add_rows(here.forks.create(here.main, "c"), "zoe")) == ["ann", "bob", "zoe"]
    assert here.forks.names(here.at) == {"a", "b", "c"}


def test_a_reference_without_an_identifier_has_the_identity_that_lance_derives(here: Graph) -> None:
    """Early releases of Lance stored none."""
    here.forks.create(here.forks.create(here.main, "a/b"), "c")
    for name in ("a%2Fb", "c"):
        at = here.at / f"_refs/branches/{name}.json"
        facts = json.loads(here.objects.read_text(at))
        del facts["identifier"]
        here.objects.write_text(at, json.dumps(facts))
    listed = here.tables.tip(here.at).native.branches.list()
    found = here.forks.survey(here.at)
    assert {name: list(fork.identity) for name, fork in found.forks.items()} == {
        name: one["branch_identifier"] for name, one in listed.items()
    }
    assert here.forks.find(here.at, "c") == found.forks["c"]


def test_a_fork_whose_reference_is_broken_goes_and_before_it_no_other(graph: Graph) -> None:
    """It may be built on any of them."""
    for name in ("a", "b", "a/data"):
        graph.forks.create(graph.main, name)
    graph.objects.write_text(graph.at / "_refs/branches/a.json", "")
    with pytest.raises(StorageFailure, match="'a' cannot be understood"):
        graph.forks.delete(graph.at, "b")
    graph.forks.delete(graph.at, "a")
    assert not graph.forks.has_residue(graph.at, "a", ["b", "a/data"])
    assert sorted(graph.forks.list(graph.at)) == ["a/data", "b"]
    graph.forks.delete(graph.at, "b")


def test_a_fork_whose_reference_is_broken_stays_while_others_were_made_from_it(graph: Graph) -> None:
    graph.forks.create(graph.forks.create(graph.main, "a"), "b")
    graph.objects.write_text(graph.at / "_refs/branches/a.json", "")
    with pytest.raises(StorageFailure) as caught:
        graph.forks.delete(graph.at, "a")
    assert kind(caught) == TableFailureKind.IN_USE
    assert graph.forks.built_on(graph.at, "a") == ("b",)


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
