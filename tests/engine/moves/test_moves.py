"""A graph is whole wherever its files are: moved, copied, under two names, where nothing can be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.engine.graph.layout import ENTITY_FOLDERS
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.graph import Graph
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from tests.engine.moves.branching import (
    EDGES,
    EVERYONE,
    add,
    age,
    delete,
    glance,
    glance_of,
    know,
    open_at,
    picture,
)
from tests.engine.moves.conftest import Moved
from tests.engine.moves.forks import bases_on_disk, forks_below


@pytest.fixture(autouse=True)
def _no_minimum_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_moved_graph_shows_everything(moved: Moved, read_only: bool) -> None:
    with open_at(moved.at, read_only=read_only) as graph:
        assert picture(graph) == moved.picture


def test_reading_a_moved_graph_writes_nothing(moved: Moved) -> None:
    before = _files(moved.at)
    with open_at(moved.at, read_only=True) as graph:
        glance(graph)
    assert _files(moved.at) == before


def test_a_rename_of_a_graph_in_use_shows_everything(moved: Moved, tmp_path: Path) -> None:
    open_at(moved.at).close()
    moved.at.rename(tmp_path / "renamed")
    with open_at(tmp_path / "renamed") as graph:
        assert glance(graph) == glance_of(moved.picture)


def test_a_copy_does_not_see_what_becomes_of_the_original(moved: Moved, tmp_path: Path) -> None:
    open_at(moved.at).close()
    shutil.copytree(moved.at, tmp_path / "copy")
    with open_at(moved.at) as original:
        _carry_on(original)
    with open_at(tmp_path / "copy", read_only=True) as copy:
        assert glance(copy) == glance_of(moved.picture)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_copy_reads_no_file_of_the_original(moved: Moved, tmp_path: Path, read_only: bool) -> None:
    """All files of the original are there, and none of them holds what it should."""
    open_at(moved.at).close()
    shutil.copytree(moved.at, tmp_path / "copy")
    for file in (file for file in moved.at.rglob("*") if file.is_file()):
        file.write_bytes(b"damaged " * 8)
    with open_at(tmp_path / "copy", read_only=read_only) as copy:
        assert glance(copy) == glance_of(moved.picture)


def test_work_goes_on_after_a_move_as_it_would_have_without(copied: Callable[[str], Path]) -> None:
    stayed, moved = copied("stayed"), copied("before")
    open_at(moved).close()
    moved = moved.rename(moved.with_name("after"))
    with open_at(stayed) as one, open_at(moved) as other:
        _carry_on(one)
        _carry_on(other)
        assert _rows(one) == _rows(other)
        expected = _rows(one)
    with open_at(moved, read_only=True) as again:
        assert _rows(again) == expected


def test_work_goes_on_where_forks_still_record_another_place(moved: Moved, tmp_path: Path) -> None:
    """Nothing depends on the forks being rewritten: here no opening does it."""
    shutil.copytree(moved.at, tmp_path / "twin")
    with Graph(OpenGraph.open(Root.at(Location.parse(moved.at)))) as graph:
        assert bases_on_disk(moved.at) == {str(moved.made_at)}
        _carry_on(graph)
        found = _rows(graph)
    with open_at(moved.at, read_only=True) as again:
        assert _rows(again) == found
    with open_at(tmp_path / "twin") as twin:
        _carry_on(twin)
        assert _rows(twin) == found


def test_cleanup_after_a_move_keeps_what_branches_share(moved: Moved) -> None:
    """Lance tells by the recorded place which files of a table its forks need."""
    with Graph(OpenGraph.open(Root.at(Location.parse(moved.at)))) as graph:
        for round_ in range(3):
            age(graph, "ann", 50 + round_)
            graph.optimize()
        before = _rows(graph)
        done = graph.cleanup(keep=1)
        assert done.ok
        assert done.versions_removed > 0
    for read_only in (True, False):
        with open_at(moved.at, read_only=read_only) as again:
            assert _rows(again) == before


def test_opening_for_writing_rewrites_the_forks_for_lance_itself(moved: Moved) -> None:
    assert bases_on_disk(moved.at) == {str(moved.made_at)}
    open_at(moved.at).close()
    assert bases_on_disk(moved.at) == {str(moved.at)}
    for fork in forks_below(moved.at):
        dataset = lance.dataset(str(fork))
        for version in dataset.versions():
            at = dataset.checkout_version(version["version"])
            assert at.to_table().num_rows == at.count_rows()


def test_a_second_opening_rewrites_nothing(moved: Moved) -> None:
    open_at(moved.at).close()
    before = _files(moved.at)
    open_at(moved.at).close()
    assert _files(moved.at) == before


def test_another_name_of_the_same_folder_rewrites_nothing(moved: Moved, tmp_path: Path) -> None:
    open_at(moved.at).close()
    before = _files(moved.at)
    link = tmp_path / "link"
    link.symlink_to(moved.at)
    with open_at(link) as graph:
        assert _rows(graph)["inner"][0] == moved.picture["branches"]["inner"]["rows"]
        assert bases_on_disk(moved.at) == {str(moved.at)}
        add(graph, "lea", branch="untouched")
    after = _files(moved.at)
    assert not any("tree/written" in name for name, mark in before.items() if after[name] != mark)
    link.unlink()
    open_at(moved.at).close()
    assert bases_on_disk(moved.at) == {str(moved.at)}


def test_two_names_are_used_at_the_same_time(moved: Moved, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(moved.at)
    with open_at(moved.at) as one, open_at(link) as other:
        for turn in range(3):
            add(one, f"one{turn}", branch="inner")
            add(other, f"other{turn}", branch="inner")
            other.branches.create(f"of{turn}", from_="inner")
        other.merge("inner", "written")
        assert _rows(one) == _rows(other)


def test_forks_that_record_another_table_are_refused(moved: Moved) -> None:
    folder = next((moved.at / ENTITY_FOLDERS[0]).iterdir())
    # Two tables of one graph, and the forks of the one in the place of the other's.
    other = next((moved.at / ENTITY_FOLDERS[1]).iterdir())
    shutil.rmtree(folder / "tree" / "written")
    shutil.copytree(other / "tree" / "written", folder / "tree" / "written")
    root = Root.at(Location.parse(moved.at))
    with pytest.raises(StorageFailure, match="shares files with") as refused:
        root.tables.tip(Location.parse(folder), branch="written")
    assert refused.value.kind == TableFailureKind.FOREIGN


def test_a_damaged_version_of_a_fork_keeps_no_other_from_being_rewritten(moved: Moved) -> None:
    fork = moved.at / "__manifest" / "tree" / "untouched"
    (file,) = (fork / "_versions").glob("*.manifest")
    file.write_bytes(b"damaged")
    open_at(moved.at).close()
    assert file.read_bytes() == b"damaged"
    assert bases_on_disk(moved.at) == {str(moved.at)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_moved_graph_is_read_where_nothing_can_be_written(moved: Moved) -> None:
    folders = [moved.at, *(path for path in moved.at.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with open_at(moved.at, read_only=True) as graph:
            assert picture(graph) == moved.picture
    finally:
        for folder in folders:
            folder.chmod(0o755)


def _carry_on(graph: Graph) -> None:
    """Writes, merges, branches, upkeep and cleanup on every kind of branch."""
    for branch in ("main", "untouched", "written", "inner", "innermost", "merged", "team/new"):
        add(graph, f"new-{branch}", branch=branch)
        age(graph, "ann", 40, branch=branch) if branch in ("untouched", "inner") else None
    delete(graph, "bob", branch="untouched")
    know(graph, "ann", "new-inner", branch="inner")
    graph.merge("innermost", "inner")
    graph.merge("inner", "written")
    graph.merge("written", strategy="theirs")
    graph.branches.create("grown", from_="innermost")
    add(graph, "gus", branch="grown")
    graph.branches.delete("team/new")
    graph.branches.create("team/new", from_="written")
    delete(graph, "wim", branch="team/new")
    for branch in graph.branches.list():
        graph.optimize(branch)
    assert graph.cleanup(keep=1).ok
    add(graph, "last", branch="grown")


def _rows(graph: Graph) -> dict[str, Any]:
    return {
        branch: [graph.query(text, branch=branch).rows() for text in (EVERYONE, EDGES)]
        for branch in graph.branches.list()
    }


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file of a graph but locks, with what changes when it is written."""
    found = (file for file in folder.rglob("*") if file.is_file() and "__locks" not in file.parts)
    return {str(file.relative_to(folder)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in found}
