"""Graphs of older forms: read as they are, brought to the current form, or refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph import format_stamp as stamp
from omnigraph.engine.graph import migrations
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph, ReadTarget
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.lang.schema.ir import legacy_ir
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from tests.engine.graphs import bare_publish, manifest_rows, require_consistent, tree
from tests.engine.old_graphs import (
    FIRST_MOMENT,
    KNOWS,
    PERSON,
    OldGraph,
    kinds,
    open_again,
    require_migrated,
    small_graph,
    stored_stamp,
    story,
)

NAMED = ("deep", "idle", "unrecorded", "work")
FORMS = [(1, False), (2, True), (3, True), (3, False)]
forms = pytest.mark.parametrize(("form", "stable"), FORMS)


def require_same_history(graph: OpenGraph, old: OldGraph) -> None:
    """Every branch shows the commits it had, and every commit the tables it had."""
    for branch in (MAIN, *NAMED):
        state = graph.load(branch).state
        assert state.commits == old.history(branch)
        assert state.head == old.branches[branch].commits[-1]
        assert graph.snapshot(AtBranch(branch)).entries == old.branches[branch].entries
    targets: list[tuple[ReadTarget, str]] = [(AtCommit(found), found) for found in old.snapshots]
    targets += [(AtVersion("deep", commit.version), commit.id) for commit in old.branches["deep"].commits]
    targets += [(AtTime("deep", commit.created_at), commit.id) for commit in old.branches["deep"].commits]
    for target, commit_id in targets:
        found = graph.snapshot(target)
        assert found.commit is not None
        assert (found.commit.id, found.entries) == (commit_id, old.snapshots[commit_id]), target


# --- history -------------------------------------------------------------------------------------


@forms
def test_read_only_open_shows_history_and_writes_nothing(folder: Location, form: int, stable: bool) -> None:
    old = story(folder, form, stable_row_ids=stable)
    before = tree(folder.path)
    graph = open_again(folder, read_only=True)
    require_same_history(graph, old)
    assert tree(folder.path) == before


@forms
def test_migration_keeps_history(folder: Location, form: int, stable: bool) -> None:
    old = story(folder, form, stable_row_ids=stable)
    graph = open_again(folder)
    require_migrated(old)
    require_same_history(graph, old)
    require_consistent(graph.load(MAIN).state)
    assert graph.branch_names() == [MAIN, *NAMED]


@forms
def test_each_branch_is_migrated_by_its_first_publish(folder: Location, form: int, stable: bool) -> None:
    old = story(folder, form, stable_row_ids=stable)
    graph = open_again(folder)
    unmigrated = stored_stamp(old, "work")
    assert unmigrated == (None if form == 1 else str(form))
    for done, branch in enumerate(NAMED, start=1):
        made = bare_publish(graph.coordinator(branch), actor="zoe").commit
        head = old.branches[branch].commits[-1]
        assert (made.parent, made.branch, made.actor) == (head.id, branch, "zoe")
        require_migrated(old, branch)
        for other in (open_again(folder), graph):
            state = other.load(branch).state
            assert state.commits == {**old.history(branch), made.id: made}
            assert state.head == made
            require_consistent(state, branch)
        assert [stored_stamp(old, name) for name in NAMED[done:]] == [unmigrated] * (len(NAMED) - done)
        for commit in old.branches[branch].commits:
            found = graph.snapshot(AtVersion(branch, commit.version))
            assert (found.commit, found.entries) == (commit, old.snapshots[commit.id])


def test_migrated_rows_are_the_ones_the_current_form_has(folder: Location) -> None:
    old = OldGraph(folder, 3)
    old.branch("work")
    second = old.commit(actor="ann")
    third = old.commit(merged=second.id)
    before = old.stored("__manifest").to_table()
    open_again(folder)
    rows = old.stored("__manifest").to_table()
    assert rows.slice(0, before.num_rows) == before
    added = {row["object_id"]: row for row in rows.slice(before.num_rows).to_pylist()}
    first = old.branches[MAIN].commits[0]
    assert list(added) == [first.id, second.id, third.id, "graph_head:main"]
    moment = FIRST_MOMENT
    for commit, metadata in (
        (first, {"created_at": moment}),
        (second, {"parent_commit_id": first.id, "actor_id": "ann", "created_at": moment + 1_000_000}),
        (
            third,
            {
                "parent_commit_id": second.id,
                "merged_parent_commit_id": second.id,
                "created_at": moment + 2_000_000,
            },
        ),
    ):
        row = added[commit.id]
        assert json.loads(row.pop("metadata")) == metadata
        assert row == {
            "object_id": commit.id,
            "object_type": "graph_commit",
            "location": None,
            "base_objects": None,
            "table_key": "",
            "table_version": commit.version,
            "table_branch": "main",
            "row_count": None,
        }
    head = added["graph_head:main"]
    assert json.loads(head["metadata"]) == {"head_commit_id": third.id, "parent_commit_id": second.id}


def test_graph_with_a_single_commit_keeps_its_version(folder: Location) -> None:
    old = OldGraph(folder, 1)
    graph = open_again(folder)
    assert graph.load(MAIN).state.commits == old.history(MAIN)
    first = old.branches[MAIN].commits[0]
    second = bare_publish(graph.coordinator(MAIN)).commit
    again = open_again(folder)
    assert again.load(MAIN).state.commits == {first.id: first, second.id: second}
    assert again.snapshot(AtVersion(MAIN, 1)).commit == first


def test_rows_of_every_old_commit_can_be_read_after_migration(folder: Location) -> None:
    old = story(folder, 1)
    graph = open_again(folder)
    for commit_id in old.snapshots:
        for entry in graph.snapshot(AtCommit(commit_id)).entries.values():
            place = graph.root.layout.table(entry.path)
            table = graph.root.tables.open(place, entry.version, branch=entry.owner)
            assert table.count() == entry.row_count


def test_legacy_tables_stay_as_they_were(folder: Location) -> None:
    story(folder, 2)
    names = ("_graph_commits.lance", "_graph_commit_actors.lance", PERSON, KNOWS)
    before = {name: tree(folder.path / name) for name in names}
    bare_publish(open_again(folder).coordinator("work"))
    assert {name: tree(folder.path / name) for name in names} == before


def test_graph_whose_commits_were_never_recorded_starts_its_history_over(folder: Location) -> None:
    old = OldGraph(folder, 1, lineage=False)
    assert open_again(folder, read_only=True).load(MAIN).state.commits == {}
    graph = open_again(folder)
    assert stored_stamp(old) == "4"
    assert kinds(manifest_rows(graph.root)) == {"table": 2, "table_version": 2}
    first = bare_publish(graph.coordinator(MAIN)).commit
    second = bare_publish(graph.coordinator(MAIN)).commit
    assert (first.parent, second.parent) == (None, first.id)
    assert open_again(folder).load(MAIN).state.commits == {first.id: first, second.id: second}


def test_open_graph_sees_what_an_old_release_goes_on_writing(folder: Location) -> None:
    old = OldGraph(folder, 3)
    graph = open_again(folder, read_only=True)
    graph.load(MAIN)
    old.commit(actor="ann")
    assert graph.load(MAIN).state.commits == old.history(MAIN)
    assert graph.snapshot(AtBranch()).entries == old.branches[MAIN].entries


def test_reader_of_the_old_form_follows_a_migration(folder: Location) -> None:
    old = story(folder, 2)
    reader = open_again(folder, read_only=True)
    require_same_history(reader, old)
    writer = open_again(folder)
    made = bare_publish(writer.coordinator(MAIN)).commit
    assert reader.load(MAIN).state.commits == {**old.history(MAIN), made.id: made}


def test_schema_numbered_by_name_hashes_is_read_as_it_is(folder: Location) -> None:
    OldGraph(folder, 3)
    stored = json.loads((folder.path / "_schema.ir.json").read_text())
    accepted = open_again(folder).schema().accepted
    assert legacy_ir(accepted) == stored
    assert min(accepted.known_identities.types.values()) > 1_000


def test_migration_of_a_graph_in_any_store(shared_root: Location) -> None:
    old = OldGraph(shared_root, 1)
    old.commit(actor="ann")
    old.branch("work")
    old.commit("work", actor="bob")
    old.branch("__run__01")
    assert open_again(shared_root, read_only=True).load("work").state.commits == old.history("work")
    graph = open_again(shared_root)
    require_migrated(old)
    assert graph.branch_names() == [MAIN, "work"]
    made = bare_publish(graph.coordinator("work")).commit
    require_migrated(old, "work")
    assert open_again(shared_root).load("work").state.commits == {**old.history("work"), made.id: made}


# --- manifests whose rows do not remember when they were written ---------------------------------


def test_manifest_without_stable_row_ids_stays_usable(folder: Location) -> None:
    old = story(folder, 3, stable_row_ids=False)
    ours, theirs = open_again(folder), open_again(folder)
    ours.load(MAIN)
    made = []
    for number in range(3):
        made.append(bare_publish(theirs.coordinator(MAIN), {"node:Person": 10 + number}).commit)
        made.append(bare_publish(ours.coordinator(MAIN), {"edge:Knows": 10 + number}).commit)
    expected = {**old.history(MAIN), **{commit.id: commit for commit in made}}
    for graph in (ours, theirs, open_again(folder)):
        assert graph.load(MAIN).state.commits == expected
        for commit in made:
            assert graph.snapshot(AtCommit(commit.id)).commit == commit
    third = ours.snapshot(AtCommit(made[2].id)).entries
    assert {key: entry.version for key, entry in third.items()} == {"node:Person": 11, "edge:Knows": 10}


def test_version_that_is_no_longer_stored_is_named(folder: Location) -> None:
    old = story(folder, 3, stable_row_ids=False)
    graph = open_again(folder)
    version = old.branches[MAIN].commits[1].version
    shutil.move(
        folder.path / "__manifest" / "_versions" / f"{2**64 - 1 - version:020d}.manifest",
        folder.path / "away",
    )
    with pytest.raises(errors.HistoricalVersionReclaimed, match=f"version {version} of table '__manifest'"):
        graph.snapshot(AtVersion(MAIN, version))


# --- branches of old writers ---------------------------------------------------------------------


def test_users_branch_with_the_name_of_a_run_survives_a_later_migration(folder: Location) -> None:
    story(folder, 2)
    graph = open_again(folder)
    graph.root.forks.create(graph.load(MAIN).table, "__run__mine")
    bare_publish(graph.coordinator("work"))
    assert "__run__mine" in graph.branch_names()


def test_run_that_another_runner_removed_first_is_no_failure(folder: Location) -> None:
    story(folder, 2)
    manifest = str(folder / "__manifest")

    def be_faster(op: str, uri: str, /) -> None:
        if op == "delete_fork" and uri.endswith("__run__03"):
            lance.dataset(manifest).branches.delete("__run__03")

    OpenGraph.open(Root.at(folder, be_faster))
    assert open_again(folder).branch_names() == [MAIN, *NAMED]


def test_run_from_which_a_branch_was_made_stays(folder: Location, caplog: pytest.LogCaptureFixture) -> None:
    old = story(folder, 1)
    old.branch("kept", from_="__run__01")
    graph = open_again(folder)
    assert graph.branch_names() == [MAIN, "__run__01", *sorted([*NAMED, "kept"])]
    assert "branch '__run__01' stays" in caplog.text
    assert graph.load("kept").state.commits == old.history("kept")


def test_new_branch_does_not_inherit_from_a_deleted_one_of_its_name(folder: Location) -> None:
    old = story(folder, 3)
    graph = open_again(folder)
    delete_branch(graph, "deep")
    create_branch(graph, "deep", from_branch="work")
    require_migrated(old, "work")
    for seen in (graph, open_again(folder, read_only=True)):
        assert seen.load("work").state.commits == old.history("work")
        assert seen.load("deep").state.commits == old.history("work")
    made = bare_publish(graph.coordinator("deep")).commit
    assert open_again(folder).load("deep").state.commits == {**old.history("work"), made.id: made}


# --- absence is proven ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [TableFailureKind.TRANSIENT, TableFailureKind.RECLAIMED, TableFailureKind.UNKNOWN]
)
def test_failed_open_of_the_legacy_commits_stops_the_migration(
    folder: Location, kind: TableFailureKind
) -> None:
    old = small_graph(folder)

    def fail() -> None:
        raise table_failure(kind, "open", str(folder / "_graph_commits.lance"), "not now")

    with failpoints.arm(failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, fail):
        with pytest.raises(errors.StorageFailure, match="not now"):
            open_again(folder)
        with pytest.raises(errors.StorageFailure, match="not now"):
            open_again(folder, read_only=True).load(MAIN)
    assert stored_stamp(old) == "3"
    assert "graph_commit" not in kinds(old.stored("__manifest").to_table())
    assert open_again(folder).load(MAIN).state.commits == old.history(MAIN)


def lose_data(table: Path) -> None:
    for file in (table / "data").iterdir():
        file.unlink()


def lose_versions(table: Path) -> None:
    for file in (table / "_versions").iterdir():
        file.unlink()


def garble_versions(table: Path) -> None:
    for file in (table / "_versions").iterdir():
        file.write_bytes(b"not a version")


@pytest.mark.parametrize("table", ["_graph_commits.lance", "_graph_commit_actors.lance"])
@pytest.mark.parametrize("damage", [lose_data, lose_versions, garble_versions])
def test_damaged_legacy_table_never_passes_for_an_absent_one(
    folder: Location, table: str, damage: Callable[[Path], None]
) -> None:
    old = small_graph(folder)
    shutil.copytree(folder.path / table, folder.path.parent / "backup")
    damage(folder.path / table)
    with pytest.raises((errors.StorageFailure, errors.CorruptGraph), match=table):
        open_again(folder)
    assert stored_stamp(old) == "3"
    assert "graph_commit" not in kinds(old.stored("__manifest").to_table())
    shutil.rmtree(folder.path / table)
    shutil.move(folder.path.parent / "backup", folder.path / table)
    assert open_again(folder).load(MAIN).state.commits == old.history(MAIN)


@pytest.mark.parametrize("damage", [lose_versions, garble_versions])
def test_damaged_commits_of_a_branch_never_pass_for_absent_ones(
    folder: Location, damage: Callable[[Path], None]
) -> None:
    old = small_graph(folder)
    graph = open_again(folder)
    fork = folder.path / "_graph_commits.lance" / "tree" / "work"
    shutil.copytree(fork, folder.path.parent / "backup")
    damage(fork)
    for use in (graph.load, lambda branch: bare_publish(graph.coordinator(branch))):
        with pytest.raises(
            (errors.StorageFailure, errors.CorruptGraph), match=r"_graph_commits\.lance/tree/work"
        ):
            use("work")
    assert stored_stamp(old, "work") is None
    shutil.rmtree(fork)
    shutil.move(folder.path.parent / "backup", fork)
    made = bare_publish(graph.coordinator("work")).commit
    assert graph.load("work").state.commits == {**old.history("work"), made.id: made}
    assert graph.load(MAIN).state.commits == old.history(MAIN)


def lose_reference(folder: Location, branch: str, *, with_files: bool) -> None:
    """Remove the reference of a branch's commits; its files alone would still show them."""
    commits = folder.path / "_graph_commits.lance"
    (commits / "_refs" / "branches" / f"{branch}.json").unlink()
    if with_files:
        shutil.rmtree(commits / "tree" / branch)


