from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.engine.graph.manifest import TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.errors import (
    BranchNotFound,
    CommitNotFound,
    HistoricalVersionReclaimed,
    NotFound,
    OmnigraphError,
    StorageFailure,
    VersionNotFound,
)
from omnigraph.storage.location import Location
from omnigraph.storage.upkeep import collect_versions, compact
from tests.engine.graphs import (
    KNOWS,
    PERSON,
    TEAM,
    add_branch,
    append_people,
    bare_publish,
    new_graph,
    with_clock,
)


def checked_out(root: Root, branch: str | None, version: int) -> tuple[dict[str, TableEntry], str | None]:
    """Tables and newest commit at a version, derived from what Lance shows when it is checked out."""
    tip = root.tables.tip(root.layout.manifest, branch=branch)
    rows: list[dict[str, Any]] = tip.native.checkout_version((branch, version)).to_table().to_pylist()
    paths = {row["table_key"]: row["location"] for row in rows if row["object_type"] == "table"}
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["object_type"] == "table_version":
            known = newest.get(row["table_key"])
            if known is None or known["table_version"] < row["table_version"]:
                newest[row["table_key"]] = row
    for row in rows:
        if row["object_type"] == "table_tombstone":
            dropped = newest.get(row["table_key"], {}).get("table_version", 0) <= row["table_version"]
            newest = {key: found for key, found in newest.items() if key != row["table_key"] or not dropped}
    entries = {
        key: TableEntry(key, paths[key], row["table_version"], row["table_branch"], row["row_count"])
        for key, row in newest.items()
    }
    commits = [row for row in rows if row["object_type"] == "graph_commit"]
    newest_commit = max(commits, key=lambda row: json.loads(row["metadata"])["created_at"], default=None)
    return entries, None if newest_commit is None else newest_commit["object_id"]


def require_same_as_checkout(graph: OpenGraph, branch: str = "main", *, since: int = 1) -> int:
    """Compares every version of a branch; returns how many there were."""
    fork = None if branch == "main" else branch
    reader = OpenGraph(Root.at(graph.root.layout.root), read_only=True)
    newest = reader.load(branch).state.version
    for version in range(since, newest + 1):
        snapshot = reader.snapshot(AtVersion(branch, version))
        entries, commit = checked_out(graph.root, fork, version)
        assert dict(snapshot.entries) == entries, f"{branch} at {version}"
        assert snapshot.id == commit, f"{branch} at {version}"
    return newest + 1 - since


@pytest.fixture
def eventful(graph: OpenGraph) -> OpenGraph:
    """Versions, a drop, a return, a new table, and compactions now and then."""
    main = graph.coordinator("main")
    for version in range(2, 26):
        bare_publish(main, {PERSON: version, **({TEAM: version} if version % 2 else {})}, rows=version)
        if version == 8:
            publish(main, ManifestChanges(dropped={KNOWS: 1}), NewCommit(graph.root.new_id(), actor="ada"))
        if version == 16:
            path = main.load().state.locations[KNOWS]
            back = ManifestChanges(registered={KNOWS: path}, versions=(TableVersion(KNOWS, 5, None, 0),))
            publish(main, back, NewCommit(graph.root.new_id()))
        if version == 20:
            new = ManifestChanges(
                registered={"node:New": "nodes/n"}, versions=(TableVersion("node:New", 1, None, 0),)
            )
            publish(main, new, NewCommit(graph.root.new_id()))
        if version % 7 == 0:
            compact(main.load().table)
    return graph


# --- by version ------------------------------------------------------------------------------------


def test_every_version_reads_like_its_checkout(eventful: OpenGraph) -> None:
    assert require_same_as_checkout(eventful) > 30


def test_every_version_of_a_branch_reads_like_its_checkout(eventful: OpenGraph) -> None:
    main = eventful.coordinator("main")
    start = main.load().state.version
    work = add_branch(eventful, "work")
    for version in range(100, 112):
        bare_publish(work, {TEAM: version}, owner="work")
        bare_publish(main, {PERSON: version})
        if version % 5 == 0:
            compact(work.load().table)
    inner = add_branch(eventful, "inner", "work")
    inner_start = inner.load().state.version
    bare_publish(inner, {TEAM: 200}, owner="inner")
    assert require_same_as_checkout(eventful) > 40
    assert require_same_as_checkout(eventful, "work", since=start) > 15
    assert require_same_as_checkout(eventful, "inner", since=inner_start) == 2
    for version in range(1, start + 1):
        assert (
            eventful.snapshot(AtVersion("inner", version)).entries
            == eventful.snapshot(AtVersion("work", version)).entries
            == eventful.snapshot(AtVersion("main", version)).entries
        ), "a branch shares the past from before it was made"


