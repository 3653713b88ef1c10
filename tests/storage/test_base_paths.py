"""The bytes in which a fork records where its table is."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import StorageFailure
from omnigraph.storage.base_paths import MalformedVersion, find_moved_base, relocate, relocate_file
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location


@pytest.fixture
def fork(tmp_path: Path) -> Location:
    """A table with a fork of a fork, and an index, deletions and rows on every level."""
    at = Location.parse(tmp_path / "table")
    main = lance.write_dataset(pa.table({"id": ["a", "b", "c"]}), at.uri, enable_stable_row_ids=True)
    main.delete("id = 'b'")
    main.create_scalar_index("id", "BTREE")
    outer = main.create_branch("team/outer", (None, main.version))
    outer.insert(pa.table({"id": ["d"]}))
    inner = outer.create_branch("inner", ("team/outer", outer.version))
    inner.insert(pa.table({"id": ["e"]}))
    return at


def _version_files(at: Location, branch: str) -> list[Path]:
    return sorted((at.path / "tree" / branch / "_versions").glob("*.manifest"))


def test_a_version_at_its_place_is_left_as_it_is(fork: Location) -> None:
    for branch in ("inner", "team/outer"):
        assert find_moved_base(lance.dataset(f"{fork.uri}/tree/{branch}"), fork) is None
        for file in _version_files(fork, branch):
            assert relocate_file(file.read_bytes(), fork, file.name) is None


@pytest.mark.parametrize("folder", ["x", "a/much/longer/place/than/before", "with späce & ünicode"])
def test_there_and_back_gives_the_same_bytes(fork: Location, tmp_path: Path, folder: str) -> None:
    there = Location.parse(tmp_path / folder / "table")
    for branch in ("inner", "team/outer"):
        for file in _version_files(fork, branch):
            body = file.read_bytes()
            moved = relocate_file(body, there, file.name)
            assert moved is not None
            assert moved != body
            assert relocate_file(moved, fork, file.name) == body


def test_lance_reads_rewritten_versions_of_a_moved_table(fork: Location, tmp_path: Path) -> None:
    there = Location.parse(tmp_path / "another" / "table")
    there.path.parent.mkdir()
    fork.path.rename(there.path)
    for branch in ("inner", "team/outer"):
        for file in _version_files(there, branch):
            file.write_bytes(relocate_file(file.read_bytes(), there, file.name) or b"")
    found = lance.dataset(f"{there.uri}/tree/inner")
    assert find_moved_base(found, there) is None
    assert sorted(found.to_table()["id"].to_pylist()) == ["a", "c", "d", "e"]
    assert found.to_table(filter="id = 'a'").num_rows == 1


def test_a_handle_reads_from_where_its_table_is(fork: Location, tmp_path: Path) -> None:
    there = Location.parse(tmp_path / "elsewhere" / "table")
    there.path.parent.mkdir()
    fork.path.rename(there.path)
    found = lance.dataset(f"{there.uri}/tree/inner")
    assert (find_moved_base(found, there) or "").startswith(fork.uri)
    here = relocate(found, there, "inner")
    assert sorted(here.to_table()["id"].to_pylist()) == ["a", "c", "d", "e"]
    here.insert(pa.table({"id": ["f"]}))
    assert find_moved_base(lance.dataset(f"{there.uri}/tree/inner"), there) is None


def test_a_base_that_is_another_table_is_refused(fork: Location, tmp_path: Path) -> None:
    other = Location.parse(tmp_path / "other-table")
    with pytest.raises(StorageFailure, match="which is not its table") as refused:
        relocate(lance.dataset(f"{fork.uri}/tree/inner"), other, "inner")
    assert refused.value.kind == TableFailureKind.FOREIGN


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_understood_or_refused(body: bytes) -> None:
    for given_ in (body, body + (0).to_bytes(8, "little") + bytes(4) + b"LANC"):
        with pytest.raises(MalformedVersion):
            relocate_file(given_, Location("/some/table"), "fork")
