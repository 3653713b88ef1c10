from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, AtTime, AtVersion, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.errors import BranchNotFound, CorruptGraph, UnsupportedFormat
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.graphs import PERSON, add_branch, append_people, bare_publish, new_graph, run, tree

READS = {
    "exists",
    "open",
    "scan",
    "probe",
    "count",
    "read_text",
    "read_text_if_exists",
    "list_dir",
    "list_tags",
}


def read_everything(graph: OpenGraph) -> None:
    """Every kind of read there is."""
    head = graph.load("main").state.head
    assert head is not None
    targets = (
        AtBranch(),
        AtBranch("work"),
        AtVersion("main", 2),
        AtTime("main", head.created_at),
        AtCommit(head.id),
    )
    for target in targets:
        snapshot = graph.snapshot(target)
        graph.catalog_at(snapshot)
        for key in snapshot.entries:
            open_table(graph, snapshot, key).scan()
    graph.branch_names()
    with pytest.raises(BranchNotFound):
        graph.load("nope")


@pytest.fixture
def lived_in(graph: OpenGraph) -> OpenGraph:
    append_people(graph, "ada", "bob")
    bare_publish(add_branch(graph, "work"), {})
    return graph


def test_reading_changes_not_one_byte(lived_in: OpenGraph, folder: Location) -> None:
    before = tree(folder.path)
    read_everything(OpenGraph.open(Root.at(folder), read_only=True))
    assert tree(folder.path) == before


def test_reading_calls_nothing_that_writes(lived_in: OpenGraph, folder: Location) -> None:
    recorder = Recorder()
    read_everything(OpenGraph.open(Root.at(folder, recorder), read_only=True))
    assert set(recorder.counts()) <= READS


@pytest.mark.s3
def test_reading_a_bucket_calls_nothing_that_writes(s3_root: Location) -> None:
    graph = new_graph(s3_root)
    append_people(graph, "ada")
    add_branch(graph, "work")
    recorder = Recorder()
    read_everything(OpenGraph.open(Root.at(s3_root, recorder), read_only=True))
    assert set(recorder.counts()) <= READS


def test_opening_to_write_leaves_a_current_graph_as_it_is(lived_in: OpenGraph, folder: Location) -> None:
    before = tree(folder.path)
    OpenGraph.open(Root.at(folder))
    assert tree(folder.path) == before


def test_a_graph_reached_by_another_name_is_the_same_graph(lived_in: OpenGraph, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "graph")
    other = OpenGraph.open(Root.at(Location.parse(tmp_path / "link")))
    bare_publish(other.coordinator("main"))
    assert lived_in.load("main").state.head == other.load("main").state.head


def test_a_graph_may_move_as_a_folder(graph: OpenGraph, tmp_path: Path) -> None:
    append_people(graph, "ada")
    (tmp_path / "graph").rename(tmp_path / "elsewhere")
    moved = OpenGraph.open(Root.at(Location.parse(tmp_path / "elsewhere")))
    assert open_table(moved, moved.snapshot(AtBranch()), PERSON).count() == 1
    append_people(moved, "bob")


def test_a_graph_recreated_in_the_same_place_is_not_mixed_with_the_old_one(folder: Location) -> None:
    old = new_graph(folder)
    for version in range(2, 6):
        bare_publish(old.coordinator("main"), {PERSON: version})
    remembered = old.load("main").state
    Root.at(folder).objects.delete_prefix(folder)
    new = new_graph(folder)
    assert old.load("main").state == new.load("main").state
    for _ in range(6):
        bare_publish(new.coordinator("main"))
    assert not old.load("main").state.commits.keys() & remembered.commits.keys()
    done = publish(old.coordinator("main"), ManifestChanges(), NewCommit(old.root.new_id()))
    assert done.commit.parent in new.load("main").state.commits


def test_a_graph_recreated_that_has_overtaken_the_old_one_is_noticed(folder: Location) -> None:
    old = new_graph(folder)
    bare_publish(old.coordinator("main"), {PERSON: 9})
    Root.at(folder).objects.delete_prefix(folder)
    new = new_graph(folder)
    for _ in range(6):
        bare_publish(new.coordinator("main"))
    assert old.load("main").state == new.load("main").state


