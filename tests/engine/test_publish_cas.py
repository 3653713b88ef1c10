from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import KEY, TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import (
    RETRY_BUDGET,
    ExactHead,
    ManifestChanges,
    NewCommit,
    Publication,
    publish,
)
from omnigraph.engine.graph.root import Root
from omnigraph.errors import (
    Conflict,
    CorruptGraph,
    Decided,
    InternalError,
    PublishContention,
    ReadSetChanged,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import (
    KNOWS,
    PERSON,
    TEAM,
    add_branch,
    bare_publish,
    manifest_rows,
    new_graph,
    no_room_for,
    publish_from_outside,
    require_consistent,
    require_linear,
    with_clock,
)

BEFORE_WRITE = failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND
AFTER_WRITE = failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT
WHILE_LOADING = failpoints.PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION


@pytest.fixture
def main(graph: OpenGraph) -> Coordinator:
    return graph.coordinator("main")


def stranger(root: Root, branch: str = "main") -> Coordinator:
    """The branch as another process knows it."""
    return Coordinator(Root.at(root.layout.root), branch)


def table_change(key: str, version: int, *, owner: str | None = None, rows: int = 0) -> ManifestChanges:
    return ManifestChanges(versions=(TableVersion(key, version, owner, rows),))


def send(main: Coordinator, changes: ManifestChanges, expected: dict[str, int] | None = None) -> Publication:
    return publish(main, changes, NewCommit(main.root.new_id()), expected=expected)


def require_unchanged(main: Coordinator) -> Iterator[None]:
    """For a publish that must be refused: nothing of it is stored, and the branch goes on."""
    before = manifest_rows(main.root).num_rows
    yield
    assert manifest_rows(main.root).num_rows == before
    require_consistent(bare_publish(stranger(main.root)).loaded.state)


# --- what the caller expects of tables -------------------------------------------------------------


def test_expected_versions_that_hold_let_the_publish_from_outside(main: Coordinator) -> None:
    done = send(main, table_change(PERSON, 2, rows=5), {PERSON: 1, TEAM: 1, "node:Missing": 0})
    assert done.loaded.state.entries()[PERSON] == TableEntry(
        PERSON, main.load().state.locations[PERSON], 2, None, 5
    )
    assert send(main, table_change(PERSON, 3), {PERSON: 2}).commit.parent == done.commit.id


@pytest.mark.parametrize(
    ("expected", "key", "actual"),
    [
        ({PERSON: 2}, PERSON, 1),
        ({PERSON: 0}, PERSON, 1),
        ({TEAM: 9, PERSON: 1}, TEAM, 1),
        ({"node:Missing": 3}, "node:Missing", 0),
        ({KNOWS: 1, PERSON: 7, TEAM: 8}, PERSON, 1),
    ],
)
def test_an_expected_version_that_does_not_hold_is_named(
    main: Coordinator, expected: dict[str, int], key: str, actual: int
) -> None:
    before = main.load()
    with pytest.raises(TableVersionConflict) as caught:
        send(main, table_change(PERSON, 2), expected)
    found = caught.value
    assert (found.table_key, found.expected, found.actual) == (key, expected[key], actual)
    assert found.retryable
    assert stranger(main.root).load().state == before.state


def test_a_dropped_table_is_expected_at_the_version_of_its_drop(main: Coordinator) -> None:
    send(main, table_change(TEAM, 4))
    send(main, ManifestChanges(dropped={TEAM: 6}))
    assert TEAM not in main.load().state.entries()
    with pytest.raises(TableVersionConflict) as caught:
        send(main, ManifestChanges(), {TEAM: 4})
    assert caught.value.actual == 6
    send(main, ManifestChanges(), {TEAM: 6})


def test_expectations_are_checked_again_after_a_lost_race(graph: OpenGraph, main: Coordinator) -> None:
    rival = stranger(graph.root)
    main.load()
    with (
        failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: bare_publish(rival, {PERSON: 2}))),
        pytest.raises(TableVersionConflict) as caught,
    ):
        send(main, table_change(PERSON, 3), {PERSON: 1})
    assert (caught.value.expected, caught.value.actual) == (1, 2)


# --- what a publish may do to tables ---------------------------------------------------------------


def test_an_identical_version_is_not_written_again(main: Coordinator) -> None:
    first = send(main, table_change(PERSON, 2, rows=3))
    created = manifest_rows(main.root)
    again = send(main, table_change(PERSON, 2, rows=3))
    assert manifest_rows(main.root).num_rows == created.num_rows + 1, "only the new commit was added"
    assert again.commit.parent == first.commit.id