def test_collected_manifest_versions_are_not_missed(eventful: OpenGraph) -> None:
    manifest = eventful.root.layout.manifest
    tip = eventful.root.tables.tip(manifest)
    before = {v: checked_out(eventful.root, None, v) for v in tip.versions()}
    collect_versions(tip, tip.versions()[:-1])
    reader = OpenGraph.open(Root.at(eventful.root.layout.root))
    for version, (entries, commit) in before.items():
        snapshot = reader.snapshot(AtVersion("main", version))
        assert (dict(snapshot.entries), snapshot.id) == (entries, commit)


def test_versions_a_branch_stands_on_outlive_a_collection(eventful: OpenGraph) -> None:
    work = add_branch(eventful, "work")
    before = work.load().state
    bare_publish(eventful.coordinator("main"), {PERSON: 300})
    tip = eventful.root.tables.tip(eventful.root.layout.manifest)
    collect_versions(tip, tip.versions()[:-1])
    again = OpenGraph(Root.at(eventful.root.layout.root), read_only=True)
    assert again.load("work").state == before
    assert before.head is not None
    assert bare_publish(again.coordinator("work"), {PERSON: 400}).commit.parent == before.head.id


@pytest.mark.parametrize("version", [0, -1, 3, 10**12, 2**70])
def test_a_version_that_never_was_is_not_found(graph: OpenGraph, version: int) -> None:
    with pytest.raises(VersionNotFound) as caught:
        graph.snapshot(AtVersion("main", version))
    assert (caught.value.branch, caught.value.version) == ("main", version)
    assert str(version) in caught.value.message


# --- by commit -------------------------------------------------------------------------------------


def test_each_commit_shows_what_it_did(eventful: OpenGraph) -> None:
    for commit in eventful.load("main").state.commits.values():
        snapshot = eventful.snapshot(AtCommit(commit.id))
        assert snapshot.commit == commit
        assert snapshot.version == commit.version
        assert dict(snapshot.entries) == checked_out(eventful.root, None, commit.version)[0]


def test_a_commit_is_found_on_whatever_branch_it_is(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    mine = bare_publish(graph.coordinator("main"), {PERSON: 7})
    theirs = bare_publish(work, {PERSON: 9})
    assert mine.commit.version == theirs.commit.version, "one number, two states"
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    assert reader.snapshot(AtCommit(theirs.commit.id)).entries[PERSON].version == 9
    assert reader.snapshot(AtCommit(theirs.commit.id)).branch == "work"
    assert reader.snapshot(AtCommit(mine.commit.id)).entries[PERSON].version == 7


def test_an_unknown_commit_is_not_found(graph: OpenGraph) -> None:
    add_branch(graph, "work")
    for commit_id in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "graph_head:main", "'; drop", "x" * 10_000):
        with pytest.raises(CommitNotFound) as caught:
            graph.snapshot(AtCommit(commit_id))
        assert caught.value.commit_id == commit_id


def test_a_branch_that_went_away_does_not_hide_the_commits_of_others(graph: OpenGraph) -> None:
    theirs = bare_publish(add_branch(graph, "zebra"), {PERSON: 9})
    lost = bare_publish(add_branch(graph, "ant"), {PERSON: 5})
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    assert reader.snapshot(AtBranch("ant")).id == lost.commit.id
    graph.root.forks.delete(graph.root.layout.manifest, "ant")
    assert reader.snapshot(AtCommit(theirs.commit.id)).branch == "zebra"
    with pytest.raises(CommitNotFound):
        reader.snapshot(AtCommit(lost.commit.id))


def test_asking_for_a_branch_that_is_not_there_has_no_after_effects(graph: OpenGraph) -> None:
    theirs = bare_publish(add_branch(graph, "work"), {PERSON: 9})
    reader = OpenGraph.open(Root.at(graph.root.layout.root))
    for target in (AtBranch("nope"), AtVersion("nope", 1), AtTime("nope", 1)):
        with pytest.raises(BranchNotFound) as caught:
            reader.snapshot(target)
        assert caught.value.branch == "nope"
    assert reader.snapshot(AtCommit(theirs.commit.id)).branch == "work"


# --- by time ---------------------------------------------------------------------------------------


def test_a_moment_shows_the_newest_commit_not_after_it(graph: OpenGraph) -> None:
    genesis = graph.load("main").state.head
    assert genesis is not None
    start = genesis.created_at
    clocked = with_clock(graph, iter(range(start + 100, start + 1000, 100)).__next__)
    done = [bare_publish(clocked.coordinator("main"), {PERSON: v}).commit for v in range(2, 7)]
    compact(clocked.load("main").table)
    for number, commit in enumerate(done, start=2):
        for moment in (commit.created_at, commit.created_at + 99):
            snapshot = clocked.snapshot(AtTime("main", moment))
            assert (snapshot.id, snapshot.entries[PERSON].version) == (commit.id, number)
        assert clocked.snapshot(AtTime("main", commit.created_at - 1)).id == commit.parent
    assert clocked.snapshot(AtTime("main", 2**63)).id == done[-1].id
    with pytest.raises(VersionNotFound, match="branch 'main' not found"):
        clocked.snapshot(AtTime("main", start - 1))


