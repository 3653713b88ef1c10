"""What a process remembers of a branch must be what a newcomer reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.world import change, make_graph

Step = Callable[[OpenGraph], object]


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    return make_graph(folder)


def newcomer(graph: OpenGraph) -> OpenGraph:
    return OpenGraph.open(Root.at(graph.root.layout.root))


def plain(state: ManifestState) -> tuple[object, ...]:
    commits = sorted(state.commits.values(), key=lambda commit: commit.order)
    return state.version, state.locations, state.versions, state.tombstones, commits, state.heads, state.head


def past(graph: OpenGraph, branch: str) -> dict[int, Snapshot]:
    """Every version of a branch that a commit made."""
    found: dict[str, Commit] = dict(graph.load(branch).state.commits)
    versions = sorted({commit.version for commit in found.values()})
    return {version: graph.snapshot(AtVersion(branch, version)) for version in versions}


STORY: dict[str, Step] = {
    "a write": lambda graph: change(graph, 'insert Person { name: "eve" }'),
    "a branch": lambda graph: create_branch(graph, "draft"),
    "its first write": lambda graph: change(graph, 'insert Team { name: "draft" }', "draft"),
    "its second write": lambda graph: change(graph, 'insert Team { name: "more" }', "draft"),
    "main goes on": lambda graph: change(graph, 'insert Person { name: "fay" }  insert Team { name: "x" }'),
    "main is pointed at": lambda graph: merge(graph, MergeRequest("main"), Author("draft")),
    "the branch is taken in": lambda graph: merge(graph, MergeRequest("draft"), Author("main")),
    "a write after all": lambda graph: change(graph, 'delete Team where name = "x"'),
}


def test_the_past_is_what_a_newcomer_reads_after_every_step(graph: OpenGraph) -> None:
    for name, step in STORY.items():
        step(graph)
        fresh = newcomer(graph)
        for branch in graph.branch_names():
            assert plain(graph.load(branch).state) == plain(fresh.load(branch).state), name
            assert past(graph, branch) == past(fresh, branch), name


def test_a_branch_is_known_from_its_source_and_moves_on_by_others(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    other = newcomer(graph)
    change(other, 'insert Person { name: "eve" }', "draft")
    assert plain(graph.load("draft").state) == plain(other.load("draft").state)


def test_a_branch_that_others_recreated_is_read_again(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    change(graph, 'insert Person { name: "eve" }', "draft")
    change(graph, 'insert Person { name: "fay" }', "draft")
    other = newcomer(graph)
    delete_branch(other, "draft")
    create_branch(other, "draft")
    for name in ("gil", "hal", "ian"):
        change(other, f'insert Team {{ name: "{name}" }}', "draft")
    assert past(graph, "draft") == past(other, "draft")


def test_a_version_that_passed_to_another_owner_has_been_his_all_the_time(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    change(graph, 'insert Person { name: "eve" }', "draft")
    change(graph, 'insert Team { name: "x" }', "draft")
    draft = graph.coordinator("draft")
    handed = replace(draft.load().state.versions["node:Person"], owner=None)
    publish(draft, ManifestChanges(versions=(handed,)), NewCommit(graph.root.new_id()))
    assert past(graph, "draft") == past(newcomer(graph), "draft")


def test_nothing_is_remembered_of_a_graph_whose_place_another_one_took(graph: OpenGraph) -> None:
    for name in ("eve", "fay"):
        change(graph, f'insert Person {{ name: "{name}" }}')
    shutil.rmtree(graph.root.layout.root.path)
    other = make_graph(graph.root.layout.root)
    for name in ("gil", "hal", "ian", "jan"):
        change(other, f'insert Team {{ name: "{name}" }}')
    assert past(graph, "main") == past(newcomer(other), "main")


def test_what_was_the_present_lately_is_not_read_again(folder: Location) -> None:
    make_graph(folder)
    recorder = Recorder()
    graph = OpenGraph.open(Root.at(folder, recorder))
    before = graph.load("main").state.version
    change(graph, 'insert Person { name: "eve" }')
    recorder.clear()
    graph.snapshot(AtVersion("main", before))
    assert set(recorder.counts()) == {"probe"}
