"""`omnigraph schema plan` on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.main import main

OLD = "node P { k: String @key  a: I32? }\n"


def _files(folder: Path, old: str, new: str) -> list[str]:
    (folder / "old.pg").write_text(old, encoding="utf-8")
    (folder / "new.pg").write_text(new, encoding="utf-8")
    return ["schema", "plan", str(folder / "old.pg"), str(folder / "new.pg")]


def test_a_possible_change_is_listed_and_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(_files(tmp_path, OLD, "node P { k: String @key  a: I32?  b: String? }"))
    assert status == 0
    assert capsys.readouterr().out.splitlines() == ["+ P.b: String?", "1 step; can be applied"]


def test_an_impossible_change_fails_with_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([*_files(tmp_path, OLD, "node P { k: String @key  a: String? }"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == 1
    assert report["supported"] is False
    assert [step["code"] for step in report["steps"]] == ["OG-MF-106"]


def test_equal_schemas_need_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_files(tmp_path, OLD, f"// a comment\n{OLD}")) == 0
    assert capsys.readouterr().out == "no changes\n"


def test_a_hint_without_effect_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _files(tmp_path, OLD, 'node P { k: String @key  a: I32? @rename_from("b") }')
    assert main(arguments) == 0
    note, last = capsys.readouterr().out.splitlines()
    assert note.startswith("note: @rename_from(\"b\") on property 'P.a' has no effect")
    assert last == "no changes"
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note.removeprefix("note: ")]


def test_drops_are_hard_only_when_data_loss_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = _files(tmp_path, OLD, "node P { k: String @key }")
    modes = []
    for extra in ([], ["--allow-data-loss"]):
        assert main([*arguments, *extra, "--json"]) == 0
        modes.append(json.loads(capsys.readouterr().out)["steps"][0]["mode"])
    assert modes == ["soft", "hard"]


def test_a_broken_schema_names_the_file_and_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(_files(tmp_path, OLD, "node P {\n  k: Strin\n}"))
    shown = capsys.readouterr().err
    assert status == 1
    assert "new.pg:2:6" in shown
    assert "^^^^^" in shown


def test_a_missing_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _files(tmp_path, OLD, OLD)
    (tmp_path / "old.pg").unlink()
    assert main(arguments) == 1
    assert "old.pg" in capsys.readouterr().err
