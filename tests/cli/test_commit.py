"""`omnigraph commit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.cli.main import main

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]
UNKNOWN = "0" * 26


def test_commits_are_listed_newest_first(uri: str, commit: Callable[..., str], run: Run) -> None:
    second, third = commit(), commit(actor="ann")
    lines = run("commit", "list", uri).splitlines()
    assert lines[0] == f"{third} graph_branch=main graph_manifest_version=4 actor=ann"
    assert lines[1] == f"{second} graph_branch=main graph_manifest_version=3"
    assert re.fullmatch(r"[0-9A-Z]{26} graph_branch=main graph_manifest_version=1", lines[2])
    assert len(lines) == 3


def test_a_list_can_be_narrowed(uri: str, commit: Callable[..., str], run: Run) -> None:
    run("branch", "create", "--uri", uri, "work")
    ids = [commit("work", "ann"), commit("work", "bob"), commit("work", "ann")]

    def listed(*arguments: str) -> list[str]:
        return [line.split()[0] for line in run("commit", "list", *arguments).splitlines()]

    assert listed(uri, "--branch", "work")[:3] == ids[::-1]
    assert listed("--store", uri, "--branch", "work", "--filter", "actor=ann") == [ids[2], ids[0]]
    assert listed(uri, "--branch", "work", "--limit", "1") == [ids[2]]
    assert len(listed(uri)) == 1
    assert run("commit", "list", uri, "--filter", "actor=missing") == "no commits\n"


def test_list_and_show_as_json(
    uri: str, commit: Callable[..., str], run: Run, run_json: Callable[..., Any]
) -> None:
    run("branch", "create", "--uri", uri, "work")
    own = commit("work", "ann")
    found = run_json("commit", "list", uri, "--branch", "work")["commits"]
    first = found[1]
    assert found[0] == {
        "graph_commit_id": own,
        "graph_branch": "work",
        "manifest_branch": "work",
        "graph_manifest_version": found[0]["manifest_version"],
        "manifest_version": found[0]["graph_manifest_version"],
        "parent_commit_id": first["graph_commit_id"],
        "merged_parent_commit_id": None,
        "actor_id": "ann",
        "created_at": found[0]["created_at"],
        "message": None,
        "operation": None,
        "tags": [],
    }
    assert first["graph_branch"] is None
    assert first["created_at"] < found[0]["created_at"]
    assert run_json("commit", "show", own, "--uri", uri) == found[0]


def test_one_commit_is_shown_with_its_facts(uri: str, commit: Callable[..., str], run: Run) -> None:
    (parent,) = (line.split()[0] for line in run("commit", "list", uri).splitlines())
    made = commit(actor="ann")
    lines = run("commit", "show", "--uri", uri, made).splitlines()
    assert lines[:5] == [
        f"graph_commit_id: {made}",
        "graph_branch: main",
        "graph_manifest_version: 3",
        f"parent_commit_id: {parent}",
        "actor_id: ann",
    ]
    time = re.fullmatch(r"created_at: (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.]\d{6}Z)", lines[5])
    assert time is not None
    assert f"graph_commit_id: {made}" in run("snapshot", uri, "--time", time[1])


def test_what_is_not_there_is_reported(uri: str, refused: Refused) -> None:
    code, message = refused("commit", "show", "--uri", uri, UNKNOWN)
    assert (code, message) == ("commit_not_found", f"commit '{UNKNOWN}' not found")
    assert refused("commit", "list", uri, "--branch", "nowhere")[0] == "branch_not_found"
    assert refused("commit", "list", f"{uri}-elsewhere")[0] == "graph_not_found"
    assert refused("commit", "list") == ("bad_request", "no graph addressed")
    assert refused("commit", "show", UNKNOWN) == ("bad_request", "no graph addressed")
    both = refused("commit", "list", uri, "--store", uri)
    assert both == ("bad_request", "a URI and --store are mutually exclusive")


@pytest.mark.parametrize(
    "option", [["--filter", "ann"], ["--filter", "actor="], ["--filter", "branch=main"], ["--limit", "0"]]
)
def test_an_option_that_makes_no_sense_is_wrong_usage(
    uri: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["commit", "list", uri, *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_writes_take_a_message(uri: str, run: Run, run_json: Callable[..., Any]) -> None:
    said = "Add Ada\n\nShe was missing."
    run("mutate", "-e", 'query q() { insert Person { handle: "ada" } }', "--store", uri, "-m", said)
    found = run_json("commit", "list", uri)["commits"][0]
    assert (found["message"], found["operation"]) == (said, "mutate")
    text = run("commit", "show", found["graph_commit_id"], "--store", uri)
    assert text.endswith("operation: mutate\nmessage: Add Ada\\n\\nShe was missing.\n")
