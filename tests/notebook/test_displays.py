"""What a notebook shows of graphs, branches, commits, snapshots, diffs and merges."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

import omnigraph as og

SCHEMA = """
node Person { handle: String @key  name: String? }
node Team { slug: String @key }
edge Knows: Person -> Person
"""
EVIL = "<script>alert('1')</script>"


class Page(HTMLParser):
    """Collects tags, captions, cells by row, and the lines after tables, as a browser would read them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.rows and self.rows[-1] and self.lasttag in ("td", "th", "em"):
            self.rows[-1][-1] += data


def page_of(shown: Any) -> Page:
    page = Page(shown._repr_html_())
    assert page.tags <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "em"}
    return page


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("shown") / "team.omni", schema=SCHEMA) as made:
        with made.write(actor=EVIL) as tx:
            tx.insert("Person", handle="ada", name=EVIL)
            tx.insert("Person", handle="bo")
            tx.insert_edge("Knows", "ada", "bo")
        made.branches.create("draft")
        rename = "query r($h: String, $n: String) { update Person set { name: $n } where handle = $h }"
        made.mutate(rename, {"h": "ada", "n": "Ada of draft"}, branch="draft", actor="bo")
        made.mutate(rename, {"h": "ada", "n": "Ada of main"}, actor="ann")
        with made.write("draft") as tx:
            for number in range(24):
                tx.insert("Person", handle=f"p{number:02}", name=EVIL)
        yield made


def test_a_graph_shows_its_types_branches_and_newest_commit(graph: og.Graph) -> None:
    page, newest = page_of(graph), graph.snapshot().commit
    assert newest is not None
    assert page.rows == [
        ["type", "kind", "rows"],
        ["Person", "node", "2"],
        ["Team", "node", "0"],
        ["Knows", "edge", "1"],
    ]
    assert page.texts[0] == f"Graph {graph.uri}"
    assert "branches: main, draft" in page.texts
    time = newest.time.strftime("%Y-%m-%d %H:%M:%S UTC")
    assert f"newest commit of main: {newest.id} of {time} by ann" in page.texts


def test_a_graph_that_is_only_read_says_so_and_a_closed_one_shows_no_table(graph: og.Graph) -> None:
    with og.open(graph.uri, read_only=True) as opened:
        assert page_of(opened).texts[0] == f"Graph {graph.uri}, read-only"
    assert opened._repr_html_() is None


def test_branches_show_where_they_come_from_and_their_newest_commit(graph: og.Graph) -> None:
    rows = page_of(graph.branches).rows
    main, draft = (graph.snapshot(name).commit for name in ("main", "draft"))
    assert main is not None
    assert draft is not None
    assert [row[:3] for row in rows[1:]] == [["main", "null", main.id], ["draft", "main", draft.id]]
    assert [row[4] for row in rows[1:]] == ["ann", "null"]


def test_commits_show_who_made_them_as_text(graph: og.Graph) -> None:
    page = page_of(graph.commits)
    assert [row[0] for row in page.rows[1:]] == [commit.id for commit in graph.commits]
    assert [row[4] for row in page.rows[1:]] == ["ann", EVIL, "null"]


def test_a_snapshot_shows_its_tables_and_who_wrote_them(graph: og.Graph) -> None:
    page = page_of(graph.snapshot("draft"))
    assert [(row[0], row[2], row[4]) for row in page.rows[1:]] == [
        ("Person", "26", "draft"),
        ("Team", "0", "main"),
        ("Knows", "1", "main"),
    ]


def test_a_diff_shows_counts_and_the_first_changes_as_text(graph: og.Graph) -> None:
    page = page_of(graph.diff("main", "draft"))
    assert page.rows[1] == ["Person", "node", "24", "1", "0"]
    changes = page.rows[3:]
    assert len(changes) == 20
    assert changes[0] == ["update", "Person", "ada", "name: Ada of main → Ada of draft"]
    assert changes[1] == ["insert", "Person", "p00", f"handle: p00, name: {EVIL}"]
    assert page.texts[-1] == "… 5 more changes"


def test_a_diff_without_changes_is_an_empty_table(graph: og.Graph) -> None:
    assert page_of(graph.diff("main", "main")).rows == [["type", "kind", "inserted", "updated", "deleted"]]


def test_a_merge_preview_shows_what_would_come_and_every_conflict(graph: og.Graph) -> None:
    page = page_of(graph.merge("draft", dry_run=True))
    assert page.texts[0] == "Merging 'draft' into 'main' would be: merged"
    assert page.rows[1] == ["Person", "node", "24", "0", "0"]
    assert "1 conflict, 0 decided" in page.texts
    assert page.rows[-1][:3] == ["Person", "ada", "divergent_update"]


def test_a_merge_shows_what_came(graph: og.Graph) -> None:
    graph.branches.create("target")
    page = page_of(graph.merge("draft", "target", strategy="theirs"))
    assert page.texts[0] == "Merged 'draft' into 'target': merged"
    assert page.rows[1] == ["Person", "node", "24", "1", "0"]
    graph.branches.delete("target")