# --- what cannot be opened -------------------------------------------------------------------------


def set_stamp(folder: Location, stamp: str) -> None:
    lance.dataset((folder / "__manifest").uri).update_schema_metadata(
        {"omnigraph:internal_schema_version": stamp}
    )


@pytest.mark.parametrize("stamp", ["5", "99", "0", "-1", "four", "", "4.0", "9" * 5000, "٤"])
@pytest.mark.parametrize("read_only", [True, False])
def test_another_format_is_refused_and_nothing_is_written(
    graph: OpenGraph, folder: Location, stamp: str, read_only: bool
) -> None:
    set_stamp(folder, stamp)
    before = tree(folder.path)
    with pytest.raises(UnsupportedFormat) as caught:
        OpenGraph.open(Root.at(folder), read_only=read_only)
    assert caught.value.remedy
    assert tree(folder.path) == before


def spoil(folder: Location, object_id: str, **columns: object) -> None:
    """Change a manifest row as no writer of ours does."""
    dataset = lance.dataset((folder / "__manifest").uri)
    found = dataset.to_table(filter=f"object_id = '{object_id}'").to_pylist()
    row = {
        "object_id": object_id,
        "object_type": "",
        "table_key": "",
        **(found[0] if found else {}),
        **columns,
    }
    rows = pa.Table.from_pylist([row], schema=dataset.schema)
    dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


SPOILED: dict[str, tuple[str, dict[str, object]]] = {
    "commit without metadata": ("{genesis}", {"metadata": None}),
    "commit with text for metadata": ("{genesis}", {"metadata": "hello"}),
    "commit with a list for metadata": ("{genesis}", {"metadata": "[]"}),
    "commit without a time": ("{genesis}", {"metadata": "{{}}"}),
    "commit with a text for its time": ("{genesis}", {"metadata": '{{"created_at":"noon"}}'}),
    "commit with a truth for its time": ("{genesis}", {"metadata": '{{"created_at":true}}'}),
    "commit with a number for its parent": (
        "{genesis}",
        {"metadata": '{{"created_at":1,"parent_commit_id":5}}'},
    ),
    "commit with a list for its actor": ("{genesis}", {"metadata": '{{"created_at":1,"actor_id":[]}}'}),
    "commit without a version": ("{genesis}", {"table_version": None}),
    "commit with deep metadata": ("{genesis}", {"metadata": "[" * 100_000}),
    "commit with an endless number": ("{genesis}", {"metadata": '{{"created_at":' + "1" * 5000 + "}}"}),
    "head without metadata": ("graph_head:main", {"metadata": None}),
    "head that names nothing": ("graph_head:main", {"metadata": "{{}}"}),
    "table without a place": ("node:Person", {"location": None}),
    "table with an empty place": ("node:Person", {"location": ""}),
    "version without a number": ("node:Person$00000000000000000001", {"table_version": None}),
    "drop without a number": (
        "node:Person$tombstone$1",
        {"object_type": "table_tombstone", "table_key": "node:Person"},
    ),
}


@pytest.mark.parametrize(("object_id", "columns"), SPOILED.values(), ids=SPOILED.keys())
def test_a_corrupt_row_is_named(
    graph: OpenGraph, folder: Location, object_id: str, columns: dict[str, object]
) -> None:
    head = graph.load("main").state.head
    assert head is not None
    named = object_id.format(genesis=head.id)
    columns = {
        name: value.replace("{{", "{").replace("}}", "}") if isinstance(value, str) else value
        for name, value in columns.items()
    }
    spoil(folder, named, **columns)
    before = tree(folder.path)
    with pytest.raises(CorruptGraph) as caught:
        OpenGraph.open(Root.at(folder)).load("main").state.entries()
    assert caught.value.object_id == named
    assert named in caught.value.message
    with pytest.raises(CorruptGraph):
        bare_publish(OpenGraph.open(Root.at(folder)).coordinator("main"))
    assert tree(folder.path) == before


