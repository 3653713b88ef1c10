from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import KEY, ManifestState, TableVersion
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT, compact_manifest
from omnigraph.errors import StorageFailure
from omnigraph.storage.fragments import list_fragments as fragments_of
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import (
    PERSON,
    add_branch,
    bare_publish,
    kept_publish,
    manifest_rows,
    new_graph,
    no_room_for,
    require_linear,
)


def write(graph: OpenGraph, count: int, branch: str = "main") -> list[tuple[str, int]]:
    """So many publishes under the lock; each commit with the number of fragments after it."""
    done = []
    coordinator = graph.coordinator(branch)
    for _ in range(count):
        with graph.root.locks.hold([branch]):
            made = kept_publish(coordinator, NewCommit(graph.root.new_id()))
        done.append((made.commit.id, fragments(graph, branch)))
    return done


def fragments(graph: OpenGraph, branch: str = "main") -> int:
    fork = None if branch == "main" else branch
    return graph.root.tables.tip(graph.root.layout.manifest, branch=fork).fragment_count


def logical(state: ManifestState) -> tuple[object, ...]:
    return state.entries(), state.commits, state.heads, state.tombstones, state.head


def test_fragments_stay_few_however_many_publishes(graph: OpenGraph) -> None:
    done = write(graph, 200)
    assert max(count for _, count in done) <= FRAGMENT_LIMIT + 1
    assert sum(earlier > later for (_, earlier), (_, later) in pairwise(done)) >= 5
    fresh = OpenGraph(Root.at(graph.root.layout.root), read_only=True)
    state = fresh.load("main").state
    assert logical(state) == logical(graph.load("main").state)
    require_linear(state.commits.values(), [commit for commit, _ in done])
    for commit, _ in done[::40]:
        assert fresh.snapshot(AtCommit(commit)).id == commit


def test_without_upkeep_every_publish_adds_a_fragment(graph: OpenGraph) -> None:
    # When Lance stops doing so, the upkeep has nothing left to do and this test says it.
    before = fragments(graph)
    for _ in range(FRAGMENT_LIMIT + 10):
        bare_publish(graph.coordinator("main"))
    assert fragments(graph) == before + FRAGMENT_LIMIT + 10
    assert compact_manifest(graph.coordinator("main"))
    assert fragments(graph) == 1


def test_a_long_history_is_not_written_again_every_few_publishes(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    state = main.load().state
    many = tuple(TableVersion(f"node:T{number}", 1, None, 0) for number in range(1_000))
    publish(main, ManifestChanges({one.key: f"nodes/{one.key[5:]}" for one in many}, many), NewCommit("01X"))
    old = max(fragments_of(main.load().table), key=lambda one: one.rows)
    done = write(graph, 2 * FRAGMENT_LIMIT)
    assert sum(earlier > later for (_, earlier), (_, later) in pairwise(done)) >= 2
    tip = main.load()
    assert old.id in {one.id for one in fragments_of(tip.table)}
    assert len(tip.state.commits) == len(state.commits) + 1 + len(done)
    assert compact_manifest(main, thorough=True)
    assert fragments(graph) == 1


def test_a_compaction_changes_no_row_no_id_and_no_version(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    for version in range(2, FRAGMENT_LIMIT + 5):
        bare_publish(main, {PERSON: version}, actor="ada")
    before, rows = main.load().state, manifest_rows(graph.root).sort_by(KEY)
    identities = row_identities(graph)
    assert compact_manifest(main)
    assert fragments(graph) == 1
    assert manifest_rows(graph.root).sort_by(KEY) == rows
    assert row_identities(graph) == identities
    assert logical(main.load().state) == logical(before)
    assert logical(Coordinator(Root.at(graph.root.layout.root), "main").load().state) == logical(before)
    assert not compact_manifest(main), "once is enough"


def row_identities(graph: OpenGraph) -> list[dict[str, object]]:
    tip = graph.root.tables.tip(graph.root.layout.manifest)
    columns = [KEY, "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found: list[dict[str, object]] = tip.scan(columns).sort_by(KEY).to_pylist()
    return found


def test_a_branch_is_kept_cheap_by_itself(graph: OpenGraph) -> None:
    add_branch(graph, "work")
    before = graph.load("main").state
    done = write(graph, FRAGMENT_LIMIT + 4, "work")
    assert max(count for _, count in done) <= FRAGMENT_LIMIT + 1
    assert fragments(graph, "work") < 10
    assert graph.load("main").state == before
    write(graph, 1)
    require_linear(graph.load("work").state.commits.values(), [commit for commit, _ in done])


def test_most_publishes_ask_for_nothing_more_than_they_need(graph: OpenGraph) -> None:
    recorder = Recorder()
    watched = OpenGraph(Root.at(graph.root.layout.root, recorder), read_only=False)
    write(watched, 1)
    recorder.clear()
    with watched.root.locks.hold(["main"]):
        kept_publish(watched.coordinator("main"), NewCommit("01X"))
    assert recorder.counts() == {"probe": 1, "merge_rows": 1}


@pytest.mark.parametrize("op", ["plan_compaction", "rewrite", "commit_compaction"])
def test_upkeep_that_fails_is_logged_and_the_publish_stands(
    folder: Location, op: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_graph(folder)

    graph = OpenGraph.open(Root.at(folder, no_room_for(op)))
    with caplog.at_level(logging.WARNING, "omnigraph"):
        done = write(graph, FRAGMENT_LIMIT + 2)
    assert "main" in caplog.text
    assert "no room" in caplog.text
    whole = OpenGraph.open(Root.at(folder))
    require_linear(whole.load("main").state.commits.values(), [commit for commit, _ in done])
    write(whole, 1)
    assert fragments(whole) == 1, "the next publish tries again"


def test_upkeep_that_cannot_even_look_does_not_fail_the_publish(folder: Location) -> None:
    graph = new_graph(folder)
    for _ in range(FRAGMENT_LIMIT + 1):
        bare_publish(graph.coordinator("main"))

    class Deaf(Recorder):
        probes = 0

        def __call__(self, op: str, uri: str, /) -> None:
            self.probes += op == "probe"
            if self.probes > 1:
                raise StorageFailure("gone", kind="Transient", uri=uri)

    watched = OpenGraph(Root.at(folder, Deaf()), read_only=False)
    watched.coordinator("main").load()
    with watched.root.locks.hold(["main"]):
        done = kept_publish(watched.coordinator("main"), NewCommit("01X"))
    assert done.commit.id in graph.load("main").state.commits


def test_a_publish_that_was_prepared_before_a_compaction_still_lands(graph: OpenGraph) -> None:
    for _ in range(FRAGMENT_LIMIT + 2):
        bare_publish(graph.coordinator("main"))
    other = Coordinator(Root.at(graph.root.layout.root), "main")
    other.load()
    assert compact_manifest(graph.coordinator("main"))
    done = publish(other, ManifestChanges(), NewCommit("01X"))
    assert done.commit.parent == graph.load("main").state.commits["01X"].parent


@pytest.mark.s3
def test_a_manifest_in_a_bucket_is_compacted_too(s3_root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.upkeep.manifest_upkeep.FRAGMENT_LIMIT", 3)
    graph = new_graph(s3_root)
    done = write(graph, 5)
    assert max(count for _, count in done) <= 4
    require_linear(graph.load("main").state.commits.values(), [commit for commit, _ in done])
