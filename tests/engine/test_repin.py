"""Publishing the same rows in another form: no commit, the same head, and never beside another publish."""

from __future__ import annotations

import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.publish import ExactHead, ManifestChanges, NewCommit, publish, repin
from omnigraph.engine.graph.root import Root
from omnigraph.errors import Conflict, TableVersionConflict
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import PERSON, TEAM, add_branch, bare_publish, manifest_rows, require_linear


def person_version(version: int, *, rows: int = 0) -> TableVersion:
    return TableVersion(PERSON, version, None, rows)


def test_the_table_moves_and_the_history_does_not(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    done = bare_publish(main, {PERSON: 2})
    before = main.load().state
    repin(main, [person_version(4)], expected={PERSON: 2})
    after = OpenGraph(Root.at(graph.root.layout.root), read_only=True).load("main").state
    assert after == main.load().state
    assert after.entries()[PERSON].version == 4
    assert (after.commits, after.head, after.heads) == (before.commits, before.head, before.heads)
    assert graph.snapshot(AtCommit(done.commit.id)).entries[PERSON].version == 2, "the past is as it was"
    following = bare_publish(main, {PERSON: 5})
    assert following.commit.parent == done.commit.id
    require_linear(main.load().state.commits.values(), [done.commit.id, following.commit.id])


def test_the_head_row_is_written_again_as_it_was(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    bare_publish(main, {PERSON: 2})
    heads = [row for row in manifest_rows(graph.root).to_pylist() if row["object_type"] == "graph_head"]
    repin(main, [person_version(4)], expected={PERSON: 2})
    again = [row for row in manifest_rows(graph.root).to_pylist() if row["object_type"] == "graph_head"]
    assert again == heads


def test_a_publish_that_was_prepared_before_sees_it(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    done = bare_publish(main, {PERSON: 2})
    other = Coordinator(Root.at(graph.root.layout.root), "main")
    other.load()
    repin(main, [person_version(4)], expected={PERSON: 2})
    with pytest.raises(TableVersionConflict):
        publish(
            other,
            ManifestChanges(versions=(TableVersion(PERSON, 3, None, 0),)),
            NewCommit("01X"),
            expected={PERSON: 2},
            precondition=ExactHead((), done.commit.id),
        )
    publish(other, ManifestChanges(), NewCommit("01Y"), precondition=ExactHead((), done.commit.id))


def test_of_two_at_once_the_slower_one_looks_again(graph: OpenGraph) -> None:
    """The commit lands between the look and the write, in a process that knows nothing of the other."""
    bare_publish(graph.coordinator("main"), {PERSON: 2, TEAM: 2})

    class Rival(Recorder):
        done = False

        def __call__(self, op: str, uri: str, /) -> None:
            if op == "merge_rows" and not self.done:
                self.done = True
                bare_publish(graph.coordinator("main"), {TEAM: 3})

    watched = OpenGraph(Root.at(graph.root.layout.root, Rival()), read_only=False)
    repin(watched.coordinator("main"), [person_version(4)], expected={PERSON: 2})
    state = OpenGraph(Root.at(graph.root.layout.root), read_only=True).load("main").state
    assert {key: entry.version for key, entry in state.entries().items()} == {
        "edge:Knows": 1,
        PERSON: 4,
        TEAM: 3,
    }
    assert state == watched.coordinator("main").load().state
    assert state.head is not None
    assert state.heads["main"] == state.head.id


def test_other_rows_are_refused(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    bare_publish(main, {PERSON: 2}, rows=3)
    with pytest.raises(Conflict, match="does not hold the published rows"):
        repin(main, [person_version(4, rows=4)], expected={PERSON: 2})
    with pytest.raises(TableVersionConflict):
        repin(main, [person_version(4, rows=3)], expected={PERSON: 1})


def test_a_second_time_nothing_is_written(graph: OpenGraph) -> None:
    main = graph.coordinator("main")
    bare_publish(main, {PERSON: 2})
    wanted = [person_version(4)]
    version = repin(main, wanted, expected={PERSON: 2}).state.version
    assert repin(main, wanted, expected={PERSON: 2}).state.version == version


def test_a_branch_that_has_no_commit_of_its_own_keeps_the_head_it_inherits(graph: OpenGraph) -> None:
    done = bare_publish(graph.coordinator("main"), {PERSON: 2})
    work = add_branch(graph, "work")
    repin(work, [person_version(4)], expected={PERSON: 2})
    state = OpenGraph(Root.at(graph.root.layout.root), read_only=True).load("work").state
    assert state.head is not None
    assert state.head.id == done.commit.id
    assert graph.load("main").state.entries()[PERSON].version == 2
