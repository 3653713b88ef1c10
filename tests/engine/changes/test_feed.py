"""The changes of a branch, commit by commit: where they start, go on, stop, and what a reader may keep."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.changes.page import MOST_CHANGES
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import (
    BadRequest,
    BranchNotFound,
    ChangeCursorRejected,
    ChangeDiffRefused,
    ChangeFeedGap,
    HistoricalVersionReclaimed,
    InvalidValue,
    ResourceLimitExceeded,
)
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.upkeep import collect_versions
from tests.engine.changes.world import apply_changes, link, load, texts, thing


def add(graph: Graph, *keys: str, branch: str = "main", **values: Any) -> str:
    """Things in one commit; gives its id."""
    load(graph, {("Thing", key): thing(key, **values) for key in keys}, branch=branch)
    return graph.snapshot(branch).id


def summarize(blocks: Any) -> list[tuple[str, list[str]]]:
    return [(block.commit.id, [f"{one.op} {one.id}" for one in block.changes]) for block in blocks]


def test_commits_come_oldest_first_and_begin_with_the_first_that_changed_something(graph: Graph) -> None:
    first, one, two = graph.snapshot().id, add(graph, "c"), add(graph, "a", "c", i=5)
    expected = [
        (first, ["insert x", "insert y", "insert z", "insert a", "insert b"]),
        (one, ["insert c"]),
        (two, ["update a", "update c"]),
    ]
    for since in (None, "beginning"):
        feed = graph.changes(since=since)
        assert summarize(feed) == expected
        assert feed.caught_up


def test_a_cursor_goes_on_after_the_last_whole_commit(graph: Graph) -> None:
    feed = graph.changes(since="now")
    assert (list(feed), feed.caught_up) == ([], True)
    kept = feed.cursor
    one, two = add(graph, "c"), add(graph, "d")
    with omnigraph.open(graph.uri, read_only=True) as other:
        feed = other.changes(since=kept)
        block = next(feed)
        assert summarize([block]) == [(one, ["insert c"])]
        assert feed.cursor == block.cursor
        assert not feed.caught_up
        assert summarize(other.changes(since=block.cursor)) == [(two, ["insert d"])]
        assert summarize(other.changes(since=kept)) == [(one, ["insert c"]), (two, ["insert d"])], (
            "at least once"
        )
        assert summarize(other.changes(since=f"after:{one}")) == [(two, ["insert d"])]


def test_a_limit_is_a_number_of_commits(graph: Graph) -> None:
    start = graph.changes(since="now").cursor
    one, two, three = add(graph, "c"), add(graph, "d"), add(graph, "e")
    feed = graph.changes(since=start, limit=2)
    assert [commit for commit, _ in summarize(feed)] == [one, two]
    assert not feed.caught_up
    assert [commit for commit, _ in summarize(graph.changes(since=feed.cursor, limit=2))] == [three]
    with pytest.raises(InvalidValue, match="at least 1"):
        graph.changes(limit=0)


def test_commits_without_changes_are_passed_and_not_met_again(graph: Graph) -> None:
    start = graph.changes(since="now").cursor
    add(graph, "a", i=1)
    graph.optimize()
    feed = graph.changes(since=start)
    assert list(feed) == []
    assert feed.caught_up
    assert feed.cursor != start
    last = add(graph, "c")
    assert summarize(graph.changes(since=feed.cursor)) == [(last, ["insert c"])]


def test_a_feed_follows_its_branch_and_what_it_inherited(graph: Graph) -> None:
    start = graph.changes(since="now").cursor
    inherited = add(graph, "c")
    graph.branches.create("work")
    add(graph, "d")
    own = add(graph, "e", branch="work")
    found = graph.changes("work", since=f"after:{graph.commits.list()[2].id}")
    assert summarize(found) == [(inherited, ["insert c"]), (own, ["insert e"])]
    with pytest.raises(ChangeCursorRejected, match="change cursor rejected: it belongs to branch 'main'"):
        graph.changes("work", since=start)
    with pytest.raises(ChangeCursorRejected, match="no commit"):
        graph.changes(since=f"after:{own}")


def test_applying_a_feed_gives_the_newest_state(graph: Graph) -> None:
    add(graph, "a", "c", d=-0.0, data="base64:aGk=")
    load(graph, {("Link", "e"): link("x", "y", 1.0)})
    graph.mutate('query q() { delete Thing where k = "b" }')
    load(graph, {("Link", "e"): link("y", "z", 1.0)}, "overwrite")
    state = apply_changes({}, (change for block in graph.changes() for change in block.changes))
    expected = apply_changes({}, graph.diff(graph.commits.list()[-1], "main"))
    assert texts(state) == texts(expected)
    assert ("Thing", "b") not in state


# --- cursors that do not fit ---------------------------------------------------------------------


def deleted_and_made_again(graph: Graph) -> tuple[str, str]:
    graph.branches.create("work")
    kept = graph.changes("work", since="now").cursor
    graph.branches.delete("work")
    graph.branches.create("work")
    return "work", kept


def another_filter(graph: Graph) -> tuple[str, str]:
    return "main", graph.changes(since="now", types="Thing").cursor


def a_page_token(graph: Graph) -> tuple[str, str]:
    token = graph.change_page(limit=1).next_page_token
    assert token is not None
    return "main", token


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (deleted_and_made_again, "branch 'work' was deleted and made again since"),
        (another_filter, "it was made with another filter"),
        (a_page_token, "it is not a cursor"),
        (lambda _: ("main", "c1.!!!"), "it is not a cursor"),
        (lambda _: ("main", "c1.WzFd"), "it is not a cursor"),
        (lambda _: ("main", ""), "it is not a cursor"),
        (lambda graph: ("main", graph.changes(since="now").cursor[:-4]), "it is not a cursor"),
    ],
)
def test_a_cursor_that_does_not_fit_is_rejected(
    graph: Graph, made: Callable[[Graph], tuple[str, str]], reason: str
) -> None:
    branch, kept = made(graph)
    with pytest.raises(ChangeCursorRejected) as caught:
        graph.changes(branch, since=kept)
    assert str(caught.value) == f"change cursor rejected: {reason}"


def test_a_cursor_of_another_graph_is_rejected(graph: Graph, tmp_path: Any) -> None:
    with omnigraph.init(tmp_path / "other", schema="node P { k: String @key }") as other:
        kept = other.changes(since="now").cursor
    with pytest.raises(ChangeCursorRejected, match="it belongs to another graph"):
        graph.changes(since=kept)


# --- gaps and refusals ---------------------------------------------------------------------------


def clean_up(graph: Graph) -> None:
    found, root = graph.snapshot().tables["node:Thing"], graph._opened.root
    table = root.tables.tip(root.layout.table(found.path))
    collect_versions(table, [version for version in table.versions() if version < found.version])


def test_a_gap_names_the_first_commit_that_cannot_be_read(graph: Graph) -> None:
    start = graph.changes(since="now").cursor
    one, _ = add(graph, "c"), add(graph, "d")
    clean_up(graph)
    with omnigraph.open(graph.uri, read_only=True) as other:
        feed = other.changes(since=start)
        for _ in range(2):
            with pytest.raises(ChangeFeedGap) as caught:
                next(feed)
            assert (caught.value.cursor, caught.value.first_unreadable_commit_id) == (start, one)
        with pytest.raises(ChangeFeedGap):
            other.change_page(since=start)
        with pytest.raises(HistoricalVersionReclaimed):
            list(other.commits.changes(one))
        late = add(graph, "e")
        assert summarize(other.changes(since=f"after:{graph.commits.list()[1].id}")) == [(late, ["insert e"])]


POLLING = {
    "commits listed": failpoints.CHANGE_FEED_POST_CAPTURE,
    "versions known": failpoints.CHANGE_FEED_PRE_TABLE_OPEN,
}
"""How far a poll has come when the branch is taken away under it."""
ASKING: dict[str, Callable[[Graph, str], object]] = {
    "feed": lambda graph, since: summarize(graph.changes("work", since=since)),
    "page": lambda graph, since: summarize(graph.change_page("work", since=since).blocks),
}


def branch_off(graph: Graph, *keys: str) -> list[str]:
    graph.branches.create("work")
    return [add(graph, key, branch="work") for key in keys]


@pytest.mark.parametrize("asked", ASKING)
@pytest.mark.parametrize("when", ["commits listed", "versions known"])
def test_a_branch_that_is_recreated_under_a_poll_is_a_gap(graph: Graph, when: str, asked: str) -> None:
    since = f"after:{graph.snapshot().id}"
    first, _ = branch_off(graph, "c", "d")

    def recreate_branch() -> None:
        graph.branches.delete("work")
        branch_off(graph, "e", "f")  # its versions have the same numbers

    with (
        omnigraph.open(graph.uri, read_only=True) as reader,
        failpoints.arm(POLLING[when], failpoints.once(recreate_branch)),
        pytest.raises(ChangeFeedGap) as caught,
    ):
        ASKING[asked](reader, since)
    assert caught.value.first_unreadable_commit_id == first


@pytest.mark.parametrize("asked", ASKING)
@pytest.mark.parametrize("when", POLLING)
def test_a_branch_that_is_deleted_under_a_poll_is_gone_or_a_gap(graph: Graph, when: str, asked: str) -> None:
    since = f"after:{graph.snapshot().id}"
    branch_off(graph, "c", "d")
    with (
        omnigraph.open(graph.uri, read_only=True) as reader,
        failpoints.arm(POLLING[when], failpoints.once(lambda: graph.branches.delete("work"))),
        pytest.raises((BranchNotFound, ChangeFeedGap)),
    ):
        ASKING[asked](reader, since)


def test_a_commit_is_compared_with_its_first_parent(graph: Graph) -> None:
    one = add(graph, "c", "a", i=3)
    add(graph, "d")
    assert [f"{change.op} {change.id}" for change in graph.commits.changes(one)] == ["update a", "insert c"]
    assert [change.id for change in graph.commits.changes(one, ops=["insert"])] == ["c"]


def test_the_first_commit_and_changes_of_schema_are_refused(graph: Graph) -> None:
    first = graph.commits.list()[-1]
    with pytest.raises(ChangeDiffRefused) as caught:
        graph.commits.changes(first.id)
    assert (caught.value.reason, caught.value.commit_id) == ("parentless_commit", first.id)
    start = graph.changes(since="now").cursor
    changed = add(graph, "c")
    # What a schema change leaves for its commit.
    root = graph._opened.root
    root.objects.write_text_if_absent(root.layout.past_schema(changed), graph.schema_source)
    last = add(graph, "d")
    for ask in (lambda: graph.commits.changes(changed), lambda: next(graph.changes(since=start))):
        with pytest.raises(ChangeDiffRefused) as caught:
            ask()
        assert (caught.value.reason, caught.value.commit_id) == ("schema_boundary", changed)
    assert summarize(graph.changes(since=f"after:{changed}")) == [(last, ["insert d"])]


# --- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_pages_tell_everything_once_and_only_the_last_has_a_cursor(graph: Graph, limit: int) -> None:
    add(graph, "c", "d", "e")
    load(graph, {("Link", "e"): link("x", "y"), ("Thing", "a"): thing("a")})
    expected = [(block.commit.id, change) for block in graph.changes() for change in block.changes]
    page = graph.change_page(limit=limit)
    found = []
    while True:
        received = [(block.commit.id, change) for block in page.blocks for change in block.changes]
        assert len(received) <= limit
        found += received
        if page.next_page_token is None:
            break
        assert (page.cursor, page.caught_up) == (None, False)
        add(graph, f"later{len(found)}")  # not part of this answer
        page = graph.change_page(page_token=page.next_page_token, limit=limit)
    assert found == expected
    assert page.caught_up
    later = [change.id for block in graph.changes(since=page.cursor) for change in block.changes]
    assert all(entity.startswith("later") for entity in later)
    assert (limit == 1000) == (not later)


def test_a_page_ends_before_it_is_too_large(graph: Graph) -> None:
    start = graph.changes(since="now").cursor
    add(graph, "c", "d", s="x" * 3_000_000)
    page = graph.change_page(since=start)
    assert [change.id for block in page.blocks for change in block.changes] == ["c"]
    page = graph.change_page(page_token=page.next_page_token)
    assert [change.id for block in page.blocks for change in block.changes] == ["d"]
    assert page.to_json()["caught_up"] is True


def test_pages_refuse_what_they_cannot_do(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="at least 1"):
        graph.change_page(limit=0)
    with pytest.raises(ResourceLimitExceeded, match="commit_changes_page_changes"):
        graph.change_page(limit=MOST_CHANGES + 1)
    with pytest.raises(BadRequest, match="already says where to continue"):
        graph.change_page(since="now", page_token="p1.x")
    with pytest.raises(ChangeCursorRejected, match="not a page token"):
        graph.change_page(page_token=graph.changes(since="now").cursor)


# --- cost ----------------------------------------------------------------------------------------


def test_a_poll_that_is_caught_up_reads_no_data_and_no_more_after_more_commits(graph: Graph) -> None:
    def poll(kept: str) -> dict[str, int]:
        recorder = Recorder()
        opened = Graph(OpenGraph.open(Root.at(Location.parse(graph.uri), recorder), read_only=True))
        opened.snapshot()
        recorder.clear()
        feed = opened.changes(since=kept)
        assert (list(feed), feed.caught_up) == ([], True)
        assert not [call for call in recorder.calls if "/nodes/" in call.uri or "/edges/" in call.uri]
        return dict(recorder.counts())

    few = poll(graph.changes(since="now").cursor)
    for number in range(12):
        add(graph, f"t{number}")
    assert poll(graph.changes(since="now").cursor) == few == {"probe": 1}


@pytest.mark.parametrize("table", ["node:Nothing", "node:", "edge:Link", "anything", ""])
def test_a_page_token_that_names_a_table_its_commit_did_not_change_is_rejected(
    graph: Graph, table: str
) -> None:
    commit = add(graph, "a", "b", "c")
    tokens: list[tuple[str | None, Callable[[str], Any]]] = [
        (graph.change_page(limit=1).next_page_token, lambda token: graph.change_page(page_token=token)),
        (
            graph.commits.change_page(commit, limit=1).next_page_token,
            lambda token: graph.commits.change_page(commit, page_token=token),
        ),
    ]
    for token, asked in tokens:
        assert token is not None
        assert asked(token)
        facts = json.loads(urlsafe_b64decode(token.removeprefix("p1.") + "=="))
        facts[-1][0] = table
        forged = urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")
        with pytest.raises(ChangeCursorRejected, match="did not change"):
            asked(f"p1.{forged}")
