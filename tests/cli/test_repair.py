"""`omnigraph repair`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph import graph
from omnigraph.cli.main import main

Run = Callable[..., str]
RunJson = Callable[..., Any]


def change_past_omnigraph(uri: str) -> None:
    with graph.open(uri, read_only=True) as opened:
        path = Path(uri, opened.snapshot().tables["node:Person"].path)
    table = lance.dataset(str(path))
    table.insert(pa.table({"id": ["x"], "handle": ["x"], "age": [1]}, schema=table.schema))


def rows(uri: str) -> int:
    with graph.open(uri, read_only=True) as opened:
        return len(opened.snapshot().rows("Person"))


def test_a_graph_in_order_is_reported(uri: str, run: Run, run_json: RunJson) -> None:
    assert run("repair", uri) == run("repair", uri, "--confirm", "--quiet") == "nothing to repair\n"
    found = run_json("repair", uri)
    assert (found["confirmed"], found["ok"], found["commits"]) == (False, True, [])
    assert found["tables"][1] == {
        "table_key": "node:Person",
        "branch": "main",
        "pinned": 1,
        "head": 1,
        "classification": None,
        "action": "no_op",
        "reason": None,
    }


def test_a_change_past_omnigraph_is_shown_refused_and_forced(
    uri: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    change_past_omnigraph(uri)
    output = (
        "node:Person on main is at version 2, the branch shows 1: "
        "suspicious, {}: a change outside of a commit\n"
    )
    assert run("repair", uri) == output.format("preview")
    assert main(["repair", uri, "--confirm"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        output.format("refused"),
        f"omnigraph repair → {uri} (direct, local)\n",
    )
    assert rows(uri) == 0
    first, second = run("repair", uri, "--confirm", "--force").splitlines()
    assert first + "\n" == output.format("forced")
    assert second.endswith(" on branch 'main' by omnigraph:repair:force")
    assert rows(uri) == 1
    assert main(["doctor", uri]) == 0


def test_force_alone_is_refused(uri: str, refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("repair", uri, "--force") == ("bad_request", "force without confirm does nothing")


def test_an_operation_can_be_abandoned(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    operation = "01J0000000000000000000000A"
    record = Path(uri, "__recovery", f"{operation}.json")
    record.parent.mkdir(exist_ok=True)
    record.write_text('{"schema_version": 3, "branch": null}', encoding="utf-8")
    assert main(["recover", uri, "--abandon", operation, "--dry-run"]) == 1
    assert record.exists()
    capsys.readouterr()
    assert main(["recover", uri, "--abandon", operation, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"uri": uri, "abandoned": operation, "branch": "main"}
    assert [at.name for at in record.parent.iterdir()] == [f"{operation}.abandoned"]
    assert main(["recover", uri, "--abandon", operation]) == 1
    assert main(["recover", uri]) == 0
