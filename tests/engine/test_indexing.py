"""Declared indexes are built in one commit, once, and only where there is something to build from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.upkeep.declared_indexes import VECTOR_ROWS
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BranchNotFound
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.world import change, require_settled
from tests.engine.upkeep_graph import (
    CITES,
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


def test_all_indexes_of_a_table_come_in_one_version_and_one_commit(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(VECTOR_ROWS), vectors=True)
    change(graph, 'insert Cites { from: "d1", to: "d2" }')
    versions = {key: entry_of(graph, key).version for key in (DOC, CITES)}
    known = commits_of(graph)
    done = ensure_indices(graph, MAIN)
    assert done.built == {DOC: ("id", "level", "place", "score", "text"), CITES: ("id", "src", "dst")}
    assert done.pending == {}
    assert {key: entry_of(graph, key).version - versions[key] for key in versions} == {DOC: 1, CITES: 1}
    assert [commit.id for commit in commits_of(graph)[len(known) :]] == [done.commit and done.commit.id]
    assert {name: (one.kind, one.is_complete) for name, one in indexes_of(graph, DOC).items()} == {
        "id_idx": ("BTREE", True),
        "text_idx": ("INVERTED", True),
        "level_idx": ("BTREE", True),
        "score_idx": ("BTREE", True),
        "place_idx": ("IVF_FLAT", True),
    }
    require_settled(graph)


def test_indexes_are_used(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(100))
    ensure_indices(graph, MAIN)
    docs = table_of(graph, DOC)
    for where in ("id = 'd7'", "score > 90", "level = 'low'"):
        assert "ScalarIndexQuery" in plan_of(docs, where)
    assert (docs.count("id = 'd7'"), docs.count("score > 90"), docs.count("level = 'low'")) == (1, 9, 50)
    assert texts_with(docs, "walk") == {f"d{number}" for number in range(100)}, "words are stemmed"


def test_a_second_time_nothing_is_written(folder: Location) -> None:
    add_docs(docs_graph(folder), range(10))
    recorder = Recorder()
    graph = OpenGraph.open(Root.at(folder, recorder))
    assert ensure_indices(graph, MAIN).commit is not None
    recorder.clear()
    done = ensure_indices(graph, MAIN)
    assert (done.commit, done.built) == (None, {})
    assert not {"write_text", "write_text_if_absent", "commit", "merge_rows"} & recorder.counts().keys()


def test_a_table_without_rows_waits_for_some(folder: Location) -> None:
    graph = docs_graph(folder)
    assert ensure_indices(graph, MAIN).commit is None
    log(graph)
    assert ensure_indices(graph, MAIN).built == {LOG: ("id",)}


def test_vectors_that_are_not_there_are_pending_and_few_need_no_index(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(20))
    done = ensure_indices(graph, MAIN)
    assert done.pending == {DOC: ("place",)}
    assert "place" not in done.built[DOC]
    add_docs(graph, range(20, 40), vectors=True)
    done = ensure_indices(graph, MAIN)
    assert (done.commit, done.pending) == (None, {})


def test_a_branch_gets_its_own_tables_only_where_an_index_is_missing(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(20))
    ensure_indices(graph, MAIN)
    log(graph)
    create_branch(graph, "work")
    before = {key: entry_of(graph, key) for key in (DOC, LOG)}
    done = ensure_indices(graph, Author("work"))
    assert done.built == {LOG: ("id",)}
    assert [entry_of(graph, key, "work").owner for key in (DOC, LOG)] == [None, "work"]
    assert {key: entry_of(graph, key) for key in (DOC, LOG)} == before, "main is as it was"
    assert indexes_of(graph, LOG) == {}
    require_settled(graph)


def test_an_index_is_right_about_rows_that_came_changed_and_went(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(10))
    ensure_indices(graph, MAIN)
    change(graph, 'update Doc set { text: "swimming", score: 77 } where slug = "d3"')
    change(graph, 'delete Doc where slug = "d4"')
    change(graph, 'insert Doc { slug: "new", text: "swims", score: 78 }')
    docs = table_of(graph, DOC)
    assert texts_with(docs, "swim") == {"d3", "new"}
    assert texts_with(docs, "walk") == {f"d{number}" for number in range(10)} - {"d3", "d4"}
    assert docs.count("score >= 77") == 2
    assert docs.count("score = 3 or score = 4") == 0


def test_a_branch_that_is_not_there_is_refused(folder: Location) -> None:
    with pytest.raises(BranchNotFound):
        ensure_indices(docs_graph(folder), Author("nowhere"))


def test_an_index_whose_files_are_gone_is_built_again(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(10))
    log(graph)
    ensure_indices(graph, MAIN)
    shutil.rmtree(Path(table_of(graph, DOC).uri, "_indices"))
    fresh = OpenGraph.open(Root.at(folder))
    assert ensure_indices(fresh, MAIN).built == {DOC: ("id", "level", "score", "text")}
    docs = table_of(fresh, DOC)
    assert docs.count("score > 6") == 3
    assert "ScalarIndexQuery" in plan_of(docs, "score > 6")
    assert texts_with(docs, "walk") == {f"d{number}" for number in range(10)}
    assert ensure_indices(fresh, MAIN).commit is None
    require_settled(fresh)