def test_a_corrupt_branch_leaves_the_others_readable(graph: OpenGraph, folder: Location) -> None:
    work = add_branch(graph, "work")
    done = bare_publish(work)
    uri = (folder / "__manifest").uri + "/tree/work"
    dataset = lance.dataset(uri)
    row = dataset.to_table(filter=f"object_id = '{done.commit.id}'").to_pylist()[0] | {"metadata": "?"}
    rows = pa.Table.from_pylist([row], schema=dataset.schema)
    dataset.merge_insert("object_id").when_matched_update_all().execute(rows)
    opened = OpenGraph.open(Root.at(folder))
    with pytest.raises(CorruptGraph):
        opened.load("work")
    assert opened.load("main").state == graph.load("main").state
    bare_publish(opened.coordinator("main"))


# --- without permission ----------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Location]:
    """A folder that other users of this machine can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Location.parse(Path(name) / "graph")


# Tests may run as root, whom nothing stops: the child becomes somebody else once it has its code.
_WITHOUT_ROOT = """
import os, sys
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError
from omnigraph.storage import bucket, staging
from omnigraph.storage.location import Location
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
root = Root.at(Location.parse(sys.argv[1]))

def reading():
    graph = OpenGraph.open(root, read_only=True)
    snapshot = graph.snapshot(AtBranch())
    return ",".join(sorted(str(open_table(graph, snapshot, key).count()) for key in snapshot.entries))

def writing():
    return str(OpenGraph.open(root).read_only)

def publishing():
    graph = OpenGraph.open(root, read_only=True)
    return publish(graph.coordinator("main"), ManifestChanges(), NewCommit(root.new_id())).commit.id

def making():
    return str(create_graph(root, "node A { x: String @key }"))

for act in (reading, writing, publishing, making):
    try:
        print(act())
    except OmnigraphError as error:
        print(type(error).__name__, getattr(error, "kind", ""), bool(error.remedy))
"""


def restrict(folder: Path, mode: int) -> None:
    """Take rights away from everything below a folder, folders keeping what they need to be entered."""
    for at in (folder, *folder.rglob("*")):
        at.chmod(mode | (0o111 if at.is_dir() and mode & 0o444 else 0))


def allow(folder: Path) -> None:
    for at in (folder, *folder.rglob("*")):
        at.chmod(stat.S_IMODE(at.stat().st_mode) | 0o700)


@pytest.mark.crash
def test_a_folder_one_may_only_read_can_be_read_and_nothing_else(open_folder: Location) -> None:
    append_people(new_graph(open_folder), "ada", "bob")
    restrict(open_folder.path, 0o444)
    before = tree(open_folder.path)
    try:
        done = run(_WITHOUT_ROOT, open_folder.uri)
    finally:
        allow(open_folder.path)
    assert done.stdout.splitlines() == ["0,0,2", *["StorageFailure Configuration True"] * 3], done.stderr
    assert tree(open_folder.path) == before


@pytest.mark.crash
def test_a_folder_one_may_not_enter_is_not_taken_for_an_empty_one(open_folder: Location) -> None:
    new_graph(open_folder)
    restrict(open_folder.path, 0o000)
    try:
        done = run(_WITHOUT_ROOT, open_folder.uri)
    finally:
        for _ in range(4):
            allow(open_folder.path)
    assert done.stdout.splitlines() == ["StorageFailure Configuration True"] * 4, done.stderr


@pytest.mark.crash
def test_an_empty_folder_one_may_only_read_takes_no_graph(open_folder: Location) -> None:
    open_folder.path.mkdir()
    open_folder.path.chmod(0o555)
    done = run(_WITHOUT_ROOT, open_folder.uri)
    assert done.stdout.splitlines() == [
        "GraphNotFound  True",
        "GraphNotFound  True",
        "GraphNotFound  True",
        "StorageFailure Configuration True",
    ], done.stderr
    assert list(open_folder.path.iterdir()) == []
