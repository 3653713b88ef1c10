"""What branches cost in a bucket: the same requests, however many other branches there are."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from omnigraph.engine.branches.manage import create_branch, delete_branch, list_branches
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.references import FEW
from tests.engine.crash.world import change
from tests.storage.conftest import ask_s3, s3_server, use_s3

SCHEMA = "node Person { name: String @key }\nnode Log { msg: String }\n"
ROWS = 'insert Log { msg: "a" }  insert Person { name: "p" }'
DELETED = ("first", "second", "third")

DELETE_COST = 57
"""Requests to open a graph of two types, and to delete a branch that wrote to both.

Six of them read the lease again, each before a delete.
"""
CREATE_COST = 35
"""Requests to open a graph, and to create a branch."""
LIST_COST = 10
"""Requests to open a graph for reading, and to list its branches, one of which came since the summary."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in a folder, where branches take less time to make."""
    at = tmp_path_factory.mktemp("branches") / "graph"
    create_graph(Root.at(Location.parse(at)), SCHEMA)
    change(OpenGraph.open(Root.at(Location.parse(at))), ROWS)
    return at


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A server of its own: no other requests are counted."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        yield use_s3(endpoint, patch).bucket


Build = Callable[[int, int], Location]


@pytest.fixture
def build(template: Path, bucket: str, tmp_path: Path) -> Build:
    """Make a graph in the bucket with other branches beside those to delete, some of them written to."""

    def made(others: int, written: int) -> Location:
        folder = tmp_path / f"with-{others}"
        shutil.copytree(template, folder)
        graph = OpenGraph.open(Root.at(Location.parse(folder)))
        for number in range(others):
            create_branch(graph, f"other-{number}")
            if number < written:
                change(graph, ROWS, f"other-{number}")
        for name in DELETED:
            create_branch(graph, name)
            change(graph, ROWS, name)
        at = Location.parse(f"s3://{bucket}/{tmp_path.name}/with-{others}")
        ask_s3("fill", folder=str(folder), bucket=at.bucket, prefix=at.key)
        return at

    return made


def open_at(at: Location, *, read_only: bool = False) -> OpenGraph:
    return OpenGraph.open(Root.at(at), read_only=read_only)


def requests_of(act: Callable[[OpenGraph], object], at: Location, *, read_only: bool = False) -> Counter[str]:
    """The requests of an operation by a new handle, by method and first folder; Lance's own are included."""
    ask_s3("record")
    act(open_at(at, read_only=read_only))
    return Counter(_request(*one) for one in ask_s3("requests"))


def _request(method: str, path: str, query: str) -> str:
    options = parse_qs(query, keep_blank_values=True)
    if "list-type" in options:
        return f"LIST {options['prefix'][0].split('/')[2]}"
    return method if method == "POST" else f"{method} {path.split('/')[4]}"


def summaries(at: Location) -> list[str]:
    listed = Root.at(at).objects.list_dir(at / "__derived")
    return sorted(one.name for one in listed if one.name.endswith(".forks"))


@pytest.mark.s3
def test_requests_do_not_grow_with_the_number_of_branches(build: Build) -> None:
    found = []
    for others, written in ((FEW + 1, FEW + 1), (200, 40)):
        at = build(others, written)
        open_at(at)  # a process tries a store once
        first = requests_of(lambda graph: delete_branch(graph, "first"), at)
        deleting = requests_of(lambda graph: delete_branch(graph, "second"), at)
        references = others + len(DELETED), 2 * (written + len(DELETED))
        assert first - deleting == {
            "GET __manifest": references[0],
            "GET nodes": references[1],
            "PUT __derived": 3,
        }, "every reference is read once, and a summary written of the manifest's and of those of two tables"
        creating = requests_of(lambda graph: create_branch(graph, "new"), at)
        listing = requests_of(list_branches, at, read_only=True)
        assert len(list_branches(open_at(at))) == 1 + others + 2
        found.append((deleting, creating, listing))
    few, many = found
    assert many == few
    assert [one.total() for one in few] == [DELETE_COST, CREATE_COST, LIST_COST]


@pytest.mark.s3
def test_a_summary_that_is_damaged_or_out_of_date_changes_nothing_but_costs(build: Build) -> None:
    at = build(FEW + 1, 1)
    expected = list_branches(open_at(at))
    assert summaries(at) == ["__manifest.forks"]
    place, objects = at / "__derived/__manifest.forks", Root.at(at).objects
    whole = objects.read_bytes_if_exists(place)
    assert whole is not None
    for damaged in (b"", b"damaged", whole[:-1], whole[:40] + b"\xff" + whole[41:]):
        objects.write_bytes(place, damaged)
        assert list_branches(open_at(at, read_only=True)) == expected
        assert objects.read_bytes_if_exists(place) == damaged, "a graph open for reading writes nothing"
        assert list_branches(open_at(at)) == expected
        assert objects.read_bytes_if_exists(place) == whole
    delete_branch(open_at(at), "first")
    objects.write_bytes(place, whole)
    references = at / "__manifest/_refs/branches"
    objects.share(references / "other-0.json", references / "first.json")  # the name has another content now
    found = {one.name: one.identity for one in list_branches(open_at(at))}
    assert found["first"] == found["other-0"] != next(one for one in expected if one.name == "first").identity


@pytest.mark.s3
def test_a_store_that_refuses_the_summary_fails_no_operation(build: Build) -> None:
    at = build(FEW + 1, 0)

    def refuse(op: str, uri: str) -> None:
        if "__derived" in uri and uri.endswith(".forks"):
            raise StorageFailure("refused", kind=FailureKind.CONFIGURATION, uri=uri)

    graph = OpenGraph.open(Root.at(at, refuse))
    delete_branch(graph, "first")
    assert len(list_branches(graph)) == 1 + FEW + 1 + 2
    assert summaries(at) == []


def test_in_a_folder_there_is_no_summary(template: Path, tmp_path: Path) -> None:
    at = Location.parse(shutil.copytree(template, tmp_path / "graph"))
    graph = OpenGraph.open(Root.at(at))
    for number in range(2 * FEW):
        create_branch(graph, f"b{number}")
    delete_branch(graph, "b0")
    assert not list((tmp_path / "graph").rglob("*.forks"))
