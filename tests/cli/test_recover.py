"""`omnigraph recover`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import errors, failpoints, graph
from omnigraph.cli.main import main

Run = Callable[..., str]
RunJson = Callable[..., Any]
ADD = 'query q() { insert Person { handle: "ada" } }'


TWO_TABLES = 'query two() { insert Person { handle: "ada" } insert Knows { from: "ada", to: "ada" } }'


def cut_off(uri: str, point: str, branch: str = "main", text: str = ADD) -> str:
    """Leave a write behind that did not get past a point; gives its operation."""
    with (
        graph.open(uri) as opened,
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(errors.RecoveryRequired) as caught,
    ):
        opened.mutate(text, branch=branch)
    return caught.value.operation_id


def rows(uri: str) -> int:
    with graph.open(uri, read_only=True) as opened:
        return len(opened.snapshot().rows("Person"))


def test_a_graph_in_order_has_nothing_to_recover(uri: str, run: Run, run_json: RunJson) -> None:
    assert run("recover", uri) == run("recover", uri, "--dry-run") == "no interrupted writes\n"
    assert run_json("recover", uri) == {"uri": uri, "dry_run": False, "ok": True, "operations": []}


def test_a_dry_run_tells_what_would_happen_and_does_nothing(uri: str, run: Run, run_json: RunJson) -> None:
    operation = cut_off(uri, failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER)
    (record,) = Path(uri, "__recovery").iterdir()
    text = run("recover", uri, "--dry-run")
    by = f"process {os.getpid()} on {socket.gethostname()}"
    assert text == f"{operation}, a mutation on main by {by}: would finish it (node:Person is written)\n"
    assert run_json("recover", uri, "--dry-run") == {
        "uri": uri,
        "dry_run": True,
        "ok": True,
        "operations": [
            {
                "operation_id": operation,
                "branch": "main",
                "write": "mutation",
                "actor_id": None,
                "writer": by,
                "would": "finish it",
                "decision": "RollForward",
                "stuck": False,
                "busy": False,
                "tables": [{"table_key": "node:Person", "state": "written", "class": "RolledPastExpected"}],
            }
        ],
    }
    assert record.exists()
    assert rows(uri) == 0


@pytest.mark.parametrize(
    ("point", "text", "would", "classes", "after"),
    [
        (
            failpoints.MUTATION_POST_TABLE_COMMIT,
            TWO_TABLES,
            "undo it (edge:Knows is written, node:Person is untouched)",
            ("RollBack", "RolledPastExpected"),
            0,
        ),
        (
            failpoints.MUTATION_POST_TABLE_COMMIT,
            ADD,
            "finish it (node:Person is written)",
            ("RollForward", "RolledPastExpected"),
            1,
        ),
        (
            failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER,
            ADD,
            "finish it (node:Person is written)",
            ("RollForward", "RolledPastExpected"),
            1,
        ),
        (
            failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
            ADD,
            "finish it, as it is visible already (node:Person is visible)",
            ("RollForward", None),
            1,
        ),
    ],
)
def test_an_interrupted_write_is_finished_or_undone(
    uri: str,
    run: Run,
    run_json: RunJson,
    point: str,
    text: str,
    would: str,
    classes: tuple[str, str | None],
    after: int,
) -> None:
    operation = cut_off(uri, point, text=text)
    assert run("recover", uri, "--dry-run").endswith(f": would {would}\n")
    (found,) = run_json("recover", uri, "--dry-run")["operations"]
    assert (found["decision"], found["tables"][0]["class"]) == classes
    outcome = "finished" if after else "undone"
    assert run("recover", "--store", uri) == f"{operation} on main recovered: {outcome}\n"
    assert rows(uri) == after
    assert list(Path(uri, "__recovery").iterdir()) == []
    assert run("recover", uri) == "no interrupted writes\n"


def test_an_unreadable_record_is_left_and_reported(
    uri: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("branch", "create", "--uri", uri, "work")
    operation = cut_off(uri, failpoints.MUTATION_POST_TABLE_COMMIT)
    record = Path(uri, "__recovery", f"{operation}.json")
    body = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**body, "actor_id": "mallory"}), encoding="utf-8")
    capsys.readouterr()
    assert main(["recover", uri]) == 1
    assert capsys.readouterr().out == f"{operation} on main unreadable: its checksum does not match\n"
    assert main(["recover", uri, "--dry-run", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (found,) = report["operations"]
    assert (found["would"], found["write"]) == ("refuse writes: its checksum does not match", None)
    assert (report["ok"], found["stuck"], found["decision"]) == (False, True, None)
    assert record.exists()
    assert main(["mutate", "-e", ADD, "--uri", uri, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == "recovery_required"
    assert main(["mutate", "-e", ADD, "--uri", uri, "--branch", "work"]) == 0


def test_a_damaged_table_stops_its_branch_until_its_record_is_abandoned(
    uri: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("branch", "create", "--uri", uri, "work")
    operation = cut_off(uri, failpoints.MUTATION_POST_TABLE_COMMIT)
    (person,) = Path(uri, "nodes").glob("*/_versions")
    min(person.glob("*.manifest")).write_bytes(b"")
    capsys.readouterr()
    assert main(["recover", uri, "--dry-run"]) == 1
    text = capsys.readouterr().out
    assert ": would refuse writes: table 'node:Person' cannot be read: " in text
    way_out = f"fix that, or abandon it with `omnigraph recover --abandon {operation}`"
    assert text.endswith(f" (node:Person is damaged); {way_out}\n")
    assert main(["recover", uri, "--dry-run", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (found,) = report["operations"]
    assert (report["ok"], found["stuck"], found["decision"]) == (False, True, "Abort")
    assert found["tables"] == [
        {"table_key": "node:Person", "state": "damaged", "class": "InvariantViolation"}
    ]
    assert main(["recover", uri]) == 1
    assert f"{operation} on main stuck: table 'node:Person' cannot be read: " in capsys.readouterr().out
    assert main(["doctor", uri]) == 1
    text = capsys.readouterr().out
    assert f"interrupted: {operation}" in text
    assert "cannot be read: node:Person on main: " in text
    assert main(["mutate", "-e", ADD, "--uri", uri, "--branch", "work"]) == 0
    assert main(["recover", uri, "--abandon", operation]) == 0
    assert run("recover", uri, "--dry-run") == "no interrupted writes\n"


def test_a_busy_branch_is_left_alone(uri: str, run_json: RunJson) -> None:
    operation = cut_off(uri, failpoints.MUTATION_POST_TABLE_COMMIT)
    with graph.open(uri, read_only=True) as opened:
        held = opened._opened.root.locks.hold(["main"])
    with held:
        found = run_json("recover", uri)
        (ahead,) = run_json("recover", uri, "--dry-run")["operations"]
    assert found["operations"] == [
        {"operation_id": operation, "branch": "main", "result": "busy", "outcome": None, "reason": None}
    ]
    by = f"process {os.getpid()} on {socket.gethostname()}"
    assert (ahead["busy"], ahead["decision"]) == (True, None)
    assert ahead["would"] == f"leave it: branch 'main' is being written by {by}"
    assert ahead["tables"] == [{"table_key": "node:Person", "state": "not looked at", "class": None}]


def test_a_schema_that_is_half_in_place_is_reported_and_finished(
    uri: str, run: Run, run_json: RunJson
) -> None:
    point = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT
    wanted = Path(uri, "_schema.pg").read_text(encoding="utf-8") + "\nnode Later { name: String @key }\n"
    with (
        graph.open(uri) as opened,
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(errors.RecoveryRequired),
    ):
        opened.apply_schema(wanted)
    for staged in Path(uri).glob("*.staging"):
        staged.unlink()
    Path(uri, "_schema.pg").write_text(wanted, encoding="utf-8")
    with pytest.raises(errors.SchemaContractBroken):
        graph.open(uri, read_only=True)
    text = run("recover", uri, "--dry-run")
    assert ", a schema change on main by process " in text
    assert text.endswith(": would finish it, as it is visible already\n")
    assert main(["doctor", uri]) == 1
    (done,) = run_json("recover", uri)["operations"]
    assert (done["result"], done["outcome"]) == ("recovered", "finished")
    assert "Later" in run("schema", "show", "--store", uri)
