"""`omnigraph copy`, and what `omnigraph doctor` says of a graph that was moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph import graph

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


def test_a_copy_is_reported_and_can_be_opened(uri: str, tmp_path: Path, run: Run) -> None:
    copy = str(tmp_path / "copy.omni")
    printed = run("copy", uri, copy)
    assert printed.startswith(f"copied {uri} to {copy}: 1 branch, ")
    assert printed.endswith("verified: checksums, sizes and rows\n")
    with graph.open(uri) as original, graph.open(copy) as copied:
        assert copied.commits.list() == original.commits.list()


def test_a_script_hears_what_was_copied_and_how_it_was_verified(
    uri: str, tmp_path: Path, run_json: RunJson
) -> None:
    with graph.open(uri) as opened:
        opened.branches.create("draft")
        head = opened.snapshot().id
    found = run_json("copy", uri, str(tmp_path / "copy.omni"), "--no-read-back")
    assert found["branches"] == ["main", "draft"]
    assert found["commit"] == head
    assert found["files"] > found["files_copied"] > 0
    assert found["bytes"] > found["bytes_copied"] > 0
    assert found["read_back"] is False


def test_a_full_place_and_a_missing_graph_are_refused(uri: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    assert refused("copy", uri, str(tmp_path / "full"))[0] == "place_not_empty"
    assert refused("copy", str(tmp_path / "none"), str(tmp_path / "copy"))[0] == "graph_not_found"
    assert not (tmp_path / "copy").exists()


def test_doctor_reports_a_graph_that_was_moved(uri: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    with graph.open(uri) as opened:
        opened.branches.create("draft")
        opened.mutate('query q() { insert Person { handle: "new" } }', branch="draft")
    moved = str(Path(uri).rename(tmp_path / "moved.omni"))
    found = run_json("doctor", moved)
    assert found["ok"]
    assert {"path": "__manifest/tree/draft", "recorded": f"{uri}/__manifest"} in found["moved"]
    printed = run("doctor", moved)
    assert f"2 forks record another place, such as {uri}/__manifest" in printed
    assert "all in order" in printed
    graph.open(moved).close()
    assert run_json("doctor", moved)["moved"] == []
