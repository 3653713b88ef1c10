"""The doctor names what is missing and what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from omnigraph.pipeline.doctor import examine


def test_all_that_is_needed_is_here(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    assert main(["spark", "doctor", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"]
    found = {check["name"]: check["found"] for check in shown["checks"]}
    assert found["pyspark"] == "4.3.0"
    assert found["java"].endswith("(bundled)")
    assert found["cache folder"] == str(cache)
    assert found["start-up cache"] == "off"
    assert found["warm server"] == "not running"


def test_a_missing_java_is_reported_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OMNIGRAPH_JAVA", str(tmp_path))
    assert main(["spark", "doctor"]) == 1
    shown = capsys.readouterr().out
    assert f"there is none where OMNIGRAPH_JAVA says ('{tmp_path}')" in shown
    assert "help: install Java 17 or newer" in shown


def test_a_cache_folder_that_cannot_be_made_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "file" / "below"))
    (folder,) = [check for check in examine() if check.name == "cache folder"]
    assert not folder.ok
    assert folder.remedy == "set OMNIGRAPH_CACHE_DIR to a folder you may write to"
