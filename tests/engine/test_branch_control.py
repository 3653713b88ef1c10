"""Branches: names, making, listing and deleting them, alone and against others."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch, list_branches
from omnigraph.engine.graph.branch_names import SCHEMA_APPLY_LOCK
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import fork_table
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import LockTable
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged, stage_append
from tests.engine.graphs import PERSON, bare_publish, new_graph, publish_from_outside, run, schema_of
from tests.python_process import PIPE, Python

Act = Callable[[OpenGraph], object]


@pytest.fixture
def anywhere(shared_root: Location) -> OpenGraph:
    """A new graph in each kind of store."""
    return new_graph(shared_root)


def names(graph: OpenGraph) -> list[str]:
    return [found.name for found in list_branches(graph)]


def another(graph: OpenGraph, **tools: object) -> OpenGraph:
    """The same graph as another process would hold it, but for what is passed."""
    root = Root.at(graph.root.layout.root)
    return OpenGraph(replace(root, **tools), read_only=False)  # type: ignore[arg-type]


def write_people(graph: OpenGraph, branch: str, *people: str) -> None:
    """A first write of a branch to a table: fork, rows, publish."""
    root = graph.root
    with root.locks.hold([branch]) as held:
        entry = graph.load(branch).state.entries()[PERSON]
        place = root.layout.table(entry.path)
        if entry.owner == branch:
            table = root.tables.tip(place, branch=branch)
        else:
            table = fork_table(root, held, entry, branch)
        made = commit_staged(
            stage_append(table, pa.table({"id": list(people), "name": list(people)}, schema=table.schema))
        )
        version = TableVersion(PERSON, made.version, branch, made.count())
        publish(graph.coordinator(branch), ManifestChanges(versions=(version,)), NewCommit(root.new_id()))


def people(graph: OpenGraph, branch: str) -> list[str]:
    entry = graph.load(branch).state.entries()[PERSON]
    table = graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)
    found: list[str] = table.scan(["id"]).column("id").to_pylist()
    return found


def forks_of_person(graph: OpenGraph) -> list[str]:
    return list(graph.root.forks.list(graph.root.layout.table(graph.load("main").state.locations[PERSON])))


# --- creating and listing ------------------------------------------------------------------------


def test_a_branch_begins_where_its_source_is(anywhere: OpenGraph) -> None:
    head = bare_publish(anywhere.coordinator("main")).commit
    made = create_branch(anywhere, "b/work")
    assert (made.source, made.source_version) == ("main", head.version)
    own = bare_publish(anywhere.coordinator("b/work")).commit
    assert own.parent == head.id
    child = create_branch(anywhere, "a", from_branch="b/work")
    assert (child.source, child.source_version) == ("b/work", own.version)
    assert child.identity[:-1] == made.identity
    bare_publish(anywhere.coordinator("main"))

    assert list_branches(anywhere)[1:] == [child, made]
    assert names(another(anywhere)) == ["main", "a", "b/work"]
    assert [anywhere.load(name).state.head for name in ("a", "b/work")] == [own, own]


def test_a_branch_sees_its_source_as_it_is_and_not_as_this_handle_last_saw_it(graph: OpenGraph) -> None:
    graph.load("main")
    newest = bare_publish(another(graph).coordinator("main")).commit
    create_branch(graph, "work")
    assert graph.load("work").state.head == newest


def test_a_taken_name_and_an_unknown_source_are_distinguished(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    with pytest.raises(errors.BranchExists):
        create_branch(graph, "work")
    for name in ("new", "missing"):
        with pytest.raises(errors.BranchNotFound) as caught:
            create_branch(graph, name, from_branch="missing")
        assert caught.value.branch == "missing"
    assert names(graph) == ["main", "work"]


def test_a_graph_open_for_reading_lists_and_refuses_the_rest(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    reader = OpenGraph.open(graph.root, read_only=True)
    assert names(reader) == ["main", "work"]
    for act in (lambda: create_branch(reader, "new"), lambda: delete_branch(reader, "work")):
        with pytest.raises(errors.BadRequest, match="read-only"):
            act()


def test_the_mark_of_a_schema_apply_is_hidden_and_blocks_both(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    with graph.root.locks.hold(["main"]):
        graph.root.forks.create(graph.load("main").table, SCHEMA_APPLY_LOCK)
        assert names(graph) == ["main", "work"]
        for act in (
            lambda: create_branch(graph, "new", from_branch="work"),
            lambda: delete_branch(graph, "work"),
        ):
            with pytest.raises(
                errors.SchemaApplyBlocked, match="unavailable while schema apply is in progress"
            ):
                act()
        assert names(graph) == ["main", "work"]


def test_the_mark_of_a_schema_apply_that_died_blocks_no_other(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    for act in (
        lambda: create_branch(graph, "new", from_branch="work"),
        lambda: delete_branch(graph, "new"),
        lambda: create_branch(graph, "new"),
    ):
        graph.root.forks.create(graph.load("main").table, SCHEMA_APPLY_LOCK)
        act()
        assert graph.root.forks.find(graph.root.layout.manifest, SCHEMA_APPLY_LOCK) is None


def test_a_branch_that_vanishes_during_the_listing_is_not_listed(graph: OpenGraph) -> None:
    for name in ("stays", "work"):
        create_branch(graph, name)

    def vanish(op: str, uri: str) -> None:
        if op == "read_bytes_versioned" and uri.endswith("work.json"):
            graph.root.objects.delete(Location(uri))

    troubled = OpenGraph(Root.at(graph.root.layout.root, vanish), read_only=False)
    assert names(troubled) == ["main", "stays"]


def test_a_listing_that_fails_for_another_reason_fails_at_once(graph: OpenGraph) -> None:
    asked = []

    def refuse(op: str, uri: str) -> None:
        if op == "list_tags":
            asked.append(uri)
            raise table_failure(TableFailureKind.CONFIGURATION, op, uri, "no permission")

    with pytest.raises(errors.StorageFailure, match="no permission"):
        list_branches(OpenGraph(Root.at(graph.root.layout.root, refuse), read_only=False))
    assert len(asked) == 1


@pytest.mark.parametrize("moved_on", [False, True], ids=["same version", "main moved on"])
def test_files_of_an_interrupted_creation_are_not_in_the_way(anywhere: OpenGraph, moved_on: bool) -> None:
    create_branch(anywhere, "a/b")
    bare_publish(anywhere.coordinator("a/b"))
    anywhere.root.objects.delete(anywhere.root.layout.manifest / "_refs/branches/a%2Fb.json")
    if moved_on:
        for _ in range(3):
            bare_publish(anywhere.coordinator("main"))
    made = create_branch(another_that_may_reuse(anywhere), "a/b")
    head = anywhere.load("main").state.head
    assert head is not None
    assert made.source_version == anywhere.load("main").state.version
    assert another(anywhere).load("a/b").state.head == head


def another_that_may_reuse(graph: OpenGraph) -> OpenGraph:
    root = graph.root
    return another(graph, locks=BranchLocks(root.objects, root.layout.root, reuse_after=0.0))


def test_a_creation_whose_answer_was_lost_counts(graph: OpenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    forks = graph.root.forks
    real = forks.create

    def lose_the_answer(source: object, name: str) -> None:
        real(source, name)  # type: ignore[arg-type]
        raise table_failure(TableFailureKind.TRANSIENT, "create_fork", "there", "no answer")

    monkeypatch.setattr(forks, "create", lose_the_answer)
    made = create_branch(graph, "work")
    assert made == list_branches(graph)[1]


def test_a_creation_that_failed_is_reported_with_its_cause(graph: OpenGraph) -> None:
    def fail(op: str, uri: str) -> None:
        if op == "create_fork":
            raise table_failure(TableFailureKind.TRANSIENT, op, uri, "no answer")

    troubled = OpenGraph(Root.at(graph.root.layout.root, fail), read_only=False)
    with pytest.raises(errors.StorageFailure, match="no answer"):
        create_branch(troubled, "work")
    assert names(graph) == ["main"]
    create_branch(graph, "work")


# --- deleting ------------------------------------------------------------------------------------


def test_deleting_removes_the_branch_and_its_own_tables_only(anywhere: OpenGraph) -> None:
    for name in ("w/one", "w/two"):
        create_branch(anywhere, name)
        write_people(anywhere, name, "ann")
    delete_branch(anywhere, "w/one")
    assert names(anywhere) == ["main", "w/two"]
    assert forks_of_person(anywhere) == ["w/two"]
    fresh = another(anywhere)
    assert (people(fresh, "w/two"), people(fresh, "main")) == (["ann"], [])
    for handle in (anywhere, fresh):
        with pytest.raises(errors.BranchNotFound):
            handle.load("w/one")


def test_nothing_is_kept_of_a_deleted_branch(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "ann")
    coordinator, entry = graph.coordinator("work"), graph.load("work").state.entries()[PERSON]
    at = graph.root.layout.table(entry.path)
    graph.root.tables.open(at, entry.version, branch="work")
    delete_branch(graph, "work")
    assert graph.coordinator("work") is not coordinator
    with pytest.raises(errors.StorageFailure):
        graph.root.tables.open(at, entry.version, branch="work")


def test_what_cannot_be_deleted_is_reported_with_the_reason(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    with pytest.raises(errors.BranchNotFound):
        delete_branch(graph, "missing", active="work")
    with pytest.raises(errors.Conflict, match="'work' cannot be deleted: it is the active branch"):
        delete_branch(graph, " work", active="work")
    delete_branch(graph, "work", active="main")
    assert names(graph) == ["main"]


def test_a_branch_others_were_made_from_stays(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    for name in ("b", "a"):
        create_branch(graph, name, from_branch="work")
    create_branch(graph, "deeper", from_branch="a")
    with pytest.raises(errors.BranchInUse) as caught:
        delete_branch(graph, "work")
    assert caught.value.dependants == ("a", "b", "deeper")
    for name in ("deeper", "b", "a", "work"):
        delete_branch(graph, name)
    assert names(graph) == ["main"]


def test_a_branch_whose_tables_main_shows_stays(graph: OpenGraph) -> None:
    """No writer of ours makes main show a branch's table; somebody else may."""
    create_branch(graph, "work")
    write_people(graph, "work", "ann")
    pinned = graph.load("work").state.versions[PERSON]
    publish_from_outside(graph.coordinator("main"), pinned)
    with pytest.raises(errors.BranchInUse) as caught:
        delete_branch(another(graph), "work")
    assert caught.value.dependants == ("main",)
    assert people(another(graph), "main") == ["ann"]
    assert names(graph) == ["main", "work"]