@pytest.mark.parametrize("form", [1, 2, 3])
def test_commits_whose_files_lost_only_their_reference_are_kept(folder: Location, form: int) -> None:
    old = story(folder, form)
    lose_reference(folder, "work", with_files=False)
    graph = open_again(folder)
    made = bare_publish(graph.coordinator("work")).commit
    assert graph.load("work").state.commits == {**old.history("work"), made.id: made}


@pytest.mark.parametrize("form", [1, 2, 3])
def test_own_commits_of_a_branch_whose_reference_is_missing_are_never_left_out(
    folder: Location, form: int
) -> None:
    old = story(folder, form)
    lose_reference(folder, "work", with_files=True)
    graph = open_again(folder)
    stamped = stored_stamp(old, "work")
    uses: list[Callable[[], object]] = [
        lambda: graph.load("work"),
        lambda: bare_publish(graph.coordinator("work")),
        lambda: create_branch(graph, "new", from_branch="work"),
        lambda: open_again(folder, read_only=True).load("work"),
    ]
    for use in uses:
        with pytest.raises(errors.CorruptGraph, match="branch 'work' has commits of its own") as caught:
            use()
        assert caught.value.remedy is not None
    assert stored_stamp(old, "work") == stamped
    assert "graph_commit" not in kinds(old.stored("__manifest", "work").to_table())
    assert [one.branch for one in examine(graph).unread] == ["deep", "work"]
    # Others do not need it: main, and branches that never committed.
    for branch in (MAIN, "idle", "unrecorded"):
        assert graph.load(branch).state.commits == old.history(branch)
        made = bare_publish(graph.coordinator(branch)).commit
        assert graph.load(branch).state.commits == {**old.history(branch), made.id: made}