def test_a_moment_before_a_branch_was_made_shows_where_it_came_from(graph: OpenGraph) -> None:
    point = bare_publish(graph.coordinator("main"), {PERSON: 2}).commit
    work = add_branch(graph, "work")
    bare_publish(graph.coordinator("main"), {PERSON: 3})
    own = bare_publish(work, {PERSON: 9}).commit
    assert graph.snapshot(AtTime("work", point.created_at)).id == point.id
    assert graph.snapshot(AtTime("work", own.created_at - 1)).id == point.id
    assert graph.snapshot(AtTime("work", own.created_at)).entries[PERSON].version == 9


def test_clocks_that_disagree_do_not_reorder_the_past(graph: OpenGraph) -> None:
    future = 9_000_000_000_000_000
    ahead = with_clock(graph, lambda: future).coordinator("main")
    behind = with_clock(graph, lambda: 5).coordinator("main")
    first, second = bare_publish(ahead, {PERSON: 2}).commit, bare_publish(behind, {PERSON: 3}).commit
    assert graph.snapshot(AtTime("main", future)).id == first.id
    assert graph.snapshot(AtTime("main", future + 1)).id == second.id


# --- tables of the past ----------------------------------------------------------------------------


def people(graph: OpenGraph, target: AtCommit | AtBranch) -> list[str]:
    table = open_table(graph, graph.snapshot(target), PERSON)
    return sorted(table.scan(["name"]).column("name").to_pylist())


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_rows_of_the_past_are_the_rows_of_then(
    place: str, folder: Location, request: pytest.FixtureRequest
) -> None:
    graph = new_graph(folder if place == "folder" else request.getfixturevalue("s3_root"))
    first = append_people(graph, "ada")
    second = append_people(graph, "bob", "cleo")
    assert people(graph, AtCommit(first.commit.id)) == ["ada"]
    assert people(graph, AtCommit(second.commit.id)) == people(graph, AtBranch()) == ["ada", "bob", "cleo"]
    assert people(graph, AtCommit(first.commit.parent or "")) == []


def collect_people(graph: OpenGraph, *versions: int) -> None:
    tip = graph.root.tables.tip(graph.root.layout.table("nodes/40d76f1f51639ec0"))
    assert collect_versions(tip, versions).versions == len(versions)
    graph.root.tables.forget()


def test_a_table_version_that_was_cleaned_up_is_distinguished_from_one_that_never_was(
    graph: OpenGraph,
) -> None:
    first = append_people(graph, "ada")
    append_people(graph, "bob")
    collect_people(graph, 2)
    snapshot = graph.snapshot(AtCommit(first.commit.id))
    with pytest.raises(HistoricalVersionReclaimed) as caught:
        open_table(graph, snapshot, PERSON)
    found: OmnigraphError = caught.value
    assert (found.code, found.status, found.retryable) == ("version_reclaimed", 410, False)
    assert found.data() == {"table_key": PERSON, "version": 2}
    assert open_table(graph, snapshot, TEAM).count() == 0, "the other tables are still there"
    assert people(graph, AtBranch()) == ["ada", "bob"]
    with pytest.raises(NotFound, match="has no table 'node:Missing'"):
        open_table(graph, snapshot, "node:Missing")


def test_a_pinned_version_that_is_missing_is_damage_and_not_history(graph: OpenGraph) -> None:
    append_people(graph, "ada")
    place = graph.root.layout.table("nodes/40d76f1f51639ec0").path
    for file in (place / "_versions").iterdir():
        file.unlink()
    with pytest.raises(StorageFailure) as caught:
        open_table(graph, graph.snapshot(AtBranch()), PERSON)
    assert caught.value.kind == "NotFound"


def test_a_snapshot_of_a_deleted_branch_is_history(graph: OpenGraph) -> None:
    work = add_branch(graph, "work")
    graph.root.forks.create(graph.root.tables.tip(graph.root.layout.table("nodes/40d76f1f51639ec0")), "work")
    bare_publish(work, {PERSON: 1}, owner="work")
    snapshot = graph.snapshot(AtBranch("work"))
    assert open_table(graph, snapshot, PERSON).branch == "work"
    graph.root.forks.delete(graph.root.layout.manifest, "work")
    graph.root.forks.delete(graph.root.layout.table("nodes/40d76f1f51639ec0"), "work")
    with pytest.raises(HistoricalVersionReclaimed):
        open_table(graph, snapshot, PERSON)