def test_a_branch_whose_tables_a_descendant_shows_stays_without_the_branch_between(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "ann")
    create_branch(graph, "between", from_branch="work")
    create_branch(graph, "last", from_branch="between")
    graph.root.objects.delete(graph.root.layout.manifest / "_refs/branches/between.json")
    with pytest.raises(errors.BranchInUse) as caught:
        delete_branch(another(graph), "work")
    assert caught.value.dependants == ("last",)
    assert people(another(graph), "last") == ["ann"]


def test_main_is_read_as_it_is_now(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "ann")
    graph.load("main")
    pinned = graph.load("work").state.versions[PERSON]
    publish_from_outside(another(graph).coordinator("main"), pinned)
    with pytest.raises(errors.BranchInUse):
        delete_branch(graph, "work")


def test_a_survivor_that_cannot_be_read_keeps_the_branch_it_comes_from(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    create_branch(graph, "between", from_branch="work")
    create_branch(graph, "broken", from_branch="between")
    create_branch(graph, "beside")
    for at in (graph.root.layout.manifest.path / "tree/broken/_versions").iterdir():
        at.write_bytes(b"damaged")
    with pytest.raises(errors.BranchInUse, match="'between', 'broken'"):
        delete_branch(another(graph), "work")
    delete_branch(another(graph), "beside")
    assert names(graph) == ["main", "between", "broken", "work"]


@pytest.mark.parametrize("text", ["", '{"parentBranch": null, "ide'])
def test_a_branch_whose_reference_is_damaged_is_reported_and_can_be_deleted(
    graph: OpenGraph, text: str
) -> None:
    for name in ("broken", "work"):
        create_branch(graph, name)
        write_people(graph, name, "ann")
    at = graph.root.layout.manifest / "_refs/branches/broken.json"
    graph.root.objects.write_text(at, text)
    other = another(graph)
    assert names(other) == ["main", "broken", "work"]
    create_branch(other, "new", from_branch="work")
    for refused in (
        lambda: create_branch(other, "broken"),
        lambda: create_branch(other, "broken/below"),
        lambda: create_branch(other, "more", from_branch="broken"),
        lambda: delete_branch(other, "new"),
    ):
        with pytest.raises(errors.OmnigraphError, match="'broken'"):
            refused()
    delete_branch(other, "broken")
    delete_branch(other, "new")
    assert names(other) == ["main", "work"]
    create_branch(other, "broken")
    write_people(other, "broken", "bob")
    assert people(another(graph), "broken") == ["bob"]


def test_a_branch_that_cannot_be_read_can_be_deleted(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture
) -> None:
    create_branch(graph, "broken")
    write_people(graph, "broken", "ann")
    for at in (graph.root.layout.manifest.path / "tree/broken/_versions").iterdir():
        at.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        delete_branch(another(graph), "broken")
    assert "left to cleanup" in caplog.text
    assert names(graph) == ["main"]
    create_branch(graph, "broken")
    write_people(graph, "broken", "bob")
    assert people(another(graph), "broken") == ["bob"]


def test_forks_that_cannot_be_removed_fail_no_deletion(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture
) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "ann")
    point = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with caplog.at_level(logging.WARNING), failpoints.arm(point, failpoints.error(point)):
        delete_branch(graph, "work")
    assert "fork of 'node:Person' for branch 'work' is left to cleanup" in caplog.text
    assert (names(graph), forks_of_person(graph)) == (["main"], ["work"])
    create_branch(graph, "work")
    assert people(graph, "work") == []
    write_people(graph, "work", "bob")
    assert people(another(graph), "work") == ["bob"]