def test_a_branch_without_a_reference_does_not_hide_the_missing_one_of_its_parent(folder: Location) -> None:
    old = OldGraph(folder, 3)
    old.branch("work")
    old.commit("work")
    old.branch("below", from_="work", recorded=False)
    lose_reference(folder, "work", with_files=True)
    graph = open_again(folder)
    for branch in ("work", "below"):
        with pytest.raises(errors.CorruptGraph, match="branch 'work' has commits of its own"):
            bare_publish(graph.coordinator(branch))
        assert stored_stamp(old, branch) == "3"


# --- commits of an earlier branch of the same name -----------------------------------------------


def forget_manifest_branch(old: OldGraph, name: str) -> None:
    """Delete a branch as a release did that died before it came to the commits of the branch."""
    old.stored("__manifest").branches.delete(name)
    old.stored(PERSON).branches.delete(name)
    del old.branches[name]


def drop_commit_reference(folder: Location, name: str) -> None:
    lose_reference(folder, name, with_files=False)


def keep_commit_reference(_folder: Location, _name: str) -> None:
    """It is left behind with its files."""


def never_written(old: OldGraph) -> None:
    old.branch("work", recorded=False)


def made_from_another_branch(old: OldGraph) -> None:
    old.branch("side")
    old.commit("side")
    old.commit("side")
    old.branch("work", from_="side", recorded=False)
    publish_unrecorded(old, "work", 2)


