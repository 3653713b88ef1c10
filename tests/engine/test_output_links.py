"""Outputs named by a link: the link stays, and what it leads to is replaced in one step."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.files.atomic_output import new_file, new_folder
from omnigraph.errors import BadRequest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "old.ndjson").write_text("old")
    (tmp_path / "link.ndjson").symlink_to("far/old.ndjson")
    return tmp_path


def test_a_file_replaces_what_a_link_leads_to(place: Path) -> None:
    with new_file(place / "link.ndjson", overwrite=True) as temporary:
        assert temporary.parent == place / "far"
        temporary.write_text("new")
        assert (place / "link.ndjson").read_text() == "old"
    assert (place / "link.ndjson").is_symlink()
    assert (place / "far" / "old.ndjson").read_text() == "new"
    assert [*(place / "far").iterdir()] == [place / "far" / "old.ndjson"]


def test_a_file_appears_where_a_link_leads_to_nothing_yet(place: Path) -> None:
    (place / "ahead").symlink_to("far/new.ndjson")
    with new_file(place / "ahead", overwrite=True) as temporary:
        temporary.write_text("new")
    assert (place / "ahead").is_symlink()
    assert (place / "far" / "new.ndjson").read_text() == "new"


def test_a_link_is_taken_for_a_name_in_use_unless_it_may_be_replaced(place: Path) -> None:
    with pytest.raises(BadRequest, match="exists already"), new_file(place / "link.ndjson", overwrite=False):
        raise AssertionError
    with (
        pytest.raises(BadRequest, match="exists already"),
        new_folder(place / "link.ndjson", overwrite=False),
    ):
        raise AssertionError


def test_a_link_that_leads_in_a_circle_is_refused(place: Path) -> None:
    (place / "loop").symlink_to("loop")
    with pytest.raises(BadRequest, match="Too many levels"), new_file(place / "loop", overwrite=True):
        raise AssertionError
    assert (place / "loop").is_symlink()


def test_a_folder_replaces_what_a_link_leads_to(place: Path) -> None:
    (place / "export" / "nodes").mkdir(parents=True)
    (place / "latest").symlink_to("export")
    with new_folder(place / "latest", overwrite=True) as temporary:
        (temporary / "edges").mkdir()
    assert (place / "latest").is_symlink()
    assert [one.name for one in (place / "export").iterdir()] == ["edges"]
    (place / "files").symlink_to("far")
    with (
        pytest.raises(BadRequest, match="which no export wrote"),
        new_folder(place / "files", overwrite=True),
    ):
        raise AssertionError


@pytest.mark.parametrize("name", ["old.ndjson", "../link.ndjson"])
def test_what_is_replaced_keeps_its_permissions(place: Path, name: str) -> None:
    old = place / "far" / "old.ndjson"
    old.chmod(0o600)
    with new_file(place / "far" / name, overwrite=True) as temporary:
        temporary.write_text("new")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600, (
            "nor can anybody read it before it has its name"
        )
    assert (old.read_text(), stat.S_IMODE(old.stat().st_mode)) == ("new", 0o600)


def test_a_folder_and_rejects_that_are_replaced_keep_their_permissions(place: Path) -> None:
    (place / "export" / "nodes").mkdir(parents=True)
    (place / "export").chmod(0o700)
    with new_folder(place / "export", overwrite=True) as temporary:
        (temporary / "edges").mkdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "export").stat().st_mode) == 0o700
    rejects = place / "far" / "rejects.ndjson"
    rejects.touch(0o600)
    with og.init(place / "g.omni", schema="node Person { age: I32 }") as graph:
        graph.load([{"age": 2**40}], type="Person", mode="append", skip_bad=True, rejects=rejects)
    assert json.loads(rejects.read_text())["row"] == 1
    assert stat.S_IMODE(rejects.stat().st_mode) == 0o600


def test_exports_and_rejects_go_where_a_link_leads(place: Path) -> None:
    (place / "rejects").symlink_to("far/rejects.ndjson")
    with og.init(place / "g.omni", schema="node Person { name: String @key  age: I32? }") as graph:
        rows = [{"name": "ada", "age": 1}, {"name": "bo", "age": 2**40}]
        graph.load(rows, type="Person", mode="append", skip_bad=True, rejects=place / "rejects")
        graph.export(place / "link.ndjson", overwrite=True)
        (place / "inside.ndjson").symlink_to("g.omni/x.ndjson")
        with pytest.raises(BadRequest, match="inside"):
            graph.export(place / "inside.ndjson", overwrite=True)
    assert json.loads((place / "far" / "rejects.ndjson").read_text())["row"] == 2
    assert json.loads((place / "far" / "old.ndjson").read_text())["data"]["name"] == "ada"
    assert (place / "link.ndjson").is_symlink()
    assert (place / "rejects").is_symlink()
