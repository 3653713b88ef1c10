"""Forks of tables: whose they are, when they may go, and a branch's first write to a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest

from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.manifest import TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_forks import (
    ForkPlace,
    ForkStatus,
    classify_fork,
    fork_table,
    reclaim_fork,
    remove_fork,
)
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Table
from tests.engine.graphs import PERSON, TEAM, append_people, new_graph, run


@pytest.fixture
def anywhere(shared_root: Location) -> OpenGraph:
    """A new graph in each kind of store."""
    return new_graph(shared_root)


@contextmanager
def hold_lock(graph: OpenGraph, branch: str = "work") -> Iterator[HeldLocks]:
    with graph.root.locks.hold([branch]) as held:
        yield held


def entry_of(graph: OpenGraph, branch: str, key: str = PERSON) -> TableEntry:
    return graph.load(branch).state.entries()[key]


def place_of(graph: OpenGraph, branch: str, key: str = PERSON) -> ForkPlace:
    return ForkPlace(key, graph.root.layout.table(graph.load("main").state.locations[key]), branch)


def make_fork(graph: OpenGraph, branch: str, key: str = PERSON) -> Table:
    """A fork that the manifest does not know of."""
    place = place_of(graph, branch, key)
    return graph.root.forks.create(graph.root.tables.tip(place.table), branch)


def publish_fork(graph: OpenGraph, branch: str, table: Table, key: str = PERSON) -> None:
    changes = ManifestChanges(versions=(TableVersion(key, table.version, branch, table.count()),))
    publish(graph.coordinator(branch), changes, NewCommit(graph.root.new_id()))


def with_rows(table: Table, *ids: str) -> Table:
    return commit_staged(
        stage_append(table, pa.table({"id": list(ids), "name": list(ids)}, schema=table.schema))
    )


def ids(table: Table) -> list[str]:
    found: list[str] = table.scan(["id"]).column("id").to_pylist()
    return found


def is_there(graph: OpenGraph, place: ForkPlace) -> tuple[bool, bool]:
    """Whether a fork has a reference, and whether it has files."""
    found = graph.root.forks.find(place.table, place.branch) is not None
    return found, graph.root.objects.exists(place.table / f"tree/{place.branch}")


def observe_graph(graph: OpenGraph, observe: Callable[[str, str], None]) -> OpenGraph:
    return OpenGraph(Root.at(graph.root.layout.root, observe), read_only=False)


# --- whose is it? --------------------------------------------------------------------------------


def make_owned(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    publish_fork(graph, "work", make_fork(graph, "work"))


def make_inherited(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    make_fork(graph, "work")


def owns_another_table(graph: OpenGraph) -> None:
    make_inherited(graph)
    publish_fork(graph, "work", make_fork(graph, "work", TEAM), TEAM)


def handed_back(graph: OpenGraph) -> None:
    make_owned(graph)
    changes = ManifestChanges(versions=(TableVersion(PERSON, entry_of(graph, "work").version, None, 0),))
    publish(graph.coordinator("work"), changes, NewCommit(graph.root.new_id()))


def without_branch(graph: OpenGraph) -> None:
    make_fork(graph, "work")


def of_a_child(graph: OpenGraph) -> None:
    """The child shows the table on `work`; that makes it nothing of its own."""
    make_owned(graph)
    create_branch(graph, "child", from_branch="work")
    make_fork(graph, "child")


def make_damaged(graph: OpenGraph) -> None:
    make_inherited(graph)
    for at in (graph.root.layout.manifest.path / "tree/work/_versions").iterdir():
        at.write_bytes(b"damaged")


def without_files(graph: OpenGraph) -> None:
    make_inherited(graph)
    graph.root.objects.delete_prefix(graph.root.layout.manifest / "tree/work")


@pytest.mark.parametrize(
    ("situation", "branch", "expected"),
    [
        (make_owned, "work", ForkStatus.LEGITIMATE),
        (make_inherited, "work", ForkStatus.ORPHAN),
        (owns_another_table, "work", ForkStatus.ORPHAN),
        (handed_back, "work", ForkStatus.ORPHAN),
        (without_branch, "work", ForkStatus.ORPHAN),
        (of_a_child, "child", ForkStatus.ORPHAN),
        (of_a_child, "work", ForkStatus.LEGITIMATE),
        (make_damaged, "work", ForkStatus.INDETERMINATE),
        (without_files, "work", ForkStatus.INDETERMINATE),
    ],
)
def test_the_manifest_says_whose_a_fork_is_and_only_an_orphan_goes(
    graph: OpenGraph, situation: Callable[[OpenGraph], None], branch: str, expected: ForkStatus
) -> None:
    situation(graph)
    place = place_of(graph, branch)
    with hold_lock(graph, branch) as held:
        assert classify_fork(graph.root, place) is expected
        assert is_there(graph, place) == (True, True)
        assert reclaim_fork(graph.root, held, place) is expected
        gone = expected is ForkStatus.ORPHAN
        assert is_there(graph, place) == (not gone, not gone)


def test_a_branch_this_process_saw_before_is_asked_again(graph: OpenGraph) -> None:
    make_inherited(graph)
    graph.load("work")
    other = OpenGraph(Root.at(graph.root.layout.root), read_only=False)
    publish_fork(other, "work", graph.root.tables.tip(place_of(graph, "work").table, branch="work"))
    assert classify_fork(graph.root, place_of(graph, "work")) is ForkStatus.LEGITIMATE


@pytest.mark.parametrize(
    ("listed", "expected"), [(True, ForkStatus.INDETERMINATE), (False, ForkStatus.ORPHAN)]
)
def test_an_unreadable_authority_decides_only_by_proven_absence(
    graph: OpenGraph, listed: bool, expected: ForkStatus
) -> None:
    (make_inherited if listed else without_branch)(graph)
    point = failpoints.CLASSIFY_FRESH_READ
    with failpoints.arm(point, failpoints.error(point)):
        assert classify_fork(graph.root, place_of(graph, "work")) is expected


def test_no_answer_about_the_branch_is_not_absence(graph: OpenGraph) -> None:
    without_branch(graph)

    def refuse(op: str, uri: str) -> None:
        if op == "read_text_if_exists" and "__manifest" in uri:
            raise table_failure(TableFailureKind.TRANSIENT, op, uri, "no answer")

    assert (
        classify_fork(observe_graph(graph, refuse).root, place_of(graph, "work")) is ForkStatus.INDETERMINATE
    )


# --- removing ------------------------------------------------------------------------------------


def test_files_without_a_reference_are_removed_and_nothing_at_all_is_fine(anywhere: OpenGraph) -> None:
    without_branch(anywhere)
    place = place_of(anywhere, "work")
    anywhere.root.objects.delete(place.table / "_refs/branches/work.json")
    with hold_lock(anywhere) as held:
        for _ in range(2):
            assert reclaim_fork(anywhere.root, held, place) is ForkStatus.ORPHAN
            assert is_there(anywhere, place) == (False, False)


def test_removing_a_fork_spares_one_beside_it_that_is_being_made(anywhere: OpenGraph) -> None:
    """Lance writes the files of a fork first and its reference last."""
    for name in ("team/ann", "team/bob"):
        make_fork(anywhere, name)
    ann, bob = place_of(anywhere, "team/ann"), place_of(anywhere, "team/bob")
    anywhere.root.objects.delete(bob.table / "_refs/branches/team%2Fbob.json")
    with hold_lock(anywhere, "team/ann") as held:
        remove_fork(anywhere.root, held, ann.table, "team/ann")
    assert is_there(anywhere, ann) == (False, False)
    assert is_there(anywhere, bob) == (False, True)


def test_removing_a_fork_below_main_spares_the_table(graph: OpenGraph) -> None:
    append_people(graph, "ann")
    make_fork(graph, "main/x")
    place = place_of(graph, "main/x")
    with hold_lock(graph, "main/x") as held:
        remove_fork(graph.root, held, place.table, "main/x")
    assert is_there(graph, place) == (False, False)
    assert ids(graph.root.tables.tip(place.table)) == ["ann"]


def stray_chain(graph: OpenGraph, *names: str) -> list[ForkPlace]:
    """Forks that no branch shows, each made from the one before."""
    table = make_fork(graph, names[0])
    for name in names[1:]:
        table = graph.root.forks.create(with_rows(table, name), name)
    return [place_of(graph, name) for name in names]


def live_child(graph: OpenGraph) -> Table:
    """A branch whose own fork was made from a leftover of `work`, as after a merge of it."""
    create_branch(graph, "child")
    child = graph.root.forks.create(make_fork(graph, "work"), "child")
    publish_fork(graph, "child", with_rows(child, "ann"))
    return child


def test_a_fork_that_a_branch_is_built_on_stays(graph: OpenGraph) -> None:
    child = live_child(graph)
    place = place_of(graph, "work")
    with hold_lock(graph) as held, pytest.raises(errors.Conflict, match="'child' still uses it") as caught:
        reclaim_fork(graph.root, held, place)
    assert not caught.value.retryable
    assert is_there(graph, place) == (True, True)
    assert ids(child.latest()) == ["ann"]


def test_what_stands_on_an_orphan_and_is_one_goes_before_it(anywhere: OpenGraph) -> None:
    places = stray_chain(anywhere, "work", "child", "a/grandchild")
    with hold_lock(anywhere) as held:
        assert reclaim_fork(anywhere.root, held, places[0]) is ForkStatus.ORPHAN
    assert [is_there(anywhere, place) for place in places] == [(False, False)] * 3


def test_what_stands_on_an_orphan_goes_at_many_tables_at_once(graph: OpenGraph) -> None:
    for key in (PERSON, TEAM):
        graph.root.forks.create(make_fork(graph, "work", key), "child")
    places = [place_of(graph, "work", key) for key in (PERSON, TEAM)]
    with hold_lock(graph) as held, ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda place: reclaim_fork(graph.root, held, place), places))
    assert found == [ForkStatus.ORPHAN] * 2


def test_what_stands_on_an_orphan_stays_while_its_branch_is_locked(graph: OpenGraph) -> None:
    """Somebody may be at its first write there."""
    work, child = stray_chain(graph, "work", "a/child")
    for busy in ("a", "a/child"):
        with (
            hold_lock(graph) as held,
            hold_lock(graph, busy),
            pytest.raises(errors.Unavailable, match="'a/child', which is being written") as caught,
        ):
            reclaim_fork(graph.root, held, work)
        assert caught.value.retryable
    assert [is_there(graph, place) for place in (work, child)] == [(True, True)] * 2


def test_what_stands_on_an_orphan_stays_while_a_write_on_record_may_need_it(graph: OpenGraph) -> None:
    work, child = stray_chain(graph, "work", "child")
    record = {"tables": [{"table_key": PERSON, "table_branch": "child"}]}
    graph.root.objects.write_text(graph.root.layout.recovery / "01OP.json", json.dumps(record))
    with hold_lock(graph) as held, pytest.raises(errors.Unavailable, match="may still need the fork"):
        reclaim_fork(graph.root, held, work)
    assert [is_there(graph, place) for place in (work, child)] == [(True, True)] * 2


def test_a_fork_with_a_live_branch_inside_its_folder_is_left_for_later(graph: OpenGraph) -> None:
    make_fork(graph, "a")
    create_branch(graph, "a/b")
    place = place_of(graph, "a")
    with hold_lock(graph, "a") as held:
        assert reclaim_fork(graph.root, held, place, live=["main", "a/b"]) is ForkStatus.INDETERMINATE
        assert is_there(graph, place) == (True, True)
        assert reclaim_fork(graph.root, held, place, live=["main", "ab", "b/a"]) is ForkStatus.ORPHAN


RECORD = {"tables": [{"table_key": PERSON, "table_branch": "work"}]}
OTHERS = {"tables": [{"table_key": TEAM, "table_branch": "work"}, {"table_key": PERSON}]}


@pytest.mark.parametrize(
    ("record", "stops"),
    [(json.dumps(RECORD), True), ("{", True), ("[]", True), ("{}", True), (json.dumps(OTHERS), False)],
)
def test_a_write_on_record_that_may_need_a_fork_keeps_it(graph: OpenGraph, record: str, stops: bool) -> None:
    without_branch(graph)
    place, layout = place_of(graph, "work"), graph.root.layout
    graph.root.objects.write_text(layout.recovery / "01OP.json", record)
    graph.root.objects.write_text(layout.recovery / "notes.txt", json.dumps(RECORD))
    with hold_lock(graph) as held:
        if stops:
            with pytest.raises(errors.RecoveryRequired) as caught:
                reclaim_fork(graph.root, held, place)
            assert caught.value.operation_id == "01OP"
            assert is_there(graph, place) == (True, True)
        assert reclaim_fork(graph.root, held, place, operation_id="01OP") is ForkStatus.ORPHAN


# --- first touch ---------------------------------------------------------------------------------


def test_the_first_write_forks_at_exactly_the_version_the_branch_shows(anywhere: OpenGraph) -> None:
    append_people(anywhere, "ann")
    create_branch(anywhere, "work")
    append_people(anywhere, "bob")
    with hold_lock(anywhere) as held:
        made = fork_table(anywhere.root, held, entry_of(anywhere, "work"), "work")
    assert (made.branch, made.version, ids(made)) == ("work", entry_of(anywhere, "work").version, ["ann"])
    publish_fork(anywhere, "work", with_rows(made, "zoe"))
    create_branch(anywhere, "child", from_branch="work")
    with hold_lock(anywhere, "child") as held:
        grandchild = fork_table(anywhere.root, held, entry_of(anywhere, "child"), "child")
    assert ids(with_rows(grandchild, "yan")) == ["ann", "zoe", "yan"]
    found = anywhere.root.forks.find(made.location, "child")
    assert found is not None
    assert (found.parent, found.parent_version) == ("work", made.version + 1)
    assert ids(anywhere.root.tables.tip(made.location)) == ["ann", "bob"]


@pytest.mark.parametrize("branch", ["main", "work"])
def test_a_table_that_is_there_already_is_not_forked(graph: OpenGraph, branch: str) -> None:
    make_owned(graph)
    with hold_lock(graph, branch) as held, pytest.raises(errors.InternalError, match="not needed"):
        fork_table(graph.root, held, entry_of(graph, branch), branch)


def orphan(graph: OpenGraph) -> None:
    with_rows(make_fork(graph, "work"), "old")


def older_orphan(graph: OpenGraph) -> None:
    make_fork(graph, "work")


def files_only(graph: OpenGraph) -> None:
    orphan(graph)
    graph.root.objects.delete(place_of(graph, "work").table / "_refs/branches/work.json")


def older_files_only(graph: OpenGraph) -> None:
    older_orphan(graph)
    graph.root.objects.delete(place_of(graph, "work").table / "_refs/branches/work.json")


@pytest.mark.parametrize("moved_on", [False, True])
@pytest.mark.parametrize("leftover", [orphan, older_orphan, files_only, older_files_only])
def test_what_an_interrupted_writer_left_makes_way_and_is_never_taken_over(
    graph: OpenGraph, leftover: Callable[[OpenGraph], None], moved_on: bool
) -> None:
    leftover(graph)
    if moved_on:
        append_people(graph, "ann")
    create_branch(graph, "work")
    with hold_lock(graph) as held:
        made = fork_table(graph.root, held, entry_of(graph, "work"), "work")
    expected = ["ann"] if moved_on else []
    assert ids(made) == ids(graph.root.tables.tip(made.location, branch="work")) == expected
    assert ids(with_rows(made, "new")) == [*expected, "new"]


def test_a_fork_another_writer_published_is_a_conflict_to_prepare_again(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    stale = entry_of(graph, "work")
    publish_fork(graph, "work", with_rows(make_fork(graph, "work"), "ann"))
    with hold_lock(graph) as held, pytest.raises(errors.ReadSetChanged) as caught:
        fork_table(graph.root, held, stale, "work")
    assert caught.value.retryable
    assert ids(graph.root.tables.tip(place_of(graph, "work").table, branch="work")) == ["ann"]


def test_a_second_collision_is_a_conflict_and_not_a_loop(graph: OpenGraph) -> None:
    """Somebody without the lock makes the fork again whenever it was removed."""
    make_inherited(graph)
    reclaimed: list[str] = []

    def meddle(op: str, uri: str) -> None:
        if op == "create_fork" and reclaimed:
            make_fork(graph, "work")

    point = failpoints.FORK_BEFORE_RECLAIM
    other = observe_graph(graph, meddle)
    with (
        hold_lock(graph) as held,
        failpoints.arm(point, lambda: reclaimed.append(point)),
        pytest.raises(errors.ReadSetChanged),
    ):
        fork_table(other.root, held, entry_of(other, "work"), "work")
    assert reclaimed == [point]


def test_an_unreadable_authority_stops_the_first_write_and_keeps_the_fork(graph: OpenGraph) -> None:
    make_inherited(graph)
    entry, point = entry_of(graph, "work"), failpoints.CLASSIFY_FRESH_READ
    with (
        hold_lock(graph) as held,
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(errors.Unavailable, match="may still be needed") as caught,
    ):
        fork_table(graph.root, held, entry, "work")
    assert caught.value.retryable
    assert is_there(graph, place_of(graph, "work")) == (True, True)


def test_a_leftover_that_another_branch_is_built_on_names_that_branch(graph: OpenGraph) -> None:
    live_child(graph)
    create_branch(graph, "work")
    with hold_lock(graph) as held, pytest.raises(errors.Conflict, match="'child' still uses it"):
        fork_table(graph.root, held, entry_of(graph, "work"), "work")


def test_leftovers_that_stand_on_a_leftover_make_way_with_it(anywhere: OpenGraph) -> None:
    places = stray_chain(anywhere, "work", "child", "grandchild")
    create_branch(anywhere, "work")
    with hold_lock(anywhere) as held:
        made = fork_table(anywhere.root, held, entry_of(anywhere, "work"), "work")
    assert ids(with_rows(made, "new")) == ["new"]
    assert [is_there(anywhere, place)[0] for place in places] == [True, False, False]


@pytest.mark.parametrize("below", ["b", "data", "_versions", "_transactions", "tree", "_versions/b"])
@pytest.mark.parametrize("files_too", [False, True])
def test_leftovers_below_the_name_are_in_nobodys_way(graph: OpenGraph, below: str, files_too: bool) -> None:
    if files_too:
        make_fork(graph, "work")
        graph.root.objects.delete(place_of(graph, "work").table / "_refs/branches/work.json")
    with_rows(make_fork(graph, f"work/{below}"), "old")
    create_branch(graph, "work")
    with hold_lock(graph) as held:
        made = fork_table(graph.root, held, entry_of(graph, "work"), "work")
    assert ids(with_rows(made, "new")) == ["new"]
    with hold_lock(graph, f"work/{below}") as held:
        assert reclaim_fork(graph.root, held, place_of(graph, f"work/{below}")) is ForkStatus.ORPHAN
    assert ids(OpenGraph.open(Root.at(graph.root.layout.root)).root.tables.tip(made.location, branch="work"))


def test_a_leftover_below_the_name_that_cannot_go_is_reported(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0.05")
    make_fork(graph, "work/_versions")
    create_branch(graph, "work")
    with (
        hold_lock(graph) as held,
        hold_lock(graph, "work/_versions"),
        pytest.raises(errors.Unavailable, match="'work/_versions', which is being written"),
    ):
        fork_table(graph.root, held, entry_of(graph, "work"), "work")


def test_a_writer_on_record_may_make_way_for_itself_but_not_for_others(graph: OpenGraph) -> None:
    make_inherited(graph)
    graph.root.objects.write_text(graph.root.layout.recovery / "01OP.json", json.dumps(RECORD))
    entry = entry_of(graph, "work")
    with hold_lock(graph) as held:
        with pytest.raises(errors.RecoveryRequired):
            fork_table(graph.root, held, entry, "work", operation_id="02OP")
        assert fork_table(graph.root, held, entry, "work", operation_id="01OP").branch == "work"


def test_a_failure_of_the_store_is_reported_unchanged(graph: OpenGraph) -> None:
    create_branch(graph, "work")

    def fail(op: str, uri: str) -> None:
        if op == "create_fork":
            raise table_failure(TableFailureKind.TRANSIENT, op, uri, "no answer")

    other = observe_graph(graph, fail)
    with hold_lock(graph) as held, pytest.raises(errors.StorageFailure, match="no answer"):
        fork_table(other.root, held, entry_of(other, "work"), "work")


def test_a_table_version_that_is_gone_is_not_mistaken_for_leftovers(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    entry = entry_of(graph, "work")
    missing = TableEntry(entry.key, entry.path, 99, entry.owner, 0)
    with hold_lock(graph) as held, pytest.raises(errors.StorageFailure) as caught:
        fork_table(graph.root, held, missing, "work")
    assert caught.value.kind == TableFailureKind.NOT_FOUND
    assert is_there(graph, place_of(graph, "work")) == (False, False)


def test_branches_fork_one_table_at_the_same_time(graph: OpenGraph) -> None:
    branches = [f"team/{number}" for number in range(4)]
    for name in branches:
        create_branch(graph, name)

    def touch(name: str) -> list[str]:
        with hold_lock(graph, name) as held:
            return ids(with_rows(fork_table(graph.root, held, entry_of(graph, name), name), name))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(touch, branches)) == [[name] for name in branches]


_FIRST_TOUCH = """
import sys
from omnigraph.engine.graph.table_forks import fork_table
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

