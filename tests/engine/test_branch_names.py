"""What a branch may be called."""

from __future__ import annotations

import pytest

from omnigraph import errors
from omnigraph.engine.branches.manage import create_branch, delete_branch, list_branches
from omnigraph.engine.graph.branch_names import SCHEMA_APPLY_LOCK, parse_branch_name
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder


def names(graph: OpenGraph) -> list[str]:
    return [found.name for found in list_branches(graph)]


def test_a_proper_name_is_taken_without_the_space_around_it(graph: OpenGraph) -> None:
    for text in ("work", " work\n", "a/b/c", "A.b-c_1", "-x", ".x", "x.", "x" * 200, "a/main"):
        assert create_branch(graph, text).name == text.strip()
        assert names(graph) == ["main", text.strip()]
        delete_branch(graph, text)
        assert names(graph) == ["main"]
        graph.load("main")


BAD_NAMES = [
    "",
    " \t",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "a..b",
    "...",
    "a b",
    "a\nb",
    "a\\b",
    "a%2Fb",
    "a#1",
    "ä",
    "a.lock",
    "a/b.lock",
    "main/x",
    "x" * 201,
    "a/" * 50 + "a",
    SCHEMA_APPLY_LOCK,
    f" {SCHEMA_APPLY_LOCK} ",
]


@pytest.mark.parametrize("text", BAD_NAMES)
def test_a_name_no_branch_can_have_is_refused_before_anything_happens(folder: Location, text: str) -> None:
    recorder = Recorder()
    watched = OpenGraph(Root.at(folder, recorder), read_only=False)
    for act in (
        lambda: create_branch(watched, text),
        lambda: create_branch(watched, "fine", from_branch=text),
        lambda: delete_branch(watched, text),
        lambda: parse_branch_name(text),
    ):
        with pytest.raises(errors.InvalidName):
            act()
    assert recorder.calls == ()
    assert not folder.path.exists()


def test_main_can_neither_be_made_nor_deleted(graph: OpenGraph) -> None:
    for act in (create_branch, delete_branch):
        with pytest.raises(errors.InvalidName, match="main"):
            act(graph, " main ")
    assert parse_branch_name(" main ") == "main"


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c/d")])
def test_a_name_above_or_below_a_live_one_is_refused_until_that_is_gone(
    graph: OpenGraph, first: str, second: str
) -> None:
    create_branch(graph, first)
    with pytest.raises(errors.InvalidName, match=f"'{second}' cannot be used beside branch '{first}'"):
        create_branch(graph, second)
    delete_branch(graph, first)
    create_branch(graph, second)
    assert graph.load(second).state.head is not None


def test_names_that_only_look_alike_live_side_by_side(graph: OpenGraph) -> None:
    for name in ("a-b", "a", "a.b", "ab/c"):
        create_branch(graph, name)
    delete_branch(graph, "a")
    assert names(graph) == ["main", "a-b", "a.b", "ab/c"]
    for name in ("a-b", "a.b", "ab/c"):
        graph.load(name)