def test_a_handoff_changes_the_owner_in_place(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    send(work, table_change(PERSON, 2, owner=None, rows=3))
    rows = manifest_rows(work.root, "work").num_rows
    done = send(work, table_change(PERSON, 2, owner="work", rows=3))
    assert manifest_rows(work.root, "work").num_rows == rows + 1
    for state in (done.loaded.state, work.load().state, stranger(work.root, "work").load().state):
        entry = state.entries()[PERSON]
        assert (entry.version, entry.owner, entry.row_count) == (2, "work", 3)


def test_a_handoff_with_other_rows_is_no_handoff(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    send(work, table_change(PERSON, 2, owner=None, rows=3))
    with pytest.raises(
        Conflict, match="version 2 of table 'node:Person' is published with 3 rows, not with 4"
    ):
        send(work, table_change(PERSON, 2, owner="work", rows=4))


def test_a_table_of_a_branch_that_is_no_ancestor_is_refused(main: Coordinator) -> None:
    with pytest.raises(Conflict, match="table 'node:Person' belongs to branch 'work', not to 'main'"):
        send(main, table_change(PERSON, 2, owner="work", rows=3))


def test_a_version_below_the_published_one_is_a_conflict(main: Coordinator) -> None:
    send(main, table_change(PERSON, 5))
    with pytest.raises(TableVersionConflict) as caught:
        send(main, table_change(PERSON, 4))
    assert (caught.value.expected, caught.value.actual) == (4, 5)


NO_TABLE = "table 'node:Missing' is not registered in the manifest"
TWICE = "table 'node:Person' is changed twice in one publish"
VERSION_2, VERSION_3 = TableVersion(PERSON, 2, None, 0), TableVersion(PERSON, 3, None, 0)
REFUSED = [
    (ManifestChanges(versions=(TableVersion("node:Missing", 1, None, 0),)), NO_TABLE),
    (ManifestChanges(dropped={"node:Missing": 1}), NO_TABLE),
    (ManifestChanges(versions=(VERSION_2, VERSION_2)), TWICE),
    (ManifestChanges(versions=(VERSION_2, VERSION_3)), TWICE),
    (ManifestChanges(versions=(VERSION_2,), dropped={PERSON: 2}), TWICE),
    (
        ManifestChanges(registered={PERSON: "nodes/0000000000000000"}, versions=(VERSION_2,)),
        "is registered at .* already",
    ),
    (ManifestChanges(dropped={PERSON: 0}), "expected version 0, found 1"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_changes_that_do_not_add_up_are_refused_whole(
    main: Coordinator, changes: ManifestChanges, reason: str
) -> None:
    judged = require_unchanged(main)
    next(judged)
    with pytest.raises(Conflict, match=reason):
        send(main, changes)
    assert list(judged) == []


def test_a_drop_holds_once_and_hides_every_version_up_to_its_own(main: Coordinator) -> None:
    send(main, table_change(TEAM, 3))
    with pytest.raises(TableVersionConflict) as caught:
        send(main, ManifestChanges(dropped={TEAM: 2}))
    assert (caught.value.expected, caught.value.actual) == (2, 3), "a drop that hides nothing is no drop"
    send(main, ManifestChanges(dropped={TEAM: 3}))
    with pytest.raises(Conflict, match="dropped already"):
        send(main, ManifestChanges(dropped={TEAM: 3}))
    with pytest.raises(TableVersionConflict) as caught:
        send(main, table_change(TEAM, 3))
    assert caught.value.actual == 3
    assert TEAM not in main.load().state.entries()


def test_a_dropped_table_comes_back_above_its_drop(main: Coordinator) -> None:
    send(main, ManifestChanges(dropped={TEAM: 1}))
    path = main.load().state.locations[TEAM]
    send(main, ManifestChanges(registered={TEAM: path}, versions=(TableVersion(TEAM, 2, None, 0),)))
    assert stranger(main.root).load().state.entries()[TEAM].version == 2


def test_a_registered_table_appears_with_its_first_version(main: Coordinator) -> None:
    new = ManifestChanges(
        registered={"node:New": "nodes/x"}, versions=(TableVersion("node:New", 1, None, 0),)
    )
    done = send(main, new)
    assert done.loaded.state.entries()["node:New"].path == "nodes/x"
    assert stranger(main.root).load().state == done.loaded.state


# --- who wins, and what is remembered --------------------------------------------------------------


def test_the_state_after_a_publish_is_the_state_a_stranger_reads(main: Coordinator) -> None:
    send(main, table_change(PERSON, 2, rows=1))
    send(main, ManifestChanges(dropped={KNOWS: 1}))
    done = publish(
        main, table_change(TEAM, 2), NewCommit(main.root.new_id(), actor="ada", merged_parent="other")
    )
    read = stranger(main.root).load()
    assert read.state == done.loaded.state == main.load().state
    assert read.state.commits[done.commit.id] == done.commit
    require_consistent(read.state)


def test_the_loser_of_a_race_reparents_on_the_winner(main: Coordinator) -> None:
    rival = stranger(main.root)
    winner: list[Publication] = []
    main.load()
    with failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: winner.append(bare_publish(rival, {TEAM: 2})))):
        done = send(main, table_change(PERSON, 2))
    assert done.commit.parent == winner[0].commit.id
    entries = done.loaded.state.entries()
    assert (entries[PERSON].version, entries[TEAM].version) == (2, 2)
    require_linear(done.loaded.state.commits.values(), [winner[0].commit.id, done.commit.id])


@pytest.mark.parametrize("losses", range(1, RETRY_BUDGET + 1))
def test_a_publish_survives_as_many_losses_as_its_budget(main: Coordinator, losses: int) -> None:
    rival, left = stranger(main.root), [None] * losses
    with failpoints.arm(BEFORE_WRITE, lambda: rival_moves(rival, left)):
        done = send(main, table_change(PERSON, 2))
    assert left == []
    assert len(done.loaded.state.commits) == losses + 2


def rival_moves(rival: Coordinator, left: list[None]) -> None:
    """Publishes as often as there are moves left; publishing comes here again itself."""
    if left:
        left.pop()
        publish_from_outside(rival)


def test_a_used_up_budget_is_a_typed_conflict_and_loses_nothing(main: Coordinator) -> None:
    rival = stranger(main.root)
    lineage = NewCommit(main.root.new_id())
    with (
        failpoints.arm(BEFORE_WRITE, lambda: publish_from_outside(rival)),
        pytest.raises(PublishContention) as caught,
    ):
        publish(main, table_change(PERSON, 2), lineage)
    assert (caught.value.branch, caught.value.attempts) == ("main", RETRY_BUDGET + 1)
    assert caught.value.retryable
    state = stranger(main.root).load().state
    assert lineage.commit_id not in state.commits
    assert len(state.commits) == 1 + RETRY_BUDGET + 1
    assert publish(main, table_change(PERSON, 2), lineage).commit.id == lineage.commit_id


def test_contention_while_loading_uses_up_an_attempt_and_no_more(main: Coordinator) -> None:
    def busy() -> None:
        raise StorageFailure("busy", kind="Contention")

    with failpoints.arm(WHILE_LOADING, failpoints.once(busy)):
        send(main, table_change(PERSON, 2))
    with failpoints.arm(WHILE_LOADING, busy), pytest.raises(PublishContention):
        send(main, table_change(PERSON, 3))


def test_other_trouble_while_loading_is_not_retried(main: Coordinator) -> None:
    reached = []

    def broken() -> None:
        reached.append(1)
        raise StorageFailure("broken", kind="Transient")

    with failpoints.arm(WHILE_LOADING, broken), pytest.raises(StorageFailure, match="broken"):
        send(main, table_change(PERSON, 2))
    assert reached == [1]


# --- lost acknowledgements -------------------------------------------------------------------------


def test_a_publish_that_died_before_its_write_left_nothing(main: Coordinator) -> None:
    lineage = NewCommit(main.root.new_id())
    with (
        failpoints.arm(BEFORE_WRITE, failpoints.error(BEFORE_WRITE)),
        pytest.raises(InternalError, match="injected"),
    ):
        publish(main, table_change(PERSON, 2), lineage)
    assert lineage.commit_id not in stranger(main.root).load().state.commits
    assert not publish(main, table_change(PERSON, 2), lineage).already_published


@pytest.mark.parametrize("same_process", [True, False])
def test_a_publish_repeated_after_its_answer_was_lost_is_made_once(
    main: Coordinator, same_process: bool
) -> None:
    lineage, changes = NewCommit(main.root.new_id(), actor="ada"), table_change(PERSON, 2, rows=4)
    with (
        failpoints.arm(AFTER_WRITE, failpoints.error(AFTER_WRITE)),
        pytest.raises(InternalError, match="injected"),
    ):
        publish(main, changes, lineage, expected={PERSON: 1})
    bare_publish(stranger(main.root), {PERSON: 3})
    again = main if same_process else stranger(main.root)
    done = publish(again, changes, lineage, expected={PERSON: 1})
    assert done.already_published
    assert (done.commit.id, done.commit.actor, done.commit.version) == (lineage.commit_id, "ada", 3)
    assert len(done.loaded.state.commits) == 3


def test_a_write_whose_answer_says_contention_but_which_landed_is_a_success(main: Coordinator) -> None:
    # Lance repeats a put whose answer was lost, and the repetition is refused: its own success.
    lineage = NewCommit(main.root.new_id())
    twin = stranger(main.root)
    main.load()
    with failpoints.arm(
        BEFORE_WRITE, failpoints.once(lambda: publish(twin, table_change(PERSON, 2), lineage))
    ):
        done = publish(main, table_change(PERSON, 2), lineage, expected={PERSON: 1})
    assert done.already_published
    assert done.commit.id == lineage.commit_id
    require_linear(done.loaded.state.commits.values(), [lineage.commit_id])


def test_a_store_that_fails_the_write_is_reported_and_nothing_is_there(graph: OpenGraph) -> None:
    main = Coordinator(Root.at(graph.root.layout.root, no_room_for("merge_rows")), "main")
    with pytest.raises(StorageFailure, match="no room"):
        send(main, table_change(PERSON, 2))
    assert len(stranger(graph.root).load().state.commits) == 1


def test_a_failed_write_that_landed_all_the_same_is_a_success(graph: OpenGraph) -> None:
    lineage = NewCommit(graph.root.new_id())
    twin = stranger(graph.root)

    class LosesAnswers(Recorder):
        """The write takes effect and the connection breaks before the answer."""

        def __call__(self, op: str, uri: str, /) -> None:
            if op == "merge_rows":
                publish(twin, table_change(PERSON, 2), lineage)
                raise StorageFailure("connection reset", kind="Transient", uri=uri)

    main = Coordinator(Root.at(graph.root.layout.root, LosesAnswers()), "main")
    done = publish(main, table_change(PERSON, 2), lineage)
    assert done.already_published
    assert done.commit == stranger(graph.root).load().state.commits[lineage.commit_id]


def test_a_store_that_fails_twice_reports_the_first_failure(graph: OpenGraph) -> None:
    class Down(Recorder):
        down = False

        def __call__(self, op: str, uri: str, /) -> None:
            self.down |= op == "merge_rows"
            if self.down:
                raise StorageFailure(f"{op} failed", kind="Transient", uri=uri)

    main = Coordinator(Root.at(graph.root.layout.root, Down()), "main")
    with pytest.raises(StorageFailure, match="merge_rows failed") as caught:
        send(main, table_change(PERSON, 2))
    assert "probe failed" in str(caught.value.__cause__)


# --- rivals and preconditions ----------------------------------------------------------------------


def test_of_two_outcomes_of_one_operation_the_first_decides(main: Coordinator) -> None:
    forward, back = main.root.new_id(), main.root.new_id()
    publish(main, table_change(PERSON, 2), NewCommit(forward, rival=back))
    with pytest.raises(Decided) as caught:
        publish(stranger(main.root), ManifestChanges(), NewCommit(back, rival=forward))
    assert (caught.value.commit_id, caught.value.rival) == (back, forward)
    assert publish(main, table_change(PERSON, 2), NewCommit(forward, rival=back)).already_published


def test_a_rival_that_lands_during_the_race_decides_too(main: Coordinator) -> None:
    forward, back = main.root.new_id(), main.root.new_id()
    other = stranger(main.root)
    main.load()
    race = failpoints.once(lambda: publish(other, ManifestChanges(), NewCommit(back, rival=forward)))
    with failpoints.arm(BEFORE_WRITE, race), pytest.raises(Decided):
        publish(main, table_change(PERSON, 2), NewCommit(forward, rival=back))
    assert forward not in stranger(main.root).load().state.commits


def test_an_exact_head_lets_nothing_slip_in_between(main: Coordinator) -> None:
    loaded = main.load()
    assert loaded.state.head is not None
    exact = ExactHead(loaded.identity, loaded.state.head.id)
    other = stranger(main.root)
    race = failpoints.once(lambda: bare_publish(other, {TEAM: 2}))
    with failpoints.arm(BEFORE_WRITE, race), pytest.raises(ReadSetChanged) as caught:
        publish(main, table_change(PERSON, 2), NewCommit(main.root.new_id()), precondition=exact)
    assert (caught.value.member, caught.value.expected) == ("graph_head:main", exact.head)
    moved = main.load()
    assert moved.state.head is not None
    assert caught.value.actual == moved.state.head.id
    publish(
        main,
        table_change(PERSON, 2),
        NewCommit(main.root.new_id()),
        precondition=ExactHead(moved.identity, moved.state.head.id),
    )


def test_an_exact_head_of_an_earlier_life_of_the_branch_is_refused(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    loaded = work.load()
    assert loaded.state.head is not None
    exact = ExactHead(loaded.identity, loaded.state.head.id)
    graph.root.forks.delete(graph.root.layout.manifest, "work")
    add_branch(graph, "work")
    with pytest.raises(ReadSetChanged) as caught:
        publish(work, ManifestChanges(), NewCommit(graph.root.new_id()), precondition=exact)
    assert caught.value.member == "branch:work"


def test_a_lost_acknowledgement_is_found_before_the_head_is_compared(main: Coordinator) -> None:
    loaded = main.load()
    assert loaded.state.head is not None
    exact = ExactHead(loaded.identity, loaded.state.head.id)
    lineage = NewCommit(main.root.new_id())
    publish(main, table_change(PERSON, 2), lineage, precondition=exact)
    assert publish(main, table_change(PERSON, 2), lineage, precondition=exact).already_published


# --- branches --------------------------------------------------------------------------------------


def test_a_fresh_branch_goes_on_from_where_it_was_made(graph: OpenGraph) -> None:
    point = bare_publish(graph.coordinator("main"), {PERSON: 2})
    work = add_branch(graph, "work")
    assert work.load().state.head == point.commit
    assert "work" not in work.load().state.heads
    done = bare_publish(work, {PERSON: 3})
    assert (done.commit.parent, done.commit.branch) == (point.commit.id, "work")
    require_consistent(done.loaded.state, "work")
    assert graph.load("main").state.head == point.commit


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_fresh_branch_first_heads_never_duplicate(
    place: str, folder: Location, request: pytest.FixtureRequest
) -> None:
    at = folder if place == "folder" else request.getfixturevalue("s3_root")
    graph = new_graph(at)
    for life in range(3 if place == "folder" else 1):
        branch = f"work{life}"
        add_branch(graph, branch)
        writers = [stranger(graph.root, branch) for _ in range(4)]
        for writer in writers:
            writer.load()
        together = threading.Barrier(len(writers))
        first_try = threading.local()

        def meet(together: threading.Barrier = together, first_try: threading.local = first_try) -> None:
            if not getattr(first_try, "done", False):
                first_try.done = True
                together.wait()

        with failpoints.arm(BEFORE_WRITE, meet), ThreadPoolExecutor(len(writers)) as pool:
            done = list(pool.map(bare_publish, writers))
        keys = manifest_rows(graph.root, branch).column(KEY).to_pylist()
        assert keys.count(f"graph_head:{branch}") == 1
        assert len(keys) == len(set(keys))
        state = stranger(graph.root, branch).load().state
        require_linear(state.commits.values(), [each.commit.id for each in done])


# --- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "readings",
    [[0] * 6, [5, 4, 3, 2, 1, 0], [10**18, 5, 10**18 + 7, 0, 10**18, 3]],
    ids=["frozen", "backwards", "jumping"],
)
def test_time_moves_on_along_a_chain_whatever_clocks_say(graph: OpenGraph, readings: list[int]) -> None:
    remaining = iter(readings)
    coordinator = with_clock(graph, lambda: next(remaining)).coordinator("main")
    done = [bare_publish(coordinator).commit for _ in readings]
    assert all(later.created_at > earlier.created_at for earlier, later in pairwise(done))
    require_linear(stranger(graph.root).load().state.commits.values(), [each.id for each in done])


def test_a_clock_that_is_ahead_is_believed(graph: OpenGraph) -> None:
    ahead = 4_000_000_000_000_000
    assert bare_publish(with_clock(graph, lambda: ahead).coordinator("main")).commit.created_at == ahead


# --- states that cannot be ------------------------------------------------------------------------


def test_a_version_of_a_table_without_a_place_stops_the_reader(main: Coordinator) -> None:
    from omnigraph.engine.graph.manifest import Records, encode
    from omnigraph.storage.cas import merge_rows

    rows = encode(Records(versions=[TableVersion("node:Ghost", 1, None, 0)]), {"node:Ghost": "nodes/ghost"})
    merge_rows(main.load().table, rows, KEY)
    with pytest.raises(CorruptGraph) as caught:
        stranger(main.root).load().state.entries()
    assert caught.value.object_id == "node:Ghost"
    with pytest.raises(CorruptGraph):
        bare_publish(stranger(main.root))


def test_a_publish_asks_for_the_newest_version_once_and_writes_once(graph: OpenGraph) -> None:
    recorder = Recorder()
    main = Coordinator(Root.at(graph.root.layout.root, recorder), "main")
    bare_publish(main)
    recorder.clear()
    bare_publish(main)
    assert recorder.counts() == {"probe": 1, "merge_rows": 1}
