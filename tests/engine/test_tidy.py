"""Automatic upkeep: after many small writes a table is as it was after few, and no writer notices."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.manifest import HEAD
from omnigraph.engine.graph.open_graph import AtCommit, AtVersion, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.upkeep.after_write import SETTING
from omnigraph.engine.upkeep.index_catch_up import EXTEND_ROWS
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS, TIERS
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.world import change, look, require_settled, rows_of
from tests.engine.graphs import manifest_rows, no_room_for, require_consistent
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

MAIN = Author("main")


def test_fragments_stay_few_and_history_shows_only_the_writes(folder: Location) -> None:
    graph = docs_graph(folder)
    known = len(commits_of(graph))
    most = 0
    for _ in range(3 * MIN_FRAGMENTS):
        log(graph)
        most = max(most, table_of(graph, LOG).fragment_count)
    assert MIN_FRAGMENTS - 1 <= most <= TIERS[-1].spare
    assert len(commits_of(graph)) == known + 3 * MIN_FRAGMENTS
    assert table_of(graph, LOG).count() == 3 * MIN_FRAGMENTS
    state = OpenGraph.open(Root.at(folder), read_only=True).load("main").state
    assert state == graph.load("main").state, "who arrives sees what the writer knows"
    require_consistent(state)
    require_settled(graph)


def test_every_commit_of_the_past_shows_its_own_rows(folder: Location) -> None:
    graph = docs_graph(folder)
    log(graph, 2 * MIN_FRAGMENTS)
    commits = commits_of(graph)
    for rows, commit in list(enumerate(commits))[::7]:
        assert open_table(graph, graph.snapshot(AtCommit(commit.id)), LOG).count() == rows
    newest = graph.load("main").state.version
    assert graph.snapshot(AtVersion("main", newest)).id == commits[-1].id


def test_the_head_row_stays_what_it_was(folder: Location) -> None:
    graph = docs_graph(folder)
    log(graph, MIN_FRAGMENTS + 1)
    assert table_of(graph, LOG).fragment_count < MIN_FRAGMENTS, "it was tidied just now"
    rows = manifest_rows(graph.root).to_pylist()
    (head,) = (row["metadata"] for row in rows if row["object_type"] == HEAD)
    commits = commits_of(graph)
    assert commits[-1].id in head
    assert commits[-2].id in head, "with the commit before it"


def test_tidying_needs_nothing_from_most_writes(folder: Location) -> None:
    recorder = Recorder()
    graph = docs_graph(folder, recorder)
    log(graph, 3)
    calls: Counter[str] = Counter()
    for _ in range(MIN_FRAGMENTS):
        recorder.clear()
        log(graph)
        # The manifest is looked after at a rhythm of its own.
        of_tables = Counter(call.op for call in recorder.calls if "__manifest" not in call.uri)
        calls["plan_compaction"] += of_tables["plan_compaction"]
        calls["describe_indexes"] += of_tables["describe_indexes"]
    assert calls == {"plan_compaction": 1, "describe_indexes": 1}


def test_it_can_be_turned_off(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "off")
    graph = docs_graph(folder)
    log(graph, MIN_FRAGMENTS + 3)
    assert table_of(graph, LOG).fragment_count == MIN_FRAGMENTS + 3


def test_a_bad_setting_does_not_fail_a_write(
    folder: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SETTING, "perhaps")
    graph = docs_graph(folder)
    with caplog.at_level(logging.WARNING, "omnigraph"):
        log(graph, MIN_FRAGMENTS + 1)
    assert SETTING in caplog.text
    assert table_of(graph, LOG).count() == MIN_FRAGMENTS + 1


@pytest.mark.parametrize("op", ["plan_compaction", "rewrite", "commit_compaction", "describe_indexes"])
def test_a_failure_is_logged_the_write_stands_and_the_next_one_tries_again(
    folder: Location, op: str, caplog: pytest.LogCaptureFixture
) -> None:
    log(docs_graph(folder), MIN_FRAGMENTS)

    graph = OpenGraph.open(Root.at(folder, no_room_for(op, where=lambda uri: "__manifest" not in uri)))
    with caplog.at_level(logging.WARNING, "omnigraph"):
        log(graph)
    assert "no room" in caplog.text
    assert table_of(graph, LOG).count() == MIN_FRAGMENTS + 1
    whole = OpenGraph.open(Root.at(folder))
    known = len(commits_of(whole))
    change(whole, 'update Log set { msg: "y" } where msg = "x"')
    assert len(commits_of(whole)) == known + 1, "what was left behind is adopted without a word"
    assert table_of(whole, LOG).fragment_count < MIN_FRAGMENTS
    require_settled(whole)


def test_a_write_stands_whatever_goes_wrong_with_upkeep(
    folder: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """Also an unforeseen error: a caller that gets an error would write once more."""
    log(docs_graph(folder), MIN_FRAGMENTS)

    class Mistaken(Recorder):
        def __call__(self, called: str, uri: str, /) -> None:
            if called == "plan_compaction":
                raise ZeroDivisionError("a mistake")

    graph = OpenGraph.open(Root.at(folder, Mistaken()))
    with caplog.at_level(logging.ERROR, "omnigraph"):
        log(graph)
    assert "ZeroDivisionError: a mistake" in caplog.text
    assert table_of(graph, LOG).count() == MIN_FRAGMENTS + 1
    require_settled(OpenGraph.open(Root.at(folder)))


def test_a_branch_is_tidied_by_itself_and_leaves_what_it_inherits(folder: Location) -> None:
    graph = docs_graph(folder)
    log(graph, MIN_FRAGMENTS - 2)
    create_branch(graph, "work")
    main = entry_of(graph, LOG)
    log(graph, 3, "work")
    assert table_of(graph, LOG, "work").fragment_count < MIN_FRAGMENTS
    assert table_of(graph, LOG, "work").count() == MIN_FRAGMENTS + 1
    assert entry_of(graph, LOG) == main
    assert table_of(graph, LOG).latest_version() == main.version
    assert table_of(graph, LOG).count() == MIN_FRAGMENTS - 2
    require_settled(graph)


def test_a_large_table_gets_an_index_of_its_ids_and_keeps_it_useful(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(EXTEND_ROWS))
    assert indexes_of(graph, DOC)["id_idx"].is_complete
    add_docs(graph, range(EXTEND_ROWS, EXTEND_ROWS + 10))
    assert not indexes_of(graph, DOC)["id_idx"].is_complete, "a few rows are no reason"
    add_docs(graph, range(EXTEND_ROWS + 10, EXTEND_ROWS + 10 + EXTEND_ROWS))
    docs = table_of(graph, DOC)
    assert indexes_of(graph, DOC)["id_idx"].is_complete
    assert "ScalarIndexQuery" in plan_of(docs, "id = 'd5'")
    for number in (5, EXTEND_ROWS + 5, EXTEND_ROWS + EXTEND_ROWS):
        assert docs.count(f"id = 'd{number}'") == 1
    require_settled(graph)


def test_small_writes_under_indexes_stay_few_and_are_found(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(200))
    ensure_indices(graph, MAIN)
    for number in range(2 * MIN_FRAGMENTS):
        change(graph, f'update Doc set {{ text: "swimming", score: 7777 }} where slug = "d{number}"')
    docs = table_of(graph, DOC)
    assert docs.fragment_count <= MIN_FRAGMENTS + 2
    assert indexes_of(graph, DOC)["text_idx"].segments == 1
    assert texts_with(docs, "swim") == {f"d{number}" for number in range(2 * MIN_FRAGMENTS)}
    assert texts_with(docs, "walk") == {f"d{number}" for number in range(2 * MIN_FRAGMENTS, 200)}
    assert docs.count("score = 7777") == 2 * MIN_FRAGMENTS
    assert docs.count("score < 7777") == 200 - 2 * MIN_FRAGMENTS


def test_a_text_index_that_fell_behind_is_rebuilt_in_one_piece(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(1_000))
    ensure_indices(graph, MAIN)
    change(graph, 'update Doc set { text: "swimming" } where slug = "d3"')
    add_docs(graph, range(1_000, 1_000 + EXTEND_ROWS))
    index = indexes_of(graph, DOC)["text_idx"]
    assert (index.is_complete, index.segments) == (True, 1)
    docs = table_of(graph, DOC)
    assert texts_with(docs, "swim") == {"d3"}
    assert len(texts_with(docs, "walk")) == 1_000 + EXTEND_ROWS - 1


def test_a_write_that_read_before_tables_were_tidied_is_not_refused(folder: Location) -> None:
    graph, other = docs_graph(folder), OpenGraph.open(Root.at(folder))
    log(graph, MIN_FRAGMENTS - 1)
    before = rows_of(look(graph))

    class Tidied(Recorder):
        done = False

        def __call__(self, op: str, uri: str, /) -> None:
            # The update has read and staged; now the tables are stored otherwise.
            if op == "stage_upsert" and not self.done:
                self.done = True
                ensure_indices(other, MAIN)

    watched = OpenGraph.open(Root.at(folder, Tidied()))
    done = change(watched, 'update Log set { msg: "y" } where msg = "x"')
    assert done.affected_nodes == MIN_FRAGMENTS - 1
    assert rows_of(look(graph)) != before
    require_settled(graph)
