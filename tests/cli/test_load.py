"""`omnigraph load`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main
from tests.cli.terminal import seen_on_a_terminal

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


def lines(path: Path, *records: Any) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return str(path)


def person(handle: str, **more: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"handle": handle, **more}}


@pytest.fixture
def data(tmp_path: Path) -> str:
    knows = {"edge": "Knows", "from": "ada", "to": "bo"}
    return lines(tmp_path / "people.jsonl", person("ada", age=36), person("bo"), knows)


def test_a_load_tells_what_it_brought(uri: str, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (
        f"loaded {uri} on branch main with append: 3 entities across 1 node types and 1 edge types\n"
    )
    assert shown.err == f"omnigraph load → {uri} (direct, local)\n"
    assert main(["load", "--store", uri, "--data", data, "--mode", "merge", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_the_result_as_json(uri: str, data: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    more = lines(tmp_path / "more.jsonl", person("cy"), {"type": "Nope"})
    rejects = tmp_path / "left.ndjson"
    bad = ("--skip-bad", "--rejects", str(rejects))
    arguments = ("load", uri, "--data", data, "--data", more, "--mode", "append", *bad)
    found = run_json(*arguments, "--branch", "work", "--from", "main", "--as", "ann", "--quiet")
    newest = json.loads(run("commit", "list", uri, "--branch", "work", "--json"))["commits"][0]
    engine = found.pop("engine")
    assert (engine["name"], [stage["name"] for stage in engine["stages"]]) == ("local", ["read", "check"])
    assert engine["stages"][0].keys() == {"name", "tasks", "seconds", "rows", "bytes", "rows_per_second"}
    (left_out,) = found.pop("skipped")
    assert (left_out["file"], left_out["line"]) == (more, 2)
    assert json.loads(rejects.read_text()) == {**left_out, "record": {"type": "Nope"}}
    assert found == {
        "uri": uri,
        "branch": "work",
        "base_branch": "main",
        "branch_created": True,
        "mode": "append",
        "nodes": [{"name": "Person", "entities_loaded": 3}],
        "edges": [{"name": "Knows", "entities_loaded": 1}],
        "tables": [
            {"table_key": "edge:Knows", "rows_loaded": 1},
            {"table_key": "node:Person", "rows_loaded": 3},
        ],
        "total_entities": 4,
        "skipped_total": 1,
        "skipped_counts": {"record": 1},
        "actor_id": "ann",
        "commit": newest,
    }


def test_every_violation_is_told_with_its_place(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lines(tmp_path / "bad.jsonl", person("ada", age="x"), {"type": "Nope"}, person("bo"))
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error[load_rejected]: 2 violations: 1 record, 1 value",
        f"  {data}:1: strict property 'age' expects Int32, got \"x\"",
        f"  {data}:2: line 2: unknown node type 'Nope'",
        "  help: mend the records named, or leave them out with --skip-bad",
    ]
    assert main(["load", uri, "--data", data, "--mode", "append", "--skip-bad", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "1 entities across 1 node types" in shown.out
    assert shown.err.splitlines()[0] == "left out:"
    assert len(shown.err.splitlines()) == 3


def test_one_violation_needs_no_list(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = lines(tmp_path / "bad.jsonl", person("ada"))
    assert main(["load", uri, "--data", data, "--mode", "append", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["load", uri, "--data", data, "--mode", "append", "--quiet"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        f"error[key_conflict]: {data}:1: node type 'Person' already has id 'ada'"
    )


def test_a_long_list_of_violations_is_cut(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lines(tmp_path / "bad.jsonl", *({"type": "Nope"} for _ in range(103)))
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "error[load_rejected]: 103 violations"
    assert told[101] == "  and 3 more"
    assert len(told) == 103


def test_a_failure_as_json_has_all_violations(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lines(tmp_path / "bad.jsonl", {"type": "Nope"}, {"type": "Nil"})
    assert main(["load", uri, "--data", data, "--mode", "append", "--json"]) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.err.splitlines()[-1])
    assert shown.out == ""
    assert [(one["file"], one["line"]) for one in found["data"]["violations"]] == [(data, 1), (data, 2)]
    assert found["data"]["total"] == 2


def test_what_is_wrong_is_told(uri: str, data: str, refused: Refused) -> None:
    assert refused("load", "--data", data, "--mode", "append") == ("bad_request", "no graph addressed")
    assert refused("load", uri, "--data", f"{data}.gz", "--mode", "append")[1].startswith("cannot read")
    assert refused("load", uri, "--data", data, "--mode", "append", "--branch", "no")[0] == "branch_not_found"
    code, message = refused("load", "s3://b/g", "--data", data, "--mode", "overwrite")
    assert (code, message) == (
        "bad_request",
        "overwriting types on branch 'main' in 's3://b/g' needs consent",
    )


@pytest.mark.parametrize(
    "arguments", [["--mode", "append"], ["--data", "x"], ["--data", "x", "--mode", "new"]]
)
def test_data_and_mode_are_required(
    uri: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", uri, *arguments]) == 2
    assert "Usage: omnigraph load" in capsys.readouterr().err


def test_a_terminal_sees_the_progress(uri: str, data: str) -> None:
    done, shown = seen_on_a_terminal("load", uri, "--data", data, "--mode", "append")
    assert done.returncode == 0, shown
    assert "read" in shown
    assert "3 rows" in shown
    assert done.stdout.startswith(f"loaded {uri}")
