"""`copy`: a whole graph at another place, while others write, after a kill, and never half of one."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.copying.copier import copy_graph
from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph, open_without_recovery
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.errors import (
    BadRequest,
    CopyNotVerified,
    GraphNotFound,
    PlaceNotEmpty,
    SchemaApplyBlocked,
    WriterBusy,
)
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests import python_process
from tests.engine.moves.branching import SCHEMA, add, age, glance, glance_of, open_at, picture, rows_of
from tests.engine.moves.conftest import Moved
from tests.engine.moves.forks import bases_on_disk
from tests.python_process import PIPE, Python


@pytest.fixture(autouse=True)
def _no_minimum_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")


def test_a_copy_shows_everything_and_needs_nothing_else(moved: Moved, tmp_path: Path) -> None:
    with open_at(moved.at, read_only=True) as graph:
        done = graph.copy_to(tmp_path / "copy")
    shutil.rmtree(moved.at)
    assert done.branches == tuple(moved.picture["branches"])
    assert bases_on_disk(tmp_path / "copy") == {str(tmp_path / "copy")}
    before = _bytes(tmp_path / "copy")
    with open_at(tmp_path / "copy", read_only=True) as copy:
        assert picture(copy) == moved.picture
    with open_at(tmp_path / "copy") as copy:
        assert _bytes(tmp_path / "copy") == before
        add(copy, "new", branch="inner")
        copy.merge("inner", "written")
        assert copy.cleanup(keep=1).ok


def test_a_cursor_of_the_original_is_continued_in_the_copy(moved: Moved, tmp_path: Path) -> None:
    with open_at(moved.at) as graph:
        cursor = graph.changes("inner", since="now").cursor
        graph.copy_to(tmp_path / "copy")
    with open_at(tmp_path / "copy") as copy:
        add(copy, "new", branch="inner")
        (found,) = copy.changes("inner", since=cursor)
        assert found.commit == copy.commits.list("inner", limit=1)[0]


def test_copying_changes_nothing_in_the_original(moved: Moved, tmp_path: Path) -> None:
    before = _bytes(moved.at)
    with open_at(moved.at, read_only=True) as graph:
        graph.copy_to(tmp_path / "copy")
    assert _bytes(moved.at) == before


def test_what_is_under_way_or_derived_is_left_out(moved: Moved, tmp_path: Path) -> None:
    kept = {"__pipelines/one/runs/1.json": b"{}", "later_release.json": b"[]", "__later/file": b"x" * 9}
    left = {
        "__pipelines/one/lease.json": b"{}",
        "__recovery/01ABC.json": b"damaged",
        "__staging/01ABC/data/x.lance": b"",
        "__derived/main.state": b"",
        "__init_claim.json": b"{}",
        "_schema.pg.staging": b"",
    }
    for name, body in (kept | left).items():
        (moved.at / name).parent.mkdir(parents=True, exist_ok=True)
        (moved.at / name).write_bytes(body)
    with Graph(open_without_recovery(_root(moved.at), read_only=True)) as graph:
        graph.copy_to(tmp_path / "copy")
    for name, body in kept.items():
        assert (tmp_path / "copy" / name).read_bytes() == body
    assert not [name for name in left if (tmp_path / "copy" / name).exists()]


def test_versions_that_no_branch_shows_are_left_out(moved: Moved, tmp_path: Path) -> None:
    """A writer that died after the first effect: the copy is as if it had never begun."""
    root = _root(moved.at)
    killed = python_process.run(
        "-m", "tests.engine.moves.killed", "merge_rows", "1", "write", str(moved.at), "inner"
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert root.objects.list_dir(root.layout.recovery)
    with Graph(open_without_recovery(root, read_only=True)) as graph:
        graph.copy_to(tmp_path / "copy")
    health = examine(open_without_recovery(_root(tmp_path / "copy"), read_only=True))
    assert health.ok, health
    assert not health.records
    with open_at(tmp_path / "copy") as copy:
        assert glance(copy) == glance_of(moved.picture)
        add(copy, "next", branch="inner")


# --- refused ---------------------------------------------------------------------------------------


def test_a_place_with_anything_in_it_is_refused(moved: Moved, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with open_at(moved.at, read_only=True) as graph:
        with pytest.raises(PlaceNotEmpty, match=r"note\.txt"):
            graph.copy_to(tmp_path / "full")
        assert [file.name for file in (tmp_path / "full").iterdir()] == ["note.txt"]
        graph.copy_to(tmp_path / "copy")
        with pytest.raises(PlaceNotEmpty, match=r"__manifest"):
            graph.copy_to(tmp_path / "copy")


def test_the_unfinished_copy_of_another_graph_is_refused(moved: Moved, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "__copy.json").write_text(json.dumps({"graph": "another", "source": "/x"}))
    with (
        open_at(moved.at, read_only=True) as graph,
        pytest.raises(PlaceNotEmpty, match="another graph"),
    ):
        graph.copy_to(tmp_path / "copy")


@pytest.mark.parametrize("inside", [".", "inside", ".."])
def test_a_place_inside_the_graph_or_around_it_is_refused(moved: Moved, inside: str) -> None:
    with open_at(moved.at, read_only=True) as graph, pytest.raises(BadRequest, match="overlap"):
        graph.copy_to(moved.at / inside)


def test_a_graph_whose_schema_is_changing_is_refused(moved: Moved, tmp_path: Path) -> None:
    opened = open_graph(_root(moved.at))
    opened.root.forks.create(opened.load("main").table, LOCK_BRANCH)
    with pytest.raises(SchemaApplyBlocked):
        copy_graph(opened, Location.parse(tmp_path / "copy"))


# --- interrupted -----------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("write_chunks", 1),
        ("write_chunks", 40),
        ("write_bytes", 3),
        ("write_bytes", 60),
        ("read_chunks", 5),
        ("write_text", 1),
        ("delete", 2),
    ],
)
def test_an_interrupted_copy_is_no_graph_and_is_continued(
    moved: Moved, tmp_path: Path, operation: str, number: int
) -> None:
    arguments = (operation, str(number), "copy", str(moved.at), str(tmp_path / "copy"))
    killed = python_process.run("-m", "tests.engine.moves.killed", *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if not (tmp_path / "copy" / "__schema_state.json").exists():
        for read_only in (True, False):
            with pytest.raises(GraphNotFound, match="not finished"):
                open_at(tmp_path / "copy", read_only=read_only)
    with open_at(moved.at, read_only=True) as graph:
        done = graph.copy_to(tmp_path / "copy")
        assert done.files_copied <= done.files - min(number, 30) if operation == "write_chunks" else True
    with open_at(tmp_path / "copy", read_only=True) as copy:
        assert glance(copy) == glance_of(moved.picture)
    assert not [file for file in (tmp_path / "copy").rglob("*") if "#" in file.name]


def test_what_is_there_is_not_copied_again(moved: Moved, tmp_path: Path) -> None:
    killed = python_process.run(
        "-m", "tests.engine.moves.killed", "write_text", "1", "copy", str(moved.at), str(tmp_path / "copy")
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    recorder = Recorder()
    opened = open_graph(_root(moved.at), read_only=True)
    done = copy_graph(opened, Location.parse(tmp_path / "copy"), observe=recorder)
    assert done.files_copied == 0
    assert recorder.counts()["write_chunks"] == 0
    assert done.read_back


def test_a_changed_byte_is_found_and_copied_again(moved: Moved, tmp_path: Path) -> None:
    killed = python_process.run(
        "-m", "tests.engine.moves.killed", "write_text", "1", "copy", str(moved.at), str(tmp_path / "copy")
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    file = max((tmp_path / "copy").rglob("data/*.lance"), key=lambda found: found.stat().st_size)
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)
    with open_at(moved.at, read_only=True) as graph:
        with pytest.raises(CopyNotVerified, match=file.name):
            graph.copy_to(tmp_path / "copy")
        graph.copy_to(tmp_path / "copy")
    with open_at(tmp_path / "copy", read_only=True) as copy:
        assert glance(copy) == glance_of(moved.picture)


# --- while others write ----------------------------------------------------------------------------


def test_what_is_cleaned_up_meanwhile_is_looked_at_again(moved: Moved, tmp_path: Path) -> None:
    calls = 0

    def clean_up_in_the_middle(op: str, _: str, /) -> None:
        nonlocal calls
        calls += op == "write_chunks"
        if op == "write_chunks" and calls == 3:
            with open_at(moved.at) as other:
                for years in range(3):
                    age(other, "ann", years)
                    other.optimize()
                add(other, "late", branch="inner")
                assert other.cleanup(keep=1).versions_removed

    opened = open_graph(_root(moved.at), read_only=True)
    copy_graph(opened, Location.parse(tmp_path / "copy"), observe=clean_up_in_the_middle)
    with open_at(moved.at, read_only=True) as original, open_at(tmp_path / "copy", read_only=True) as copy:
        assert rows_of(copy) == rows_of(original)
    with open_at(tmp_path / "copy") as copy:
        copy.merge("inner", "written")
        copy.merge("written", strategy="theirs")
    assert examine(open_without_recovery(_root(tmp_path / "copy"), read_only=True)).ok


def test_a_graph_whose_branches_come_and_go_is_copied_while_writers_wait(
    moved: Moved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0.05")
    remade, waits = 0, 0

    def remake_a_branch(op: str, _: str, /) -> None:
        """Before each pass copies its files, a branch that it has seen is deleted and created again."""
        nonlocal remade, waits
        if op != "list_all" or waits or not (tmp_path / "copy" / "__copy.json").exists():
            return
        with open_at(moved.at) as other:
            try:
                other.branches.delete("brief")
                other.branches.create("brief")
                add(other, f"brief{remade}", branch="brief")
                remade += 1
            except WriterBusy:
                waits += 1

    with open_at(moved.at) as graph:
        graph.branches.create("brief")
        add(graph, "brief", branch="brief")
    opened = open_graph(_root(moved.at), read_only=True)
    copy_graph(opened, Location.parse(tmp_path / "copy"), observe=remake_a_branch)
    assert remade == 4
    assert waits == 1, "the last pass holds the locks of all branches"
    with open_at(moved.at, read_only=True) as original, open_at(tmp_path / "copy", read_only=True) as copy:
        assert rows_of(copy) == rows_of(original)
        assert glance(copy) == glance(original)


def test_copies_made_while_others_write_are_consistent(tmp_path: Path) -> None:
    place = tmp_path / "graph"
    with omnigraph.init(place, schema=SCHEMA) as graph:
        graph.branches.create("shared")
    writers = [
        Python("-m", "tests.engine.moves.writing", str(place), name, stdout=PIPE, stderr=PIPE)
        for name in ("a", "b")
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "0\n"
        for number in range(4):
            with open_at(place, read_only=True) as graph:
                graph.copy_to(tmp_path / f"copy{number}")
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    for number in range(4):
        _require_consistent(tmp_path / f"copy{number}")


def _require_consistent(place: Path) -> None:
    health = examine(open_without_recovery(_root(place), read_only=True))
    assert health.ok, health
    assert not health.records
    people = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
    edges = "query q() { match { $p: Person  $p knows $o } return { $p.name } order { $p.name } }"
    with open_at(place) as graph:
        for branch in graph.branches.list():
            found = graph.query(people, branch=branch).rows()
            assert found == graph.query(edges, branch=branch).rows()
            for commit in graph.commits.list(branch, limit=1):
                assert graph.query(people, commit=commit.id).rows() == found
            add(graph, f"after-{branch}", branch=branch)
            graph.optimize(branch)
        assert graph.cleanup(keep=1).ok


# --- buckets ---------------------------------------------------------------------------------------


@pytest.mark.s3
def test_a_graph_goes_to_a_bucket_within_it_and_back(moved: Moved, s3_root: Location, tmp_path: Path) -> None:
    other = Location.parse(f"s3://{s3_root.bucket}/another/place")
    with open_at(moved.at, read_only=True) as graph:
        graph.copy_to(s3_root.uri)
    with open_at(s3_root, read_only=True) as graph:
        assert glance(graph) == glance_of(moved.picture)
        graph.copy_to(other.uri)
    Root.at(s3_root).objects.delete_prefix(s3_root)
    with open_at(other) as graph:
        add(graph, "new", branch="innermost")
        graph.copy_to(tmp_path / "back")
        seen = glance(graph)
    with open_at(tmp_path / "back", read_only=True) as graph:
        assert glance(graph) == seen
    assert bases_on_disk(tmp_path / "back") == {str(tmp_path / "back")}


def _root(at: Path) -> Root:
    return Root.at(Location.parse(at))


def _bytes(folder: Path) -> dict[str, bytes]:
    found = (file for file in folder.rglob("*") if file.is_file() and "__locks" not in file.parts)
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}