def made_from_later_commits(old: OldGraph) -> None:
    for _ in range(3):
        old.commit()
    old.branch("work", recorded=False)
    publish_unrecorded(old, "work", 5)


def behind_its_predecessor(old: OldGraph) -> None:
    old.branch("work", recorded=False)
    publish_unrecorded(old, "work", 1)


def publish_unrecorded(old: OldGraph, branch: str, times: int) -> None:
    """Publish as a process that died before it recorded the commits."""
    for _ in range(times):
        manifest = old.stored("__manifest", branch)
        row = manifest.to_table().slice(0, 1).to_pylist()[0] | {"object_id": f"other{manifest.version}"}
        lance.write_dataset(
            pa.Table.from_pylist([row], schema=manifest.schema.remove_metadata()), manifest, mode="append"
        )


LATER = [never_written, made_from_another_branch, made_from_later_commits, behind_its_predecessor]


@pytest.mark.parametrize("recreate", LATER)
@pytest.mark.parametrize("reference", [keep_commit_reference, drop_commit_reference])
@pytest.mark.parametrize("form", [1, 3])
def test_commits_of_an_earlier_branch_of_the_same_name_are_never_taken_over(
    folder: Location,
    form: int,
    reference: Callable[[Location, str], None],
    recreate: Callable[[OldGraph], None],
) -> None:
    old = OldGraph(folder, form)
    old.commit()
    old.branch("work")
    old.commit("work")
    old.commit("work")
    forget_manifest_branch(old, "work")
    reference(folder, "work")
    recreate(old)
    stamped = stored_stamp(old, "work")
    graph = open_again(folder)
    uses: list[Callable[[], object]] = [
        lambda: graph.load("work"),
        lambda: bare_publish(graph.coordinator("work")),
        lambda: create_branch(graph, "new", from_branch="work"),
        lambda: open_again(folder, read_only=True).load("work"),
    ]
    for use in uses:
        with pytest.raises(errors.CorruptGraph, match="belong to an earlier branch of that name") as caught:
            use()
        assert caught.value.remedy is not None
    assert stored_stamp(old, "work") == stamped
    assert "graph_commit" not in kinds(old.stored("__manifest", "work").to_table())
    assert [one.branch for one in examine(graph).unread] == ["work"]
    assert graph.load(MAIN).state.commits == old.history(MAIN)
    delete_branch(graph, "work")
    create_branch(graph, "work")
    assert graph.load("work").state.commits == old.history(MAIN)


