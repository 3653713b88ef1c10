"""Cleanup: what is not needed is removed, and whatever is kept reads as before."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from ulid import ULID

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.schema_lock import find_lock, hold_schema_lock
from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table, read_rows
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.cleanup.unneeded_tables import find_removable_orphans, remove_orphan_tables
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import (
    Conflict,
    HistoricalVersionReclaimed,
    RecoveryRequired,
    SchemaApplyBlocked,
    StorageFailure,
    Unavailable,
)
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import stage_append
from tests.engine.cleanup.world import add, clean, newcomer, people_at, readable, table_at
from tests.engine.crash.matrix import make_scene
from tests.engine.crash.world import KNOWS, PERSON, TEAM, change, look, make_graph, require_settled, rows_of
from tests.engine.graphs import new_graph, no_room_for, tree, with_clock
from tests.engine.test_blob_updates import change_with
from tests.engine.upkeep_graph import commits_of

SECOND = 1_000_000
WEEK = 7 * 86_400


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    """Three persons, a team, and edges."""
    return make_graph(folder)


# --- what goes, and what stays -------------------------------------------------------------------


def test_the_newest_commits_stay_readable_and_older_ones_are_reported_as_reclaimed(graph: OpenGraph) -> None:
    made = add(graph, "p0", "p1", "p2", "p3", "p4")
    before = rows_of(look(graph))
    done = clean(graph, keep=2)
    assert [people_at(graph, commit) is not None for commit in made] == [False, False, False, True, True]
    assert people_at(graph, made[3]) == {"ada", "bo", "cy", "p0", "p1", "p2", "p3"}
    assert rows_of(look(newcomer(graph))) == before
    (person,) = (one for one in done.tables if one.key == PERSON)
    assert (person.versions_before, person.versions_removed, person.versions_after) == (7, 5, 2)
    assert person.bytes_removed > 0
    assert len(commits_of(graph)) == 7, "the history itself stays"


def test_a_second_cleanup_finds_nothing(graph: OpenGraph) -> None:
    add(graph, "p0", "p1", "p2")
    clean(graph)
    before = tree(graph.root.layout.root.path)
    done = clean(graph)
    assert (done.versions_removed, done.bytes_removed) == (0, 0)
    assert tree(graph.root.layout.root.path).keys() == before.keys()


def test_a_dry_run_tells_exactly_what_goes_then_and_touches_nothing(graph: OpenGraph) -> None:
    add(graph, "p0", "p1", "p2")
    add(graph, "q0", branch=create_branch(graph, "work").name)
    before = tree(graph.root.layout.root.path)
    preview = clean(newcomer(graph), dry=True)
    assert tree(graph.root.layout.root.path) == before
    done = clean(graph)
    assert preview.tables == done.tables
    assert sum(one.versions_removed for one in preview.tables) == 7


def stop_clock(moment: int) -> Callable[[], int]:
    return lambda: moment


def test_every_moment_of_the_time_that_is_kept_can_be_read(folder: Location, graph: OpenGraph) -> None:
    start = graph.root.clock() + 3_600 * SECOND
    for number in range(5):
        add(with_clock(graph, stop_clock(start + number * 60 * SECOND)), f"p{number}")
    now = start + 241 * SECOND
    cleanup(with_clock(graph, lambda: now), CleanupPolicy.of(None, "90s", 0.0))
    fresh = newcomer(graph)
    for ago, newest in ((0, "p4"), (30, "p3"), (89, "p2"), (90, "p2")):
        snapshot = fresh.snapshot(AtTime("main", now - ago * SECOND))
        found = table_rows(fresh, snapshot)
        assert max(name for name in found if name.startswith("p")) == newest
    with pytest.raises(HistoricalVersionReclaimed):
        table_rows(fresh, fresh.snapshot(AtTime("main", now - 125 * SECOND)))


def table_rows(graph: OpenGraph, snapshot: Snapshot) -> set[str]:
    return set(read_rows(graph, snapshot, "Person", ["name"], None).column("name").to_pylist())


def test_nothing_goes_that_was_current_less_than_the_minimum_age_ago(graph: OpenGraph) -> None:
    """A reader or writer in another process may stand still for so long."""
    made = add(graph, "p0", "p1", "p2")
    assert clean(graph, keep=1, age=600.0).versions_removed == 0
    assert all(people_at(graph, commit) for commit in made)
    later = with_clock(graph, lambda: Root.at(graph.root.layout.root).clock() + 601 * SECOND)
    assert clean(later, keep=1, age=600.0).versions_removed > 0


def test_a_version_that_upkeep_published_between_two_commits_stays_with_them(graph: OpenGraph) -> None:
    # The first load made a fragment; with so many more there is one too many.
    made = add(graph, *(f"p{number}" for number in range(MIN_FRAGMENTS)))
    state = graph.load("main").state
    assert state.head is not None
    assert state.version > state.head.version, "the last commit was tidied up after"
    clean(graph, keep=1)
    assert people_at(graph, made[-1]) is not None
    assert people_at(graph, made[-2]) is None
    fresh = newcomer(graph)
    for version in range(state.head.version, state.version + 1):
        assert "bo" in table_rows(fresh, fresh.snapshot(AtVersion("main", version)))


def test_what_optimize_replaced_is_freed(graph: OpenGraph) -> None:
    add(graph, *(f"p{number}" for number in range(5)))
    optimize(graph, Author("main"))
    entry = graph.load("main").state.entries()[PERSON]
    data = Path(graph.root.layout.table(entry.path).path, "data")
    assert len(list(data.iterdir())) == 7
    clean(graph, keep=1)
    assert len(list(data.iterdir())) == 1


def test_files_of_a_failed_load_go_after_a_week_and_never_before(graph: OpenGraph) -> None:
    """A change that is being prepared has such files, too."""
    table = table_at(graph)
    rows = pa.table({"id": ["x"], "name": ["x"], "age": [1]}, schema=table.schema)
    data = Path(table.uri, "data")
    known = set(data.iterdir())
    for _ in range(2):
        stage_append(table, rows)
    old, young = set(data.iterdir()) - known
    long_ago = time.time() - WEEK - 86_400
    os.utime(old, (long_ago, long_ago))
    clean(graph)
    assert (old.exists(), young.exists()) == (False, True)


def test_control_files_that_were_cut_short_go_after_a_day(graph: OpenGraph) -> None:
    root = Path(graph.root.layout.root.path)
    old, young = root / "_schema.pg#123", root / "_schema.pg#456"
    for file in (old, young):
        file.write_text("half")
    os.utime(old, (0, 0))
    clean(graph)
    assert (old.exists(), young.exists()) == (False, True)


# --- branches ------------------------------------------------------------------------------------


def test_what_any_branch_shows_or_keeps_stays(graph: OpenGraph) -> None:
    made = add(graph, "p0", "p1", "p2")
    create_branch(graph, "work")
    add(graph, "p3", "p4")
    add(graph, "w0", "w1", "w2", branch="work")
    create_branch(graph, "inner", from_branch="work")
    add(graph, "w3", branch="work")
    add(graph, "i0", branch="inner")
    create_branch(graph, "idle")
    add(graph, "p5")
    before = rows_of(look(graph))
    clean(graph, keep=1)
    assert rows_of(look(newcomer(graph))) == before
    kept = {branch: {one.id for one in readable(graph, branch)} for branch in graph.branch_names()}
    assert made[2] in kept["main"], "a merge of work would start there"
    assert len(kept["main"]) == 3, "its newest, and where work and idle began"
    for branch in graph.branch_names():
        assert commits_of(graph, branch)[-1].id in kept[branch]
        change(graph, 'update Person set { age: 7 } where name = "bo"', branch)
    require_settled(graph)


def test_an_idle_branch_does_not_hold_what_came_after_it(graph: OpenGraph) -> None:
    create_branch(graph, "idle")
    add(graph, *(f"p{number}" for number in range(9)))
    clean(graph, keep=1)
    assert len(table_at(graph).versions()) == 2
    assert people_at(graph, commits_of(graph, "idle")[-1].id) == {"ada", "bo", "cy"}


def test_forks_of_branches_that_are_gone_go_children_first(graph: OpenGraph) -> None:
    add(graph, "w0", branch=create_branch(graph, "work").name)
    create_branch(graph, "inner", from_branch="work")
    add(graph, "i0", branch="inner")
    point = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with failpoints.arm(point, failpoints.error(point)):
        delete_branch(graph, "inner")
        delete_branch(graph, "work")
    preview = clean(graph, dry=True)
    done = clean(graph)
    gone = [(one.key, one.branch, one.reason) for one in done.forks]
    assert gone == [(PERSON, "inner", "its branch is gone"), (PERSON, "work", "its branch is gone")]
    assert preview.forks == done.forks
    table = graph.root.layout.table(graph.load("main").state.entries()[PERSON].path)
    assert graph.root.forks.list(table) == {}
    assert not graph.root.objects.exists(table / "tree")


def test_a_fork_that_its_branch_does_not_show_goes_and_one_that_it_shows_stays(graph: OpenGraph) -> None:
    add(graph, "w0", branch=create_branch(graph, "work").name)
    teams = graph.load("main").state.entries()[TEAM]
    source = graph.root.tables.open(graph.root.layout.table(teams.path), teams.version)
    graph.root.forks.create(source, "work")
    done = clean(graph)
    assert [(one.key, one.branch, one.reason) for one in done.forks] == [
        (TEAM, "work", "its branch does not show it")
    ]
    assert "w0" in {row["name"] for row in rows_of(look(newcomer(graph)))["work"][PERSON]}


def test_a_fork_that_somebody_is_just_making_is_nothing_that_could_not_go(graph: OpenGraph) -> None:
    add(graph, "w0", branch=create_branch(graph, "work").name)
    teams = graph.load("main").state.entries()[TEAM]
    source = graph.root.tables.open(graph.root.layout.table(teams.path), teams.version)
    graph.root.forks.create(source, "work")
    point = failpoints.CLEANUP_RECONCILE_FORK
    writing = failpoints.once(lambda: change(graph, 'insert Team { name: "new" }', "work"))
    with failpoints.arm(point, writing):
        done = clean(OpenGraph.open(Root.at(graph.root.layout.root)))
    assert (done.forks, done.forks_left) == ((), ())
    assert {"new"} < {row["name"] for row in rows_of(look(newcomer(graph)))["work"][TEAM]}


def test_files_of_forks_that_were_never_finished_go(graph: OpenGraph) -> None:
    create_branch(graph, "team/ivy")
    add(graph, "w0", branch="team/ivy")
    teams = graph.root.layout.table(graph.load("main").state.entries()[TEAM].path)
    for place, name in ((teams, "half"), (teams, "team/half"), (graph.root.layout.manifest, "team/other")):
        file = Path(place.path, "tree", *name.split("/"), "_versions", "1.manifest")
        file.parent.mkdir(parents=True)
        file.write_text("x")
    done = clean(graph)
    assert [(one.key, one.branch) for one in done.forks] == [
        (TEAM, "team/half"),
        (TEAM, "half"),
        ("manifest", "team/other"),
    ]
    assert not Path(teams.path, "tree", "half").exists()
    assert "w0" in {row["name"] for row in rows_of(look(newcomer(graph)))["team/ivy"][PERSON]}


def test_a_fork_that_cannot_go_is_reported_and_everything_else_is_done(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    source = table_at(graph)
    graph.root.forks.create(source, "gone")
    point = failpoints.CLEANUP_RECONCILE_FORK
    with failpoints.arm(point, failpoints.error(point)):
        done = cleanup(graph, CleanupPolicy.of(1, None, 0.0))
    assert not done.ok
    assert [(one.branch, one.reason) for one in done.forks_left] == [
        ("gone", f"injected failure at '{point}'")
    ]
    assert done.versions_removed > 0


@pytest.mark.s3
def test_in_a_bucket_the_same_goes(s3_root: Location) -> None:
    graph = make_graph(s3_root)
    made = add(graph, "p0", "p1", "p2")
    add(graph, "w0", branch=create_branch(graph, "work").name)
    point = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with failpoints.arm(point, failpoints.error(point)):
        delete_branch(graph, "work")
    preview, done = clean(graph, dry=True), clean(graph)
    assert preview.forks == done.forks
    assert [(one.key, one.branch) for one in done.forks] == [(PERSON, "work")]
    assert [people_at(graph, commit) is not None for commit in made] == [False, False, True]
    assert table_at(graph).versions() == (5,)
    add(graph, "p3")


def test_blobs_that_are_needed_stay(folder: Location) -> None:
    graph = new_graph(folder, "node Doc { k: String @key  n: I32?  body: Blob? }")
    body = "base64:" + b64encode(b"x" * 100_000).decode()
    for number in range(4):
        text = f'insert Doc {{ k: "d{number}", n: 1, body: $b }}'
        change_with(graph, text, "$b: Blob", {"b": body})
    change_with(graph, 'update Doc set { n: 2 } where k = "d0"')
    optimize(graph, Author("main"))
    change_with(graph, 'delete Doc where k = "d3"')
    assert clean(graph).bytes_removed > 100_000
    fresh = newcomer(graph)
    rows = open_table(fresh, fresh.snapshot(AtBranch()), "node:Doc").scan(["k", "body"], blob_bytes=True)
    assert {row["k"]: len(row["body"]) for row in rows.to_pylist()} == dict.fromkeys(
        ["d0", "d1", "d2"], 100_000
    )


# --- what a cleanup refuses ----------------------------------------------------------------------


def stored_versions(graph: OpenGraph) -> tuple[int, ...]:
    return table_at(graph).versions()


def test_an_interrupted_write_is_recovered_first(graph: OpenGraph) -> None:
    point = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(RecoveryRequired):
        add(graph, "late")
    clean(graph)
    assert "late" in {row["name"] for row in rows_of(look(newcomer(graph)))["main"][PERSON]}


def test_an_unreadable_record_refuses_the_cleanup(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    before = stored_versions(graph)
    graph.root.objects.write_text(graph.root.layout.recovery / "01J0000000000000000000000A.json", "{")
    with pytest.raises(RecoveryRequired):
        clean(graph)
    assert stored_versions(graph) == before


def test_a_table_that_was_changed_past_the_door_refuses_the_cleanup(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    teams = lance.dataset(table_at(graph, TEAM).uri)
    teams.insert(pa.table({"id": ["x"], "name": ["x"], "title": ["x"]}, schema=teams.schema))
    before = stored_versions(graph)
    with pytest.raises(Conflict, match="changed outside of a commit") as refused:
        clean(graph)
    assert "omnigraph repair" in str(refused.value.remedy)
    assert stored_versions(graph) == before


def test_a_branch_that_cannot_be_read_refuses_the_cleanup(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    before = stored_versions(graph)
    create_branch(graph, "work")
    (only,) = Path(graph.root.layout.manifest.path, "tree", "work", "_versions").glob("*.manifest")
    only.write_text("damaged")
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    with pytest.raises(Unavailable, match="while branch 'work' cannot be read"):
        clean(reader, dry=True)
    with pytest.raises(StorageFailure, match="/__manifest/tree/work': open failed"):
        clean(reader)
    assert stored_versions(graph) == before


def test_a_branch_that_becomes_unreadable_in_between_refuses_the_cleanup_as_well(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    before = stored_versions(graph)
    point = failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT
    with (
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(Unavailable, match="nothing is cleaned up while branch 'main' cannot be read"),
    ):
        clean(graph)
    assert stored_versions(graph) == before


def test_a_schema_apply_under_way_refuses_the_cleanup_and_disturbs_no_preview(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    other = OpenGraph.open(Root.at(graph.root.layout.root))
    blocked = "cleanup is unavailable while schema apply is in progress"
    with hold_schema_lock(other, "op"):
        with pytest.raises(SchemaApplyBlocked, match=blocked):
            clean(graph)
        preview = clean(graph, dry=True)
    assert preview.tables == clean(graph).tables


def test_the_lock_of_a_schema_apply_that_died_does_not_keep_cleanups_away(graph: OpenGraph) -> None:
    add(graph, "p0", "p1")
    graph.root.forks.create(graph.load("main").table, LOCK_BRANCH)
    assert clean(graph).versions_removed > 0
    assert find_lock(graph.root) is None


def test_what_a_branch_takes_over_while_branches_are_read_stays(graph: OpenGraph) -> None:
    """One that was read already points at a version that only one knew which is gone by now."""
    create_branch(graph, "a")
    add(graph, "p0")
    create_branch(graph, "b")
    add(graph, "p1", "p2")

    def hand_over() -> None:
        merge(graph, MergeRequest("b"), Author("a"))
        delete_branch(graph, "b")

    # They are read for what is left over, then for what is needed; it happens before the last of them.
    steps: list[Callable[[], None]] = [hand_over, *[lambda: None] * 5]

    def before_a_branch_is_read() -> None:
        if steps:
            steps.pop()()

    with failpoints.arm(failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT, before_a_branch_is_read):
        clean(graph, keep=1)
    assert not steps
    assert graph.load("a").state.entries()[PERSON].owner is None
    fresh = newcomer(graph)
    assert table_rows(fresh, fresh.snapshot(AtBranch("a"))) == {"ada", "bo", "cy", "p0"}


@pytest.mark.parametrize("op", ["list_tags", "collect"])
def test_a_branch_that_is_deleted_meanwhile_fails_no_cleanup(graph: OpenGraph, op: str) -> None:
    add(graph, "p0", "p1")
    add(graph, "w0", "w1", branch=create_branch(graph, "work").name)
    person = table_at(graph).uri

    class Deleting(Recorder):
        def __call__(self, called: str, uri: str, /) -> None:
            if called == op and uri.startswith(person) and "work" in graph.branch_names():
                delete_branch(graph, "work")

    done = clean(OpenGraph.open(Root.at(graph.root.layout.root, Deleting())))
    assert graph.branch_names() == ["main"]
    assert done.versions_removed > 0
    clean(graph)
    require_settled(graph)


def test_one_table_that_fails_does_not_keep_the_others(graph: OpenGraph) -> None:
    for number in range(3):
        text = f'insert Person {{ name: "p{number}" }} insert Team {{ name: "t{number}" }}'
        change(graph, text)
    team = table_at(graph, TEAM).uri

    broken = OpenGraph.open(
        Root.at(graph.root.layout.root, no_room_for("collect", where=lambda uri: uri == team))
    )
    done = cleanup(broken, CleanupPolicy.of(1, None, 0.0))
    found = {one.key: (one.versions_removed, one.failure) for one in done.tables}
    assert not done.ok
    assert found[TEAM] == (0, "no room")
    assert found[PERSON][0] == 4
    assert found[KNOWS][1] is None


# --- those who read meanwhile --------------------------------------------------------------------


def test_a_handle_that_read_the_past_before_learns_that_it_is_gone(graph: OpenGraph) -> None:
    made = add(graph, "p0", "p1", "p2")
    reader = newcomer(graph)
    pinned = reader.snapshot(AtCommit(made[0]))
    assert "p0" in table_rows(reader, pinned)
    optimize(graph, Author("main"))
    clean(graph)
    with pytest.raises(HistoricalVersionReclaimed, match="version 3 of table 'node:Person'"):
        table_rows(reader, pinned)
    assert "p2" in table_rows(reader, reader.snapshot(AtBranch()))


# --- dropped types -------------------------------------------------------------------------------


def test_the_table_of_a_dropped_type_goes_with_the_last_commit_that_shows_it(graph: OpenGraph) -> None:
    entry = graph.load("main").state.entries()[KNOWS]
    before = commits_of(graph)[-1].id
    without = "\n".join(line for line in graph.schema().source.splitlines() if "edge Knows" not in line)
    assert apply_schema(graph, SchemaRequest(Source(without))).applied
    place = Path(graph.root.layout.table(entry.path).path)
    assert [one.key for one in clean(graph, keep=2).dropped] == []
    assert place.exists()
    preview = clean(graph, keep=1, dry=True)
    assert place.exists()
    done = clean(graph, keep=1)
    assert [one.key for one in preview.dropped] == [one.key for one in done.dropped] == [KNOWS]
    assert done.dropped[0].bytes > 0
    assert not place.exists()
    fresh = newcomer(graph)
    with pytest.raises(HistoricalVersionReclaimed):
        open_table(fresh, fresh.snapshot(AtCommit(before)), KNOWS).scan()
    add(graph, "next")
    clean(graph)


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op", "times"), [("cleanup", "collect", 8), ("cleanup-orphan-forks", "delete", 1)]
)
def test_the_cleanups_of_the_crash_matrix_do_remove_something(
    tmp_path: Path, name: str, op: str, times: int
) -> None:
    at = Location.parse(tmp_path)
    make_graph(at / "base")
    scene = make_scene(name, at / "base", at / "scene")
    assert [call.op for call in scene.forward].count(op) == times


def test_the_files_of_a_load_that_was_cut_off_go_after_a_week(tmp_path: Path) -> None:
    graph = new_graph(Location.parse(tmp_path / "g"))
    now = graph.root.clock()
    week = 7 * 86_400 * 1_000_000
    old, fresh = (str(ULID.from_timestamp((now - age) / 1_000_000)) for age in (week + 60_000_000, week // 2))
    for load in (old, fresh, "notes"):
        graph.root.objects.write_text(graph.root.layout.staging / f"{load}/rows/x/data/piece.lance", "rows")
    assert cleanup(graph, CleanupPolicy(1, None, 0), dry_run=True).loads == (old,)
    assert graph.root.objects.list_folders(graph.root.layout.staging)
    assert cleanup(graph, CleanupPolicy(1, None, 0)).loads == (old,)
    assert sorted(graph.root.objects.list_folders(graph.root.layout.staging)) == sorted([fresh, "notes"])


def test_staged_files_are_reported_with_their_size_and_removed_now_if_asked_for(tmp_path: Path) -> None:
    graph = new_graph(Location.parse(tmp_path / "g"))
    load = str(ULID.from_timestamp(graph.root.clock() / 1_000_000 - 60))
    graph.root.objects.write_text(graph.root.layout.staging / f"{load}/rows/x/data/piece.lance", "rows")
    found = examine(graph)
    assert [(one.load, one.files, one.bytes, one.removable) for one in found.staged] == [(load, 1, 4, False)]
    assert found.ok  # it may be running
    week = 7 * 86_400 * 1_000_000
    later = OpenGraph.open(replace(graph.root, clock=lambda: graph.root.clock() + week), read_only=True)
    assert not examine(later).ok
    commits = cleanup(graph, CleanupPolicy.of(None, None, 0, "2m"), dry_run=True)
    assert (commits.loads, commits.versions_removed) == ((), 0)
    done = cleanup(graph, CleanupPolicy.of(None, None, 0, "0s"))
    assert (done.loads, done.staged_bytes, done.bytes_removed) == ((load,), 4, 4)
    assert graph.root.objects.list_folders(graph.root.layout.staging) == []


@pytest.mark.s3
def test_a_table_that_a_failed_schema_change_left_in_a_bucket_goes_after_a_week(s3_root: Location) -> None:
    graph = new_graph(s3_root, "node P { k: String @key }")
    wanted = SchemaRequest(Source("node P { k: String @key }\nnode Q { k: String @key }"))
    point = failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(RecoveryRequired):
        apply_schema(graph, wanted)
    change(graph, 'insert P { k: "a" }')
    shown = {entry.path for entry in graph.load("main").state.entries().values()}

    def stored() -> set[str]:
        return {f"nodes/{name}" for name in graph.root.objects.list_folders(s3_root / "nodes")}

    (left,) = stored() - shown
    later = with_clock(graph, lambda: graph.root.clock() + 8 * 86_400 * 1_000_000)
    branches = [graph.load("main")]
    assert find_removable_orphans(graph, branches) == []
    assert find_removable_orphans(later, branches) == [left]
    done = clean(later)
    assert done.orphan_tables == done.in_vain == (left,)
    assert stored() == shown
    assert apply_schema(graph, wanted).applied
    assert stored() == shown | {left}
    # A cleanup that looked before that does not remove what is used by now, however old it is.
    assert remove_orphan_tables(later, [left]) == []
    change(graph, 'insert Q { k: "b" }')


def test_what_is_no_table_of_ours_stays(tmp_path: Path) -> None:
    graph = new_graph(Location.parse(tmp_path / "g"))
    notes = graph.root.layout.root / "nodes" / "notes" / "read.me"
    graph.root.objects.write_text(notes, "mine")
    later = with_clock(graph, lambda: graph.root.clock() + 8 * 86_400 * 1_000_000)
    assert clean(later).orphan_tables == ()
    assert graph.root.objects.read_text(notes) == "mine"
