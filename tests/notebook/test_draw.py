"""Pictures: which nodes and edges they show, where they end, and how they look in a notebook and in files."""

from __future__ import annotations

import doctest
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, InvalidValue, WrongQueryKind
from omnigraph.notebook.rendering import assign_colours

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = """
node Person { handle: String @key  name: String?  face: Vector(2)?  photo: Blob? }
node Team { slug: String @key }
edge Knows: Person -> Person
edge MemberOf: Person -> Team
"""
EVERYBODY = "query all() { match { $p: Person } return { $p } order { $p.handle } }"
FORMULA = "$x^2$ <b>&"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    """A chain of friends a -> b -> c -> d, with a loop at d, two edges from a to b, and a team of a and d."""
    with og.init(tmp_path_factory.mktemp("drawn") / "team.omni", schema=SCHEMA) as made:
        with made.write() as tx:
            for handle in "abcd":
                tx.insert("Person", handle=handle, name=FORMULA if handle == "a" else None, face=[1.0, 0.0])
            for slug in ("x", "d"):
                tx.insert("Team", slug=slug)
            for source, target in ("ab", "ab", "bc", "cd", "dd"):
                tx.insert_edge("Knows", source, target)
            for source in "ad":
                tx.insert_edge("MemberOf", source, "x")
        yield made


def people(ids: str) -> list[tuple[str, str]]:
    return [("Person", id_) for id_ in ids]


# --- which nodes and edges -----------------------------------------------------------------------


def test_a_query_draws_the_nodes_it_returns_and_all_edges_between_them(graph: og.Graph) -> None:
    pairs = (
        "query q($h: String) { match { $p: Person { handle: $h }  $p knows $q } return { $q, $p.name, $p } }"
    )
    picture = graph.draw(pairs, {"h": "a"})
    assert picture.nodes == people("ba")
    assert picture.edges == [("Knows", "a", "b")] * 2
    assert repr(picture) == "<Picture of 2 nodes and 2 edges>"
    assert not picture.cut


def test_a_node_that_comes_more_than_once_is_drawn_once_and_null_is_not(graph: og.Graph) -> None:
    pattern = "match { $p: Person  optional { $p memberOf $t } }"
    assert graph.draw(f"query q() {{ {pattern} return {{ $t, $p }} order {{ $p.handle }} }}").nodes == [
        ("Team", "x"),
        *people("abcd"),
    ]
    groups = "query q() { match { $p: Person  $p memberOf $t } return { $t, count($p) as n } }"
    assert graph.draw(groups).nodes == [("Team", "x")]


def test_several_edge_types_are_drawn_unless_some_are_named(graph: og.Graph) -> None:
    everything = {"Person": "a", "Team": ["x"]}
    assert graph.draw(everything).edges == [("MemberOf", "a", "x")]
    assert graph.draw(everything, edges="knows").edges == []
    assert graph.draw(EVERYBODY, edges=["Knows"]).edges == graph.draw(EVERYBODY).edges


def test_hops_go_both_ways_and_only_over_the_edges_named(graph: og.Graph) -> None:
    assert graph.draw(["b"], hops=1).nodes == people("bca")
    assert graph.draw(["x"], hops=1).nodes == [("Team", "x"), *people("ad")]
    assert set(graph.draw(["b"], hops=2).nodes) == {*people("abcd"), ("Team", "x")}
    assert set(graph.draw(["b"], hops=5, edges="Knows").nodes) == set(people("abcd"))


def test_nodes_are_named_by_id_and_by_type_where_that_is_not_enough(graph: og.Graph) -> None:
    assert graph.draw(["Team:d", "a", "a"]).nodes == [("Team", "d"), ("Person", "a")]
    with pytest.raises(BadRequest, match="there are several nodes 'd'") as several:
        graph.draw(["d"])
    assert several.value.remedy == "name 'Person:d' or 'Team:d'"


def test_a_picture_is_of_any_branch_and_any_past(graph: og.Graph) -> None:
    empty = graph.commits.list()[-1]
    graph.branches.create("draft")
    graph.mutate('query q() { delete Person where handle = "b" }', branch="draft")
    assert graph.draw(EVERYBODY, branch="draft").nodes == people("acd")
    assert graph.draw(EVERYBODY).nodes == people("abcd")
    assert repr(graph.draw(EVERYBODY, commit=empty.id)) == "<Picture of 0 nodes and 0 edges>"
    graph.branches.delete("draft")


# --- where it ends -------------------------------------------------------------------------------


def test_a_picture_says_when_there_are_more_nodes(graph: og.Graph) -> None:
    picture = graph.draw(EVERYBODY, limit=2)
    assert picture.nodes == people("ab")
    assert picture.cut
    assert repr(picture) == "<Picture of 2 of 4 nodes and 2 edges>"
    assert repr(graph.draw({"Person": list("abcd")}, limit=3)) == "<Picture of 3 of 4 nodes and 3 edges>"


def test_a_walk_that_is_not_finished_says_that_there_may_be_more(graph: og.Graph) -> None:
    picture = graph.draw(["b"], hops=3, limit=2)
    assert picture.nodes == people("bc")
    assert repr(picture) == "<Picture of 2 of 3 or more nodes and 1 edge>"


