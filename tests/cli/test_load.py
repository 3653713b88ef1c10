"""`omnigraph load`."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.main import main
from tests.cli.terminal import seen_on_a_terminal
from tests.python_process import PIPE, Python

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
        f"loaded {uri} on branch main with append: 3 entities across 1 node type and 1 edge type\n"
    )
    assert shown.err == f"omnigraph load → {uri} (direct, local)\n"
    assert main(["load", "--store", uri, "--data", data, "--mode", "merge", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_patch_changes_some_properties(uri: str, tmp_path: Path, run: Run) -> None:
    for mode, text in (("append", "handle,age\ncy,3\n"), ("patch", "handle,age\ncy,4\n")):
        (tmp_path / "Person.csv").write_text(text)
        done = run("load", uri, "--data", str(tmp_path / "Person.csv"), "--mode", mode)
        assert f"with {mode}: 1 entity" in done


def test_the_result_as_json(uri: str, data: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    more = lines(tmp_path / "more.jsonl", person("cy"), {"type": "Nope"})
    rejects = tmp_path / "left.ndjson"
    bad = ("--skip-bad", "--rejects", str(rejects))
    arguments = ("load", uri, "--data", data, "--data", more, "--mode", "append", *bad)
    found = run_json(*arguments, "--branch", "work", "--from", "main", "--as", "ann", "--quiet")
    newest = json.loads(run("commit", "list", uri, "--branch", "work", "--json"))["commits"][0]
    assert newest.pop("tags") == []
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
        "null_counts": {},
        "dialects": {},
        "actor_id": "ann",
        "commit": newest,
        "pending_indexes": {},
    }


def test_every_violation_is_reported_with_its_place(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lines(tmp_path / "bad.jsonl", person("ada", age="x"), {"type": "Nope"}, person("bo"))
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error[load_rejected]: 2 violations: 1 record, 1 value",
        "  help: fix the reported records, or skip them with --skip-bad (`skip_bad=True`)",
        f"  {data}:1: strict property 'age' expects Int32, got \"x\"",
        f"  {data}:2: line 2: unknown node type 'Nope'",
    ]
    assert main(["load", uri, "--data", data, "--mode", "append", "--skip-bad", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "1 entity across 1 node type" in shown.out
    assert shown.err.splitlines()[0] == "left out:"
    assert len(shown.err.splitlines()) == 3


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read(uri: str, name: str) -> None:
    body = "".join(f"{json.dumps(record)}\n" for record in (person("ada"), person("bo", age="x")))
    command = ["-m", "omnigraph", "load", uri, "--data", name, "--mode", "append"]
    for more, status, message in (
        ((), 1, f"{name}:2: strict property 'age' expects Int32"),
        (("--skip-bad",), 0, "loaded"),
    ):
        with Python(*command, *more, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            printed, errors = process.communicate(body)
        assert process.returncode == status
        assert message in printed + errors
    with graph.open(uri) as opened:
        assert opened.snapshot().rows("Person").column("handle").to_pylist() == ["ada"]


def test_standard_input_can_have_a_format(
    uri: str, monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    packed = gzip.compress(f"{json.dumps(person('ada'))}\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    found = run_json("load", uri, "--data", "-", "--format", "ndjson.gz", "--mode", "append", "--quiet")
    assert found["total_entities"] == 1


def test_closed_standard_input_is_an_error(
    uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["load", uri, "--data", "-", "--mode", "append"]) == 1
    assert "standard input is closed" in capsys.readouterr().err


def test_what_is_wrong_does_not_steer_the_terminal(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lines(tmp_path / "bad.jsonl", person("ada", **{"nick\x1b[31m": 1}))
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert r"unknown input field 'nick\x1b[31m'" in shown
    data = lines(tmp_path / "bad.jsonl", {"edge": "Knows", "from": "a\x1b[2J", "to": "b"})
    assert main(["load", uri, "--data", data, "--mode", "append"]) == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert r"src 'a\x1b[2J' not found in Person" in shown
    assert main(["load", uri, "--data", f"{tmp_path}/no\x1b[2J", "--mode", "append"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_an_edge_that_loses_its_node_is_named(
    uri: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run
) -> None:
    run("load", uri, "--data", data, "--mode", "append", "--quiet")
    alone = lines(tmp_path / "alone.jsonl", person("bo"))
    assert main(["load", uri, "--data", alone, "--mode", "overwrite"]) == 1
    violation, remedy = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"error\[load_rejected\]: stored edge:Knows '\w{26}': src 'ada' not found in Person", violation
    )
    assert remedy.startswith("  help: keep these nodes, remove their edges first")


def test_a_name_of_a_file_that_is_not_utf8_is_reported_in_the_rejects(uri: str, tmp_path: Path) -> None:
    at = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl")
    data = lines(Path(at), person("ada", age="x"))
    rejects = tmp_path / "rejects"
    arguments = ["load", uri, "--data", data, "--mode", "append", "--rejects", str(rejects)]
    assert main(arguments) == 1
    assert json.loads(rejects.read_text("utf-8"))["file"] == rf"{tmp_path}/bad\udcff.jsonl"


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
    output = capsys.readouterr().err.splitlines()
    assert output == [
        "error[load_rejected]: 103 violations",
        "  help: fix the reported records, or skip them with --skip-bad (`skip_bad=True`)",
        "  100 times: unknown node type 'Nope'",
        *(f"    {data}:{line}: line {line}: unknown node type 'Nope'" for line in (1, 2, 3)),
        "    and 97 more",
        "  and 3 more, which are not listed",
    ]


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


def test_what_is_wrong_is_reported(uri: str, data: str, refused: Refused) -> None:
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