def test_a_deletion_that_stops_halfway_is_a_deletion(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture
) -> None:
    create_branch(graph, "work")

    def fail(op: str, uri: str) -> None:
        if op == "delete_prefix":
            raise table_failure(TableFailureKind.TRANSIENT, op, uri, "no answer")

    troubled = OpenGraph(Root.at(graph.root.layout.root, fail), read_only=False)
    with caplog.at_level(logging.WARNING):
        delete_branch(troubled, "work")
    assert "some of its files are left" in caplog.text
    assert names(graph) == ["main"]
    create_branch(graph, "work")
    graph.load("work")


def test_a_deletion_that_did_not_begin_leaves_the_branch(graph: OpenGraph) -> None:
    create_branch(graph, "work")

    def fail(op: str, uri: str) -> None:
        if op == "delete" and "_refs" in uri:
            raise table_failure(TableFailureKind.CONFIGURATION, op, uri, "no permission")

    troubled = OpenGraph(Root.at(graph.root.layout.root, fail), read_only=False)
    with pytest.raises(errors.StorageFailure, match="no permission"):
        delete_branch(troubled, "work")
    graph.load("work")
    delete_branch(graph, "work")


# --- what it costs -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graphs_of_two_sizes(tmp_path_factory: pytest.TempPathFactory) -> list[Location]:
    made = []
    for types in (8, 140):
        at = Location.parse(tmp_path_factory.mktemp("sizes") / "graph")
        new_graph(at, schema_of(types))
        made.append(at)
    return made


