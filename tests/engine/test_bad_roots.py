from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.errors import GraphNotFound, OmnigraphError, StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import is_residue
from tests.engine.graphs import SCHEMA, bare_publish, new_graph, run, tree

OPENS: list[Callable[[Location], object]] = [
    lambda at: OpenGraph.open(Root.at(at)),
    lambda at: OpenGraph.open(Root.at(at), read_only=True),
]
both = pytest.mark.parametrize("opens", OPENS, ids=["read-write", "read-only"])


def nothing(at: Path) -> None:
    """No folder at all."""


def empty(at: Path) -> None:
    at.mkdir()


def only_folders(at: Path) -> None:
    for name in ("__manifest/_versions", "nodes", "__recovery"):
        (at / name).mkdir(parents=True)


def other_files(at: Path) -> None:
    at.mkdir()
    (at / "README.md").write_text("not a graph")


def a_file(at: Path) -> None:
    at.write_text("I am a file")


def a_file_as_parent(at: Path) -> None:
    at.parent.rmdir()
    at.parent.write_text("I am a file")


def a_dangling_link(at: Path) -> None:
    at.symlink_to("nowhere")


def residue(at: Path) -> None:
    """What a write that was cut short leaves behind."""
    (at / "__manifest" / "_versions").mkdir(parents=True)
    (at / "__manifest" / "_versions" / "18446744073709551614.manifest#1").write_text("cut sh")
    (at / "_schema.pg#42").write_text("node")


def a_plain_lance_dataset(at: Path) -> None:
    import lance
    import pyarrow as pa

    lance.write_dataset(pa.table({"x": [1]}), str(at))


NO_GRAPH = [
    nothing,
    empty,
    only_folders,
    other_files,
    a_file,
    a_file_as_parent,
    a_dangling_link,
    residue,
    a_plain_lance_dataset,
]


@both
@pytest.mark.parametrize("make", NO_GRAPH, ids=lambda make: make.__name__)
def test_what_is_no_graph_is_not_found_and_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], opens: Callable[[Location], object]
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    at = Location.parse(parent / "graph")
    make(at.path)
    before = tree(tmp_path)
    with pytest.raises(GraphNotFound) as caught:
        opens(at)
    assert at.uri in caught.value.message
    assert "omnigraph init" in (caught.value.remedy or "")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("make", [a_file, a_file_as_parent])
def test_a_file_in_the_way_of_a_new_graph_is_reported_and_kept(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    at = Location.parse(parent / "graph")
    make(at.path)
    before = tree(tmp_path)
    with pytest.raises(StorageFailure) as caught:
        create_graph(Root.at(at), SCHEMA)
    assert caught.value.remedy == "a file has the name of a folder; move it away"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("make", [nothing, empty, residue])
def test_a_graph_can_be_made_where_none_is(tmp_path: Path, make: Callable[[Path], None]) -> None:
    at = Location.parse(tmp_path / "graph")
    make(at.path)
    bare_publish(new_graph(at).coordinator("main"))


@pytest.mark.parametrize(
    "name", ["with space", "ünïcode-图", "a'b\"c", "per%20cent", "ha#sh", "til~de", "x" * 200]
)
def test_roots_with_strange_names_work(tmp_path: Path, name: str) -> None:
    at = Location.parse(tmp_path / name)
    graph = new_graph(at)
    graph.root.forks.create(graph.load("main").table, "work")
    bare_publish(graph.coordinator("work"))
    assert OpenGraph.open(Root.at(at), read_only=True).branch_names() == ["main", "work"]


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure) as caught:
        create_graph(Root.at(Location.parse(tmp_path / ("x" * 300))), SCHEMA)
    assert caught.value.remedy == "choose a shorter name"
    assert list(tmp_path.iterdir()) == []


@both
@pytest.mark.parametrize("missing", ["__manifest/_versions", "__manifest/data", "__manifest"])
def test_a_graph_that_lost_its_manifest_is_not_served(
    graph: OpenGraph, folder: Location, missing: str, opens: Callable[[Location], OpenGraph]
) -> None:
    bare_publish(graph.coordinator("main"))
    graph.root.objects.delete_prefix(folder / missing)
    before = tree(folder.path)
    with pytest.raises((GraphNotFound, StorageFailure)):
        opens(folder).load("main")
    assert tree(folder.path) == before


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def scramble(file: Path) -> None:
    file.write_bytes(os.urandom(file.stat().st_size))


@both
@pytest.mark.parametrize("damage", [truncate, scramble, lambda file: file.write_bytes(b"")])
def test_a_damaged_manifest_version_is_typed_and_older_data_stays(
    graph: OpenGraph, folder: Location, damage: Callable[[Path], None], opens: Callable[[Location], OpenGraph]
) -> None:
    bare_publish(graph.coordinator("main"))
    newest = min((folder.path / "__manifest" / "_versions").iterdir())
    damage(newest)
    before = tree(folder.path)
    with pytest.raises(OmnigraphError) as caught:
        opens(folder).load("main")
    assert isinstance(caught.value, StorageFailure)
    assert tree(folder.path) == before


@pytest.mark.s3
@pytest.mark.parametrize("read_only", [True, False])
def test_an_empty_prefix_of_a_bucket_is_no_graph(s3_root: Location, read_only: bool) -> None:
    with pytest.raises(GraphNotFound):
        OpenGraph.open(Root.at(s3_root), read_only=read_only)


@pytest.mark.s3
def test_a_bucket_that_is_not_there_is_not_an_empty_one(s3_root: Location) -> None:
    gone = Location.parse("s3://no-such-bucket-anywhere/graph")
    acts: list[Callable[[Location], object]] = [*OPENS, lambda at: create_graph(Root.at(at), SCHEMA)]
    for act in acts:
        with pytest.raises(StorageFailure) as caught:
            act(gone)
        assert caught.value.kind == "Configuration"


@pytest.mark.s3
def test_a_store_that_does_not_answer_is_not_an_empty_one(
    s3_root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageFailure, match="cannot look for"):
        OpenGraph.open(Root.at(s3_root), read_only=True)


# --- no room for a publish -------------------------------------------------------------------------

_CRAMPED = """
import resource, sys
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError
from omnigraph.storage.location import Location
graph = OpenGraph.open(Root.at(Location.parse(sys.argv[1])))
main = graph.coordinator("main")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in map(int, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    lineage = NewCommit(f"01AT{limit}")
    try:
        publish(main, ManifestChanges(), lineage)
        print(limit, "made")
    except OmnigraphError as error:
        print(limit, error.code, getattr(error, "kind", ""))
"""

LIMITS = [0, 100, 500, 1000, 1500, 2000, 3000, 5000, 20_000, 33_000, 34_000, 100_000]


@pytest.mark.crash
def test_a_publish_without_room_is_reported_and_loses_nothing(graph: OpenGraph, folder: Location) -> None:
    assert resource.RLIMIT_FSIZE is not None
    before = bare_publish(graph.coordinator("main")).commit
    done = run(_CRAMPED, folder.uri, *map(str, LIMITS))
    ended = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert list(map(int, ended)) == LIMITS, done.stderr
    assert ended["100000"] == "made"
    assert ended["1000"] == "storage_failure Transient"
    made = [f"01AT{limit}" for limit, end in ended.items() if end == "made"]
    fresh = OpenGraph.open(Root.at(folder)).load("main").state
    known = {*fresh.commits} - {before.id, before.parent}
    assert known == set(made)
    bare_publish(OpenGraph.open(Root.at(folder)).coordinator("main"))
    temporary = [name for name in tree(folder.path) if is_residue(name)]
    assert temporary == [], "what could not be written was removed"