def test_edges_are_cut_as_well(tmp_path: Path) -> None:
    with og.init(tmp_path / "dense.omni", schema="node N { k: String @key } edge E: N -> N") as graph:
        with graph.write() as tx:
            tx.insert("N", k="a")
            for _ in range(12):
                tx.insert_edge("E", "a", "a")
        picture = graph.draw(["a"], limit=1)
        assert repr(picture) == "<Picture of 1 node and 10 of 12 edges>"
        assert picture.cut


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "how", "error", "message"),
    [
        ("query q() { match { $p: Person } return { $p.name } }", {}, BadRequest, "returns no nodes to draw"),
        ('query q() { delete Person where handle = "a" }', {}, WrongQueryKind, "changes the graph"),
        (["missing"], {}, BadRequest, "there is no node 'missing'"),
        ([7], {}, BadRequest, "7 is not the id of a node"),
        ({"Person": ["x"]}, {}, BadRequest, "there is no node 'x' of type 'Person'"),
        ({"Knows": ["x"]}, {}, BadRequest, "'Knows' is not a node type"),
        (["a"], {"edges": "likes"}, BadRequest, "'likes' is not an edge type"),
        (["a"], {"label": "nick"}, BadRequest, "no node type has a property 'nick'"),
        (["a"], {"params": {}}, BadRequest, "only a query has parameters"),
        (["a"], {"limit": 0}, InvalidValue, "limit must be from 1 to 10,000, got 0"),
        (["a"], {"hops": 11}, InvalidValue, "hops must be from 0 to 10, got 11"),
        (["a"], {"height": 20}, InvalidValue, "height must be at least 250, got 20"),
    ],
)
def test_what_cannot_be_drawn_is_reported(
    graph: og.Graph, what: Any, how: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        graph.draw(what, **how)


# --- how it looks --------------------------------------------------------------------------------


def test_an_svg_holds_names_as_text_and_is_the_same_every_time(graph: og.Graph) -> None:
    first, second = (graph.draw(EVERYBODY, label="name", hops=1).svg() for _ in range(2))
    assert first == second
    texts = [each.text for each in ElementTree.fromstring(first).iter("{http://www.w3.org/2000/svg}text")]
    assert {FORMULA, "b", "Person", "Team", "Knows", "MemberOf", "5 nodes and 7 edges"} <= set(texts)


def test_a_picture_is_saved_by_the_ending_of_its_name(graph: og.Graph, tmp_path: Path) -> None:
    picture = graph.draw(["a", "Person:d"], hops=1)
    picture.save(tmp_path / "people.SVG")
    picture.save(str(tmp_path / "people.png"))
    assert (tmp_path / "people.SVG").read_text(encoding="utf-8") == picture.svg()
    assert (tmp_path / "people.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(BadRequest, match=r"'people\.gif' is not the name of a picture"):
        picture.save(tmp_path / "people.gif")
    with pytest.raises(BadRequest, match="cannot write"):
        picture.save(tmp_path / "nowhere" / "people.svg")


def test_nothing_is_a_picture_too(graph: og.Graph) -> None:
    empty = graph.draw('query q() { match { $p: Person { handle: "zoe" } } return { $p } }')
    assert "0 nodes and 0 edges" in empty.svg()
    assert empty.widget() is not None


def test_names_in_letters_that_no_font_has_are_drawn_without_warnings(tmp_path: Path) -> None:
    with og.init(tmp_path / "far.omni", schema="node N { k: String @key }") as graph:
        with graph.write() as tx:
            tx.insert("N", k="\U0001f9ff漢\n")
        picture = graph.draw(["\U0001f9ff漢\n"])
        assert "\U0001f9ff漢\\n" in picture.svg()
        assert picture.png()


def test_a_notebook_gets_a_widget_with_all_data_and_an_image(graph: og.Graph) -> None:
    picture = graph.draw(EVERYBODY, label="name")
    bundle = picture._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"} <= set(bundle)
    assert bundle["text/plain"] == "<Picture of 4 nodes and 5 edges>"
    data = picture.widget().data
    labels = [(node["attributes"]["label"], node["attributes"]["node_type"]) for node in data["nodes"]]
    assert labels == [(name, "Person") for name in (FORMULA, "b", "c", "d")]
    assert json.loads(data["nodes"][0]["attributes"]["properties"]) == {"handle": "a", "name": FORMULA}
    assert len(data["edges"]) == 5


def test_the_widget_runs_from_files_that_its_package_brings(graph: og.Graph) -> None:
    widget = graph.draw(["a"]).widget()
    served = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / widget._model_module
    about = json.loads((served / "package.json").read_text(encoding="utf-8"))
    assert (served / about["jupyterlab"]["_build"]["load"]).is_file()


def test_the_page_about_notebooks_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^```pycon\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, "notebooks.md", None, 0)
    report: list[str] = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)
    assert test.examples


def test_the_page_about_notebooks_names_every_member_and_option() -> None:
    from omnigraph.notebook.draw import DrawOptions
    from omnigraph.notebook.picture import Picture

    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    members = {name for name in vars(Picture) if not name.startswith("_")} - {"label", "height"}
    assert {name for name in members | set(DrawOptions.__annotations__) if f"`{name}" not in page} == set()


def test_twenty_types_have_colours_of_their_own() -> None:
    colours = assign_colours(f"Type{number}" for number in range(20))
    assert len(set(colours.values())) == 20