def calls_of(at: Location, act: Act) -> Counter[str]:
    recorder = Recorder()
    graph = OpenGraph(Root.at(at, recorder), read_only=False)
    act(graph)
    return recorder.counts()


def fork_one(graph: OpenGraph) -> None:
    root, key = graph.root, "node:Type0"
    with root.locks.hold(["cost"]) as held:
        made = fork_table(root, held, graph.load("cost").state.entries()[key], "cost")
    changes = ManifestChanges(versions=(TableVersion(key, made.version, "cost", 0),))
    publish(graph.coordinator("cost"), changes, NewCommit(root.new_id()))


def test_branches_cost_the_same_with_8_and_with_140_types(graphs_of_two_sizes: list[Location]) -> None:
    small, big = (
        {
            "create": calls_of(at, lambda graph: create_branch(graph, "cost")),
            "delete": calls_of(at, lambda graph: delete_branch(graph, "cost")),
            "create again": calls_of(at, lambda graph: create_branch(graph, "cost")),
            "fork": calls_of(at, fork_one),
            "delete with a fork": calls_of(at, lambda graph: delete_branch(graph, "cost")),
        }
        for at in graphs_of_two_sizes
    )
    assert small == big
    # One of them looks for what dead writers left, and another again under the lock.
    assert small["create"].total() <= 10
    assert small["delete"].total() <= 18
    assert small["create"]["scan"] == 0


