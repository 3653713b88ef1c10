"""`omnigraph export`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main
from tests import python_process
from tests.cli.terminal import seen_on_a_terminal

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]

LINES = (
    '{"type":"Person","data":{"id":"ada","handle":"ada","age":36}}\n'
    '{"type":"Person","data":{"id":"bo","handle":"bo","age":null}}\n'
    '{"edge":"Knows","from":"bo","to":"ada","data":{"id":"k"}}\n'
)


@pytest.fixture
def filled(uri: str, tmp_path: Path, run: Run) -> str:
    (tmp_path / "in.ndjson").write_text("".join(reversed(LINES.splitlines(keepends=True))))
    run("load", uri, "--data", str(tmp_path / "in.ndjson"), "--mode", "append", "--quiet")
    return uri


def test_an_export_goes_to_standard_output_by_itself(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["export", filled]) == 0
    shown = capsys.readouterr()
    assert shown.out == LINES
    assert "to standard output as ndjson: 3 entities across 1 node type and 1 edge type" in shown.err
    assert main(["export", "--store", filled, "--output", "-", "--type", "Knows"]) == 0
    assert capsys.readouterr().out == LINES.splitlines(keepends=True)[2]
    assert main(["export", "--jsonl", filled]) == 0
    shown = capsys.readouterr()
    assert shown.out == LINES
    assert shown.err.startswith("warning: --jsonl is deprecated;")


def test_an_export_tells_what_it_wrote(filled: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    at = tmp_path / "out.ndjson"
    newest = json.loads(run("commit", "list", filled, "--json"))["commits"][0]["graph_commit_id"]
    assert run("export", filled, "--output", str(at)) == (
        f"exported {filled} at {newest} to {at} as ndjson: 3 entities across 1 node type and 1 edge type\n"
    )
    assert at.read_text() == LINES
    folder = tmp_path / "out"
    found = run_json("export", filled, "-o", str(folder), "--format", "csv")
    sizes = [(folder / name).stat().st_size for name in ("nodes/Person.csv", "edges/Knows.csv")]
    assert found == {
        "uri": filled,
        "branch": "main",
        "snapshot": newest,
        "format": "csv",
        "output": str(folder),
        "types": [
            {
                "table_key": "node:Person",
                "rows": 2,
                "bytes": sizes[0],
                "file": str(folder / "nodes/Person.csv"),
            },
            {
                "table_key": "edge:Knows",
                "rows": 1,
                "bytes": sizes[1],
                "file": str(folder / "edges/Knows.csv"),
            },
        ],
        "total_rows": 3,
        "total_bytes": sum(sizes),
    }


def test_branches_and_the_past(filled: str, run: Run) -> None:
    first = json.loads(run("commit", "list", filled, "--json"))["commits"][0]["graph_commit_id"]
    run("branch", "create", "draft", "--uri", filled)
    change = ("mutate", "--uri", filled, "-e", 'query q() { insert Person { handle: "cy" } }')
    run(*change, "--branch", "draft")
    version = json.loads(run("snapshot", filled, "--json"))["graph_manifest_version"]
    run(*change)
    for past in (("--commit", first), ("--version", str(version))):
        assert run("export", filled, *past) == LINES
    both = run("export", filled)
    assert '"id":"cy"' in both
    assert run("export", filled, "--at", "2999-01-01T00:00:00Z") == both
    assert run("export", filled, "--branch", "draft") == both


def test_what_exists_is_replaced_only_when_asked(
    filled: str, tmp_path: Path, run: Run, refused: Refused
) -> None:
    at = str(tmp_path / "out.ndjson")
    run("export", filled, "--output", at, "--type", "Knows")
    assert refused("export", filled, "--output", at) == ("bad_request", f"'{at}' exists already")
    run("export", filled, "--output", at, "--overwrite")
    assert Path(at).read_text() == LINES


def test_what_is_wrong_is_reported(filled: str, tmp_path: Path, refused: Refused) -> None:
    at = str(tmp_path / "x")
    assert refused("export", "--output", at) == ("bad_request", "no graph addressed")
    assert refused("export", filled) == (
        "bad_request",
        "--json and an export to standard output exclude each other",
    )
    assert refused("export", filled, "-o", at, "--type", "Nope")[1].startswith("there is no type 'Nope'")
    assert refused("export", filled, "-o", at, "--branch", "no")[0] == "branch_not_found"
    assert refused("export", filled, "-o", f"{at}/y")[1].startswith(f"cannot write '{at}/y': No such file")
    assert not Path(at).exists()


def test_a_format_for_files_is_not_for_a_pipe(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", filled, "--format", "parquet"]) == 1
    shown = capsys.readouterr()
    assert "error[bad_request]: parquet is a file for each type" in shown.err
    assert main(["export", filled, "--format", "xml"]) == 2


def test_a_reader_that_left_ends_the_export_without_noise(filled: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = python_process.run("-m", "omnigraph.cli.main", "export", filled, stdout=write_end)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_terminal_sees_the_progress(filled: str, tmp_path: Path) -> None:
    done, shown = seen_on_a_terminal("export", filled, "--output", str(tmp_path / "out.ndjson"))
    assert done.returncode == 0, shown
    assert "export" in shown
    assert "3 rows" in shown
    assert done.stdout.startswith(f"exported {filled}")
