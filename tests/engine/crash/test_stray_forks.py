"""Forks that no branch shows stand on each other, or inside each other: no name becomes unusable by that."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery.sweep import RecordStatus
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import recover_all
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.errors import InternalError, OmnigraphError, TableDrift
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_delete
from tests.engine.crash.test_heal import interrupt
from tests.engine.crash.world import (
    KNOWS,
    PERSON,
    TEAM,
    change,
    make_graph,
    open_unrecovered,
    require_settled,
    stray_forks,
)

TWO = 'insert Person { name: "eve" }  insert Knows { from: "eve", to: "ada" }'
ARMED = failpoints.MUTATION_POST_SIDECAR_PRE_FORK


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    """The small graph with its first rows."""
    return make_graph(tmp_path / "graph")


@pytest.fixture
def anywhere(shared_root: Location) -> OpenGraph:
    """The same in each kind of store; in the bucket a name can be used again at once."""
    make_graph(shared_root)
    return open_unrecovered(shared_root)


def person(name: str) -> str:
    return f'insert Person {{ name: "{name}" }}'


def people(graph: OpenGraph, branch: str) -> set[str]:
    fresh = OpenGraph.open(Root.at(graph.root.layout.root))
    entry = fresh.load(branch).state.entries()[PERSON]
    table = fresh.root.tables.open(fresh.root.layout.table(entry.path), entry.version, branch=entry.owner)
    return {*table.scan(["name"]).column("name").to_pylist()} - {"ada", "bo", "cy"}


def half_deleted(graph: OpenGraph, branch: str) -> None:
    """A branch whose deletion died right after its reference had gone."""
    point = failpoints.BRANCH_DELETE_POST_NATIVE
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(InternalError):
        delete_branch(graph, branch)


def chain_of_strays(graph: OpenGraph) -> None:
    """Forks of `inner` stand on those of `draft`, neither is a branch any more, and `draft` is recreated."""
    create_branch(graph, "draft")
    change(graph, TWO, "draft")
    create_branch(graph, "inner", from_branch="draft")
    change(graph, TWO.replace("eve", "in"), "inner")
    half_deleted(graph, "inner")
    half_deleted(graph, "draft")
    create_branch(graph, "draft")


def used_by_a_branch(graph: OpenGraph) -> None:
    """A fork of a branch that is there stands on one that an earlier `draft` left."""
    create_branch(graph, "user")
    root, entry = graph.root, graph.load("main").state.entries()[PERSON]
    stray = root.forks.create(root.tables.tip(root.layout.table(entry.path)), "draft")
    fork = root.forks.create(stray, "user")
    version = TableVersion(PERSON, fork.version, "user", entry.row_count)
    publish(graph.coordinator("user"), ManifestChanges(versions=(version,)), NewCommit(root.new_id()))
    create_branch(graph, "draft")


@pytest.mark.parametrize("moved_on", [False, True])
def test_a_branch_recreated_over_strays_that_stand_on_each_other_is_written(
    graph: OpenGraph, moved_on: bool
) -> None:
    if moved_on:
        change(graph, person("mo"))
    chain_of_strays(graph)
    change(graph, TWO.replace("eve", "new"), "draft")
    assert people(graph, "draft") == {"new", *(["mo"] if moved_on else [])}
    assert stray_forks(graph) == []
    require_settled(graph)


@pytest.mark.parametrize("moved_on", [False, True])
def test_what_a_writer_left_over_strays_that_stand_on_each_other_is_undone(
    anywhere: OpenGraph, moved_on: bool
) -> None:
    chain_of_strays(anywhere)
    if moved_on:
        delete_branch(anywhere, "draft")
        change(anywhere, person("mo"))
        create_branch(anywhere, "draft")
    interrupt(anywhere, ARMED, TWO, "draft")
    assert [one.status for one in recover_all(anywhere)] == [RecordStatus.RECOVERED]
    change(anywhere, TWO.replace("eve", "new"), "draft")
    assert people(anywhere, "draft") == {"new", *(["mo"] if moved_on else [])}
    require_settled(anywhere)


def test_deleting_a_branch_takes_the_strays_on_its_forks_with_it(anywhere: OpenGraph) -> None:
    create_branch(anywhere, "draft")
    change(anywhere, TWO, "draft")
    create_branch(anywhere, "inner", from_branch="draft")
    change(anywhere, TWO.replace("eve", "in"), "inner")
    half_deleted(anywhere, "inner")
    delete_branch(anywhere, "draft")
    assert stray_forks(anywhere) == []


def test_a_name_whose_data_a_branch_still_uses_is_reported_at_once(anywhere: OpenGraph) -> None:
    used_by_a_branch(anywhere)
    before = people(anywhere, "user")
    with pytest.raises(OmnigraphError, match="'user' still uses it"):
        change(anywhere, person("new"), "draft")
    change(anywhere, 'insert Team { name: "ops" }', "draft")
    assert people(anywhere, "user") == before
    delete_branch(anywhere, "user")
    change(anywhere, person("new"), "draft")
    assert people(anywhere, "draft") == {"new"}
    require_settled(anywhere)


def test_what_a_writer_left_over_data_that_a_branch_uses_is_undone(anywhere: OpenGraph) -> None:
    used_by_a_branch(anywhere)
    change(anywhere, person("mo"))
    interrupt(anywhere, ARMED, TWO, "draft")
    assert [one.status for one in recover_all(anywhere)] == [RecordStatus.RECOVERED]
    assert people(anywhere, "user") == set()
    require_settled(anywhere)


@pytest.mark.parametrize("below", ["b", "data", "_versions", "_transactions", "tree"])
def test_a_branch_above_a_half_deleted_one_is_made_and_deleted_again_and_again(
    graph: OpenGraph, below: str
) -> None:
    create_branch(graph, f"a/{below}")
    change(graph, TWO, f"a/{below}")
    half_deleted(graph, f"a/{below}")
    for name in ("one", "two"):
        create_branch(graph, "a")
        change(graph, TWO.replace("eve", name), "a")
        assert people(graph, "a") == {name}
        delete_branch(graph, "a")
    require_settled(graph)


@pytest.mark.parametrize("below", ["b", "data", "_transactions"])
def test_cleanup_beside_a_branch_above_a_half_deleted_one_takes_exactly_that(
    graph: OpenGraph, below: str
) -> None:
    create_branch(graph, f"a/{below}")
    change(graph, TWO, f"a/{below}")
    half_deleted(graph, f"a/{below}")
    create_branch(graph, "a")
    change(graph, TWO.replace("eve", "one"), "a")
    done = cleanup(graph, CleanupPolicy.of(1, None, 0.0))
    assert {(one.key, one.branch) for one in done.forks} == {(PERSON, f"a/{below}"), (KNOWS, f"a/{below}")}
    assert people(graph, "a") == {"one"}
    change(graph, TWO.replace("eve", "two"), "a")
    assert people(graph, "a") == {"one", "two"}


@pytest.mark.parametrize("below", ["b", "data", "_versions"])
def test_one_cleanup_takes_all_that_is_left(graph: OpenGraph, below: str) -> None:
    create_branch(graph, f"a/{below}")
    change(graph, TWO, f"a/{below}")
    half_deleted(graph, f"a/{below}")
    create_branch(graph, "a")
    change(graph, TWO.replace("eve", "one"), "a")
    half_deleted(graph, "a")
    for key in (PERSON, KNOWS):
        table = graph.root.layout.table(graph.load("main").state.locations[key])
        graph.root.objects.delete(table / "_refs/branches/a.json")
    assert cleanup(graph, CleanupPolicy.of(1, None, 0.0)).ok
    for key in (PERSON, KNOWS):
        table = graph.root.layout.table(graph.load("main").state.locations[key])
        assert not graph.root.objects.exists(table / "tree")


def test_cleanup_takes_strays_although_a_branch_cannot_be_settled(graph: OpenGraph) -> None:
    chain_of_strays(graph)
    entry = graph.load("main").state.entries()[TEAM]
    tip = graph.root.tables.tip(graph.root.layout.table(entry.path))
    commit_staged(stage_delete(tip, pa.array(["core"])))
    with pytest.raises(TableDrift):
        cleanup(graph, CleanupPolicy.of(1, None, 0.0))
    assert stray_forks(graph) == []
