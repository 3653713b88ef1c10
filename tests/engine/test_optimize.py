"""`optimize`: few fragments, complete indexes, one commit, the same rows."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import SETTING, optimize
from omnigraph.engine.upkeep.declared_indexes import VECTOR_ROWS
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.world import change, look, require_settled, rows_of
from tests.engine.upkeep_graph import (
    DOC,
    LOG,
    add_docs,
    commits_of,
    docs_graph,
    entry_of,
    indexes_of,
    log,
    plan_of,
    table_of,
    texts_with,
)

MAIN = Author("main", "ada")
WRITES = {"write_text", "write_text_if_absent", "commit", "commit_compaction", "merge_rows", "rewrite"}


def test_small_fragments_and_lagging_indexes_are_repaired_in_one_commit(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(10))
    ensure_indices(graph, MAIN)
    add_docs(graph, range(10, 20))
    change(graph, 'update Doc set { text: "swimming" } where slug = "d3"')
    log(graph, 5)
    before, known = rows_of(look(graph)), commits_of(graph)
    done = optimize(graph, MAIN)
    assert {one.key: (one.before.fragments, one.after.fragments, one.indexes) for one in done.tables} == {
        "edge:Cites": (0, 0, ()),
        DOC: (3, 1, ("id", "level", "score", "text")),
        LOG: (5, 1, ("id",)),
    }
    assert [commit.id for commit in commits_of(graph)[len(known) :]] == [done.commit and done.commit.id]
    assert rows_of(look(graph)) == before
    assert all(one.is_complete and one.segments == 1 for one in indexes_of(graph, DOC).values())
    require_settled(graph)


def test_indexes_are_used_and_right_afterwards(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(10))
    ensure_indices(graph, MAIN)
    for number in range(3):
        change(graph, f'update Doc set {{ text: "swimming", score: 77 }} where slug = "d{number}"')
        optimize(graph, MAIN)
    docs = table_of(graph, DOC)
    assert "ScalarIndexQuery" in plan_of(docs, "score = 77")
    assert docs.count("score = 77") == 3
    assert texts_with(docs, "swim") == {"d0", "d1", "d2"}
    assert texts_with(docs, "walk") == {f"d{number}" for number in range(3, 10)}
    assert indexes_of(graph, DOC)["text_idx"].segments == 1


def test_a_second_time_nothing_is_written(folder: Location) -> None:
    first = docs_graph(folder)
    add_docs(first, range(10))
    ensure_indices(first, MAIN)
    add_docs(first, range(10, 15))
    recorder = Recorder()
    graph = OpenGraph.open(Root.at(folder, recorder))
    assert optimize(graph, MAIN).commit is not None
    recorder.clear()
    done = optimize(graph, MAIN)
    assert done.commit is None
    assert not any(one.moved for one in done.tables)
    assert not WRITES & recorder.counts().keys()


def test_vectors_get_an_index_once_there_are_many(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(10))
    (docs,) = (one for one in optimize(graph, MAIN).tables if one.key == DOC)
    assert docs.pending == ("place",)
    add_docs(graph, range(10, VECTOR_ROWS + 10), vectors=True)
    optimize(graph, MAIN)
    assert indexes_of(graph, DOC)["place_idx"].is_complete
    add_docs(graph, range(VECTOR_ROWS + 10, VECTOR_ROWS + 20), vectors=True)
    optimize(graph, MAIN)
    assert indexes_of(graph, DOC)["place_idx"].is_complete


def test_a_branch_looks_after_its_own_tables_and_never_after_those_of_another(folder: Location) -> None:
    graph = docs_graph(folder)
    log(graph, 4)
    add_docs(graph, range(5))
    add_docs(graph, range(5, 8))
    create_branch(graph, "work")
    log(graph, 3, "work")
    before = {key: entry_of(graph, key) for key in (DOC, LOG)}
    tips = {key: table_of(graph, key).latest_version() for key in (DOC, LOG)}
    done = optimize(graph, Author("work"))
    assert [(one.key, one.before.fragments, one.after.fragments) for one in done.tables] == [(LOG, 7, 1)]
    assert {key: entry_of(graph, key) for key in (DOC, LOG)} == before
    assert {key: table_of(graph, key).latest_version() for key in (DOC, LOG)} == tips
    assert table_of(graph, LOG, "work").count() == 7
    require_settled(graph)


def test_the_past_stays_readable(folder: Location) -> None:
    graph = docs_graph(folder)
    log(graph, 4)
    head = commits_of(graph)[-1]
    snapshot = graph.snapshot(AtCommit(head.id))
    reader = open_table(graph, snapshot, LOG)
    optimize(graph, MAIN)
    assert reader.fragment_count == 4
    assert reader.scan().num_rows == 4
    assert open_table(graph, graph.snapshot(AtCommit(head.id)), LOG).scan().num_rows == 4


def test_a_write_that_was_faster_is_kept(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(4))
    add_docs(graph, range(4, 8))
    late = OpenGraph.open(Root.at(folder, Late(graph)))
    done = optimize(late, MAIN)
    assert done.commit is not None
    assert table_of(graph, DOC).scan(["score"], where="id = 'd1'").to_pydict() == {"score": [100]}
    assert table_of(graph, DOC).fragment_count == 1
    require_settled(graph)


class Late(Recorder):
    """Changes a row once, after a compaction was planned and before it takes effect."""

    def __init__(self, graph: OpenGraph) -> None:
        super().__init__()
        self._graph = graph
        self._done = False

    def __call__(self, op: str, uri: str, /) -> None:
        if op == "rewrite" and not self._done:
            self._done = True
            change(self._graph, 'update Doc set { score: 100 } where slug = "d1"')


def test_a_bad_setting_is_rejected(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = docs_graph(folder)
    monkeypatch.setenv(SETTING, "many")
    with pytest.raises(BadRequest, match=SETTING):
        optimize(graph, MAIN)


def test_no_table_removes_its_own_past(folder: Location) -> None:
    """Lance can be configured to clean up as it commits: it would take versions that the history shows."""
    graph = docs_graph(folder)
    log(graph, 3)
    optimize(graph, MAIN)
    assert not any("auto_cleanup" in key for key in table_of(graph, LOG).config)


def test_a_table_that_was_changed_past_the_door_is_left_out_and_the_others_are_done(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(5))
    add_docs(graph, range(5, 10))
    log(graph, 3)
    published = entry_of(graph, LOG).version
    changed = lance.dataset(table_of(graph, LOG).uri)
    changed.insert(pa.table({"id": ["x"], "msg": ["x"]}, schema=changed.schema))
    done = {one.key: one for one in optimize(graph, MAIN).tables}
    assert (done[DOC].after.fragments, done[DOC].skipped) == (1, None)
    report = (done[LOG].skipped, done[LOG].moved, done[LOG].version, done[LOG].head)
    assert report == ("drift_needs_repair", False, published, published + 1)
    assert entry_of(graph, LOG).version == published


def test_indexes_are_built_beside_a_table_that_was_changed_past_the_door(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(5))
    log(graph)
    changed = lance.dataset(table_of(graph, LOG).uri)
    changed.insert(pa.table({"id": ["x"], "msg": ["x"]}, schema=changed.schema))
    done = ensure_indices(graph, MAIN)
    assert done.built == {DOC: ("id", "level", "score", "text")}
    assert [(key, drift.head) for key, drift in done.skipped.items()] == [(LOG, changed.version)]