def test_creating_costs_the_same_after_many_commits(graph: OpenGraph) -> None:
    at = graph.root.layout.root
    first = calls_of(at, lambda graph: create_branch(graph, "one"))
    delete_branch(graph, "one")
    for _ in range(20):
        bare_publish(graph.coordinator("main"))
    assert calls_of(at, lambda graph: create_branch(graph, "two")) == first


# --- others at the same time ---------------------------------------------------------------------


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except errors.OmnigraphError as error:
        return error.code
    return "done"


def test_of_threads_creating_one_name_exactly_one_wins(graph: OpenGraph) -> None:
    start = threading.Barrier(4)

    def create(number: int) -> str:
        handle = another(graph)
        start.wait()
        return outcome(lambda: create_branch(handle, "work"))

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, range(4))) == ["branch_exists"] * 3 + ["done"]
    assert graph.load("work").state.head == graph.load("main").state.head


_RIVAL = """
import sys
from omnigraph import errors
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

graph = OpenGraph.open(Root.at(Location.parse(sys.argv[1])))
print("ready", flush=True)
for line in sys.stdin:
    verb, name = line.split()
    try:
        (create_branch if verb == "create" else delete_branch)(graph, name)
        print("done", flush=True)
    except errors.OmnigraphError as error:
        print(error.code, flush=True)
"""