@pytest.mark.parametrize(("table", "seconds"), [("__manifest", 86_400), ("_graph_commits.lance", -86_400)])
def test_commits_that_are_older_than_their_branch_are_never_taken_over(
    folder: Location, table: str, seconds: int
) -> None:
    """Only their times show it: the branch was made at the same commit and published as often."""
    old = OldGraph(folder, 3)
    old.branch("work")
    old.commit("work")
    at = folder.path / table / "_refs" / "branches" / "work.json"
    facts = json.loads(at.read_text())
    last = old.branches["work"].commits[-1].created_at // 1_000_000
    facts["createAt"] = (last if table == "__manifest" else facts["createAt"]) + seconds
    at.write_text(json.dumps(facts))
    graph = open_again(folder)
    with pytest.raises(errors.CorruptGraph, match="older than the branch"):
        bare_publish(graph.coordinator("work"))
    assert stored_stamp(old, "work") == "3"


def test_a_branch_that_was_made_while_others_committed_is_migrated(folder: Location) -> None:
    """Commits are forked a moment later than the manifest: one more was recorded by then, or one less."""
    old = OldGraph(folder, 3)
    old.commit()
    manifest, commits = old.stored("__manifest"), old.stored("_graph_commits.lance")
    late = commits.version
    old.commit()
    manifest.create_branch("ahead", (None, manifest.version))
    old.stored("__manifest").create_branch("behind", (None, old.stored("__manifest").version))
    old.stored("_graph_commits.lance").create_branch(
        "ahead", (None, old.stored("_graph_commits.lance").version)
    )
    commits.create_branch("behind", (None, late))
    graph = open_again(folder)
    for branch, count in (("ahead", 3), ("behind", 2)):
        made = bare_publish(graph.coordinator(branch)).commit
        assert len(graph.load(branch).state.commits) == count + 1
        assert made.branch == branch


