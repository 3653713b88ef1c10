from __future__ import annotations

from collections.abc import Callable

import lance
import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import CREATED_AT
from omnigraph.engine.graph.open_graph import AtCommit, AtVersion, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.staging import commit_staged, stage_config
from omnigraph.storage.upkeep import collect_versions, compact
from tests.engine.graphs import PERSON, TEAM, add_branch, bare_publish, require_linear

BEFORE_WRITE = failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND


def change_config(root: Root, branch: str | None = None) -> None:
    tip = root.tables.tip(root.layout.manifest, branch=branch)
    commit_staged(stage_config(tip, {"some.setting": str(tip.version)}))


def compact_now(root: Root, branch: str | None = None) -> None:
    tip = root.tables.tip(root.layout.manifest, branch=branch)
    assert compact(tip).fragments_removed > 0


def landed_at(root: Root, commit_id: str, branch: str | None = None) -> int:
    """Where a commit's row first appeared, found by checking every version out."""
    tip = root.tables.tip(root.layout.manifest, branch=branch)
    for version in tip.versions():
        if tip.native.checkout_version((branch, version)).count_rows(f"object_id = '{commit_id}'"):
            return version
    raise AssertionError(commit_id)


def require_recorded(graph: OpenGraph, commit_id: str, version: int, branch: str = "main") -> None:
    """Every reader says that the commit became visible at this version, and can go there."""
    fork = None if branch == "main" else branch
    assert landed_at(graph.root, commit_id, fork) == version
    for reader in (graph, OpenGraph(Root.at(graph.root.layout.root), read_only=True)):
        assert reader.load(branch).state.commits[commit_id].version == version
        snapshot = reader.snapshot(AtCommit(commit_id))
        assert (snapshot.version, snapshot.id) == (version, commit_id)


def test_a_publish_that_slid_over_a_config_commit_knows_where_it_landed(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    before = main.load().state.version
    with failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: change_config(graph.root))):
        done = bare_publish(main, {PERSON: 2})
    assert done.commit.version == done.loaded.state.version == before + 2
    require_recorded(graph, done.commit.id, before + 2)
    assert graph.snapshot(AtVersion("main", before + 1)).entries[PERSON].version == 1


def test_the_stored_number_may_be_wrong_and_is_not_trusted(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    with failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: change_config(graph.root))):
        done = bare_publish(main, {PERSON: 2})
    rows = lance.dataset(graph.root.layout.manifest.uri).to_table(
        columns=["table_version", CREATED_AT], filter=f"object_id = '{done.commit.id}'"
    )
    assert rows.to_pylist() == [{"table_version": 3, CREATED_AT: 4}]


def test_a_publish_that_met_a_compaction_of_its_head_row_tries_again(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    for version in range(2, 5):
        bare_publish(main, {PERSON: version})
    before = main.load().state.version
    with failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: compact_now(graph.root))):
        done = bare_publish(main, {PERSON: 5})
    assert done.commit.version == before + 3, "a compaction makes two versions"
    require_recorded(graph, done.commit.id, before + 3)


def test_a_first_publish_of_a_branch_slides_over_its_compaction(graph: OpenGraph) -> None:
    for version in range(2, 5):
        bare_publish(graph.coordinator("main"), {PERSON: version})
    work = add_branch(graph, "work")
    before = work.load().state.version
    with failpoints.arm(BEFORE_WRITE, failpoints.once(lambda: compact_now(graph.root, "work"))):
        done = bare_publish(work, {TEAM: 2})
    assert done.commit.version == before + 3
    require_recorded(graph, done.commit.id, before + 3, "work")
    follower = bare_publish(work, {TEAM: 3})
    assert follower.commit.parent == done.commit.id
    require_recorded(graph, follower.commit.id, before + 4, "work")


@pytest.mark.parametrize("upkeep", [change_config, compact_now])
def test_upkeep_between_publishes_moves_no_commit(graph: OpenGraph, upkeep: Callable[[Root], None]) -> None:
    main = graph.coordinator("main")
    done = []
    for version in range(2, 9):
        done.append(bare_publish(main, {PERSON: version}).commit)
        if version % 3 == 0:
            upkeep(graph.root)
    fresh = Coordinator(Root.at(graph.root.layout.root), "main").load().state
    assert [fresh.commits[each.id] for each in done] == done
    for number, commit in enumerate(done, start=2):
        require_recorded(graph, commit.id, commit.version)
        assert graph.snapshot(AtCommit(commit.id)).entries[PERSON].version == number
    require_linear(fresh.commits.values(), [each.id for each in done])


def test_commits_keep_their_versions_when_old_manifest_versions_are_collected(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    done = [bare_publish(main, {PERSON: version}).commit for version in range(2, 12)]
    compact_now(graph.root)
    tip = graph.root.tables.tip(graph.root.layout.manifest)
    assert collect_versions(tip, tip.versions()[:-1]).versions > 10
    assert tip.latest().versions() == (tip.version,)
    for reader in (graph, OpenGraph(Root.at(graph.root.layout.root), read_only=True)):
        for number, commit in enumerate(done, start=2):
            assert reader.load("main").state.commits[commit.id] == commit
            assert reader.snapshot(AtCommit(commit.id)).entries[PERSON].version == number
    assert bare_publish(main, {PERSON: 99}).commit.parent == done[-1].id


def test_a_migrated_history_keeps_what_it_recorded(graph: OpenGraph) -> None:
    # Commits that landed together were copied in: they recorded their versions when these were made.
    from omnigraph.engine.graph.lineage import Commit
    from omnigraph.engine.graph.manifest import KEY, Records, encode
    from omnigraph.storage.cas import merge_rows

    copied = [Commit(f"01OLD{n}", "main", n, n, f"01OLD{n - 1}" if n else None) for n in range(3)]
    merge_rows(graph.load("main").table, encode(Records(commits=copied), {}), KEY)
    fresh = Coordinator(Root.at(graph.root.layout.root), "main").load().state
    assert [fresh.commits[each.id].version for each in copied] == [0, 1, 2]