class Rival:
    """A process that creates and deletes branches on command."""

    def __init__(self, at: Location) -> None:
        self._process = Python("-c", _RIVAL, at.uri, stdin=PIPE, stdout=PIPE)

    def answer(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        return line.strip()

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.communicate()


def test_processes_agree_on_who_created_and_who_deleted(anywhere: OpenGraph) -> None:
    rivals = [Rival(anywhere.root.layout.root) for _ in range(2)]
    try:
        assert [rival.answer() for rival in rivals] == ["ready"] * 2
        for round_number in range(2):
            name = f"r/n{round_number}"
            for verb, loser in (("create", "branch_exists"), ("delete", "branch_not_found")):
                for rival in rivals:
                    rival.send(f"{verb} {name}")
                assert sorted(rival.answer() for rival in rivals) == sorted(["done", loser])
            # One creates what the other deletes: either may come first, and both see a whole branch or none.
            name = f"s/n{round_number}"
            rivals[0].send(f"create {name}")
            rivals[1].send(f"delete {name}")
            assert rivals[0].answer() == "done"
            deleted = rivals[1].answer()
            assert deleted in ("done", "branch_not_found")
            assert (name in names(anywhere)) == (deleted == "branch_not_found")
        for name in names(anywhere):
            another(anywhere).load(name)
    finally:
        for rival in rivals:
            rival.end()


def test_siblings_come_and_go_without_hurting_each_other(graph: OpenGraph) -> None:
    def live_and_die(name: str) -> None:
        handle = another(graph)
        for _ in range(8):
            create_branch(handle, name)
            bare_publish(handle.coordinator(name))
            delete_branch(handle, name)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(live_and_die, f"team/{who}") for who in ("ann", "bob", "cy")]:
            done.result()
    assert names(graph) == ["main"]


@pytest.mark.parametrize(
    ("busy", "act"),
    [
        ("main", lambda graph: create_branch(graph, "new")),
        ("new", lambda graph: create_branch(graph, "new")),
        ("new", lambda graph: create_branch(graph, "new/part")),
        ("work", lambda graph: create_branch(graph, "new", from_branch="work")),
        ("work", lambda graph: delete_branch(graph, "work")),
    ],
)
def test_a_busy_branch_is_waited_for_and_then_reported(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch, busy: str, act: Act
) -> None:
    create_branch(graph, "work")
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    with graph.root.locks.hold([busy]), pytest.raises(errors.WriterBusy) as caught:
        act(another(graph))
    assert caught.value.branch == busy
    assert names(graph) == ["main", "work"]
    act(graph)