def test_branches_of_a_graph_whose_commits_were_never_recorded_are_migrated(folder: Location) -> None:
    old = OldGraph(folder, 3, lineage=False)
    old.branch("work")
    graph = open_again(folder)
    made = bare_publish(graph.coordinator("work")).commit
    assert graph.load("work").state.commits == {made.id: made}


# --- refused -------------------------------------------------------------------------------------


REFUSALS = [
    ("5", "the graph has format 5, and this release knows formats 1 to 4", "upgrade omnigraph"),
    ("0", "the graph has format 0, and this release knows formats 1 to 4", "migrate it with an older"),
    ("four", "the graph's format stamp 'four' is not a number", "restore the manifest from a backup"),
    ("-1", "the graph's format stamp '-1' is not a number", "restore the manifest from a backup"),
    ("", "the graph's format stamp '' is not a number", "restore the manifest from a backup"),
    ("9" * 5000, "is not a number", "restore the manifest from a backup"),
]


@pytest.mark.parametrize(
    ("text", "message", "remedy"), REFUSALS, ids=[row[0][:5] or "none" for row in REFUSALS]
)
def test_stamp_out_of_range_is_refused_everywhere(
    folder: Location, text: str, message: str, remedy: str
) -> None:
    old = small_graph(folder)
    graph = open_again(folder)
    graph.load(MAIN)
    graph.load("work")
    old.set_stamp(text, "work")
    of_work: list[Callable[[], object]] = [
        lambda: graph.load("work"),
        lambda: bare_publish(graph.coordinator("work")),
    ]
    for use in of_work:
        with pytest.raises(errors.UnsupportedFormat) as refused:
            use()
        assert message in refused.value.message
        assert refused.value.remedy is not None
        assert remedy in refused.value.remedy
    assert open_again(folder).load(MAIN).state.commits == old.history(MAIN)
    old.set_stamp(text)
    before = old.stored("__manifest").version
    of_main: list[Callable[[], object]] = [
        lambda: open_again(folder),
        lambda: open_again(folder, read_only=True),
        lambda: graph.load(MAIN),
    ]
    for use in of_main:
        with pytest.raises(errors.UnsupportedFormat) as refused:
            use()
        assert message in refused.value.message
    assert old.stored("__manifest").version == before


