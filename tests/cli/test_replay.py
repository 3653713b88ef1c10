"""`omnigraph revert`, `cherry-pick` and `reset`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main

Run = Callable[..., str]


def mutate(run_json: Callable[..., Any], uri: str, text: str, *more: str) -> str:
    done = run_json("mutate", "-e", f"query q() {{ {text} }}", "--store", uri, *more)
    return str(done["commit"]["graph_commit_id"])


def people(uri: str, branch: str = "main") -> list[object]:
    with og.open(uri, read_only=True) as graph:
        return sorted(graph.snapshot(branch).rows("Person").column("handle").to_pylist())


def test_commits_are_reverted_picked_and_restored(uri: str, run: Run, run_json: Callable[..., Any]) -> None:
    run("branch", "create", "--store", uri, "work")
    made = mutate(run_json, uri, 'insert Person { handle: "ada" }', "-m", "Add Ada")
    assert run("cherry-pick", made, "--branch", "work", "--store", uri).splitlines()[1:] == [
        "node:Person: 1 inserted, 0 updated, 0 deleted"
    ]
    assert people(uri, "work") == ["ada"]
    undone = run_json("revert", made, "--store", uri, "--as", "ann")
    assert (undone["source"], undone["target"], undone["outcome"]) == (made, "main", "merged")
    assert people(uri) == []
    assert 'ann  (main)  Revert "Add Ada"  Person -1' in run("log", uri)
    assert run("revert", made, "--store", uri) == f"revert {made}: nothing to change on main\n"
    run("reset", "--to", made, "--store", uri, "-m", "Back")
    assert people(uri) == ["ada"]


def test_conflicts_are_listed_and_exit_with_1(
    uri: str, run_json: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made = mutate(run_json, uri, 'insert Person { handle: "ada", age: 1 }')
    mutate(run_json, uri, 'update Person set { age: 2 } where handle = "ada"')
    assert main(["revert", made, "--store", uri]) == 1
    assert "ada" in capsys.readouterr().err
    assert people(uri) == ["ada"]