def test_deleting_does_not_wait_for_writers_of_other_branches(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_branch(graph, "work")
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    with graph.root.locks.hold(["main", "other"]):
        delete_branch(another(graph), "work")
    assert names(graph) == ["main"]


# --- two incarnations of one name -----------------------------------------------------------------------


def test_an_open_handle_sees_the_new_life_of_a_name_and_nothing_of_the_old(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "old")
    first, old_people = graph.load("work"), people(graph, "work")
    other = another(graph)
    delete_branch(other, "work")
    with pytest.raises(errors.BranchNotFound):
        graph.load("work")
    create_branch(other, "work")
    write_people(other, "work", "new")
    second = graph.load("work")
    assert second.identity != first.identity
    assert not set(second.state.commits) & (set(first.state.commits) - set(graph.load("main").state.commits))
    assert (old_people, people(graph, "work")) == (["old"], ["new"])


@pytest.mark.parametrize("more", [0, 1, 3], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize(
    ("moment", "warm"), [("open", False), ("scan", False), ("probe", True), ("scan", True)]
)
def test_a_read_between_two_lives_shows_one_of_them(
    graph: OpenGraph, moment: str, warm: bool, more: int
) -> None:
    """The branch is deleted and made again while a handle reads it, at every step of that read."""
    other = another(graph)
    create_branch(other, "work")
    bare_publish(other.coordinator("work"))
    armed = threading.Event()

    def live_again(op: str, uri: str) -> None:
        if op == moment and uri.endswith("/tree/work") and armed.is_set():
            armed.clear()
            delete_branch(other, "work")
            create_branch(other, "work")
            for _ in range(more):
                bare_publish(other.coordinator("work"))

    reader = OpenGraph(Root.at(graph.root.layout.root, live_again), read_only=False)
    if warm:
        reader.load("work")
        bare_publish(other.coordinator("work"))
    before = other.load("work")
    armed.set()
    seen = reader.load("work")
    assert not armed.is_set()
    after = other.load("work")
    lives = {life.identity: life.state for life in (before, after)}
    assert seen.state == lives[seen.identity]
    assert reader.load("work").state == after.state


def test_a_branch_that_goes_while_it_is_read_is_not_found(graph: OpenGraph) -> None:
    other = another(graph)
    create_branch(other, "work")
    armed = threading.Event()

    def delete(op: str, uri: str) -> None:
        if op == "probe" and uri.endswith("/tree/work") and armed.is_set():
            armed.clear()
            delete_branch(other, "work")

    reader = OpenGraph(Root.at(graph.root.layout.root, delete), read_only=False)
    reader.load("work")
    armed.set()
    with pytest.raises(errors.BranchNotFound):
        reader.load("work")


# --- crashes -------------------------------------------------------------------------------------

_ACT = """
import sys
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

graph = OpenGraph.open(Root.at(Location.parse(sys.argv[1])))
{"create": create_branch, "delete": delete_branch}[sys.argv[2]](graph, sys.argv[3])
"""


def crash(graph: OpenGraph, point: str, verb: str, name: str) -> None:
    ended = run(_ACT, graph.root.uri, verb, name, **{failpoints.SETTING: f"{point}=exit"})
    assert ended.returncode == failpoints.EXIT_STATUS, ended.stderr


@pytest.mark.crash
def test_a_creator_that_dies_after_the_reference_leaves_a_whole_branch(graph: OpenGraph) -> None:
    crash(graph, failpoints.BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE, "create", "work")
    assert names(graph) == ["main", "work"]
    with pytest.raises(errors.BranchExists):
        create_branch(graph, "work")
    write_people(graph, "work", "ann")
    assert people(graph, "work") == ["ann"]
    delete_branch(graph, "work")


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [
        failpoints.BRANCH_DELETE_POST_NATIVE,
        failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP,
        failpoints.FORK_BEFORE_CLASSIFY,
        failpoints.FORK_BEFORE_RECLAIM,
    ],
)
def test_a_deleter_that_dies_after_the_reference_has_deleted_the_branch(graph: OpenGraph, point: str) -> None:
    create_branch(graph, "work")
    write_people(graph, "work", "old")
    crash(graph, point, "delete", "work")
    assert (names(graph), forks_of_person(graph)) == (["main"], ["work"])
    with pytest.raises(errors.BranchNotFound):
        graph.load("work")
    create_branch(graph, "work")
    assert people(graph, "work") == []
    write_people(graph, "work", "new")
    assert people(another(graph), "work") == ["new"]
    delete_branch(graph, "work")
    assert (names(graph), forks_of_person(graph)) == (["main"], [])


# --- leases --------------------------------------------------------------------------------------


@pytest.mark.s3
def test_in_a_bucket_a_deleted_name_rests_before_it_is_used_again(s3_root: Location) -> None:
    graph = new_graph(s3_root)
    first = create_branch(graph, "work")
    delete_branch(graph, "work")
    for handle in (graph, another(graph)):
        with pytest.raises(errors.Unavailable, match="was deleted"):
            create_branch(handle, "work")
    assert names(graph) == ["main"]
    create_branch(graph, "other")
    second = create_branch(another_that_may_reuse(graph), "work")
    assert second.identity != first.identity
    assert graph.load("work").identity == second.identity


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.s3
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_process_that_lost_the_lease_changes_nothing(s3_root: Location, verb: str) -> None:
    graph = new_graph(s3_root)
    create_branch(graph, "old")
    clock = Clock()

    def stall(op: str, uri: str) -> None:
        if op == "list_tags":
            clock.now += 1000.0

    root = Root.at(s3_root, stall)
    locks = BranchLocks(graph.root.objects, s3_root, clock=clock, table=LockTable())
    slow = OpenGraph(replace(root, locks=locks), read_only=False)
    with pytest.raises(errors.LockLost):
        create_branch(slow, "new") if verb == "create" else delete_branch(slow, "old")
    assert names(graph) == ["main", "old"]
    assert not graph.root.objects.exists(graph.root.layout.manifest / "tree/new")