def test_floor_refuses_older_forms_and_leaves_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, at = (Location.parse(tmp_path / name) for name in ("below", "at"))
    OldGraph(below, 2)
    old = OldGraph(at, 3)
    monkeypatch.setattr(stamp, "MIN_SUPPORTED", 3)
    for read_only in (True, False):
        with pytest.raises(errors.UnsupportedFormat, match="format 2, and this release knows formats 3 to 4"):
            open_again(below, read_only=read_only)
    assert open_again(at).load(MAIN).state.commits == old.history(MAIN)


@pytest.mark.parametrize(("name", "value"), [("MIN_SUPPORTED", 2), ("MIN_SUPPORTED", 0), ("CURRENT", 5)])
def test_floor_and_steps_that_disagree_do_not_import(
    monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(stamp, name, value)
    spec = importlib.util.spec_from_file_location("migrations_again", migrations.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    with pytest.raises(errors.InternalError, match=r"migration steps start at formats \[1, 2, 3\]"):
        spec.loader.exec_module(module)


def test_manifest_with_another_key_is_refused(folder: Location) -> None:
    old = OldGraph(folder, 1, key="table_key")
    before = old.stored("__manifest").version
    with pytest.raises(
        errors.UnsupportedFormat, match="branch 'main' has the key table_key instead of"
    ) as no:
        open_again(folder)
    assert no.value.remedy == "restore the manifest from a backup"
    assert old.stored("__manifest").version == before
    assert open_again(folder, read_only=True).load(MAIN).state.commits == old.history(MAIN)


def test_manifest_that_has_its_key_but_no_stamp_is_migrated(folder: Location) -> None:
    old = OldGraph(folder, 1, key="object_id")
    open_again(folder)
    require_migrated(old)