graph = OpenGraph.open(Root.at(Location.parse(sys.argv[1])))
with graph.root.locks.hold(["work"]) as held:
    fork_table(graph.root, held, graph.load("work").state.entries()[sys.argv[2]], "work")
"""


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "before", "left"),
    [
        (failpoints.FORK_POST_CREATE_PRE_OPEN, None, True),
        (failpoints.FORK_BEFORE_CLASSIFY, orphan, True),
        (failpoints.CLASSIFY_FRESH_READ, orphan, True),
        (failpoints.FORK_BEFORE_RECLAIM, orphan, True),
    ],
)
def test_after_a_writer_died_the_next_one_starts_from_what_the_branch_shows(
    graph: OpenGraph, point: str, before: Callable[[OpenGraph], None] | None, left: bool
) -> None:
    create_branch(graph, "work")
    if before is not None:
        before(graph)
    ended = run(_FIRST_TOUCH, graph.root.uri, PERSON, **{failpoints.SETTING: f"{point}=exit"})
    assert ended.returncode == failpoints.EXIT_STATUS, ended.stderr
    assert is_there(graph, place_of(graph, "work")) == (left, left)
    with hold_lock(graph) as held:
        made = fork_table(graph.root, held, entry_of(graph, "work"), "work")
    assert ids(made) == []
    publish_fork(graph, "work", with_rows(made, "ann"))
    delete_branch(graph, "work")
    assert is_there(graph, place_of(graph, "work")) == (False, False)
