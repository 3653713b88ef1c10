"""`omnigraph branch`."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.cli.main import main
from tests import python_process

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]


def test_branches_come_and_go(uri: str, run: Run) -> None:
    assert run("branch", "create", "--uri", uri, "work") == "created branch work from main\n"
    assert (
        run("branch", "create", "--uri", uri, "--from", "work", "later") == "created branch later from work\n"
    )
    assert run("branch", "list", "--uri", uri) == "main\nlater\nwork\n"
    assert run("branch", "delete", "--store", uri, "later") == "deleted branch later\n"
    assert run("branch", "list", "--store", uri) == run("branch", "list", uri) == "main\nwork\n"


def test_json_names_the_branch_and_where_it_is(uri: str, run_json: Callable[..., Any]) -> None:
    created = run_json("branch", "create", "work", "--uri", uri)
    assert created == {"uri": uri, "from": "main", "name": "work", "actor_id": None}
    assert run_json("branch", "list", "--uri", uri) == {"branches": ["main", "work"]}
    assert run_json("branch", "delete", "work", "--uri", uri) == {
        "uri": uri,
        "name": "work",
        "actor_id": None,
    }


def test_a_change_says_on_stderr_where_it_went_unless_quiet(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["branch", "create", "work", "--uri", uri]) == 0
    assert capsys.readouterr().err == f"omnigraph branch create → {uri} (direct, local)\n"
    assert main(["branch", "delete", "work", "--uri", uri]) == 0
    assert capsys.readouterr().err == f"omnigraph branch delete → {uri} (direct, local)\n"
    assert main(["branch", "create", "work", "--uri", uri, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_what_cannot_be_done_is_reported(uri: str, run: Run, refused: Refused) -> None:
    run("branch", "create", "--uri", uri, "work")
    assert refused("branch", "create", "--uri", uri, "work")[0] == "branch_exists"
    assert refused("branch", "create", "--uri", uri, "a/../b")[0] == "invalid_name"
    assert refused("branch", "create", "--uri", uri, "new", "--from", "nowhere")[0] == "branch_not_found"
    assert refused("branch", "delete", "--uri", uri, "nowhere")[0] == "branch_not_found"
    assert "main" in refused("branch", "delete", "--uri", uri, "main")[1]
    assert refused("branch", "list", "--uri", f"{uri}-elsewhere")[0] == "graph_not_found"


@pytest.mark.parametrize("command", [["list"], ["create", "work"], ["delete", "work"]])
def test_a_graph_must_be_named_once(uri: str, refused: Refused, command: list[str]) -> None:
    assert refused("branch", *command) == ("bad_request", "no graph addressed")
    twice = refused("branch", *command, "--uri", uri, "--store", uri)
    assert twice == ("bad_request", "--uri and --store are mutually exclusive")


REMOTE = "s3://some-bucket/graph"


def test_deleting_in_a_bucket_needs_a_yes(refused: Refused) -> None:
    code, message = refused("branch", "delete", "work", "--uri", REMOTE)
    assert code == "bad_request"
    assert message == f"deleting branch 'work' in '{REMOTE}' needs consent"


def test_a_yes_lets_the_deletion_through_to_the_bucket(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A setting that is refused on the way to the bucket shows that the way was taken.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    assert refused("branch", "delete", "work", "--uri", REMOTE, "--yes")[0] == "storage_failure"


@pytest.mark.parametrize(("answer", "let_through"), [("yes", True), ("Y", True), ("no", False), ("", False)])
def test_on_a_terminal_the_yes_can_be_typed(answer: str, let_through: bool) -> None:
    environment = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "false"}
    controller, terminal = pty.openpty()
    try:
        os.write(controller, f"{answer}\n".encode())
        command = ["-m", "omnigraph.cli.main", "branch", "delete", "work", "--uri", REMOTE]
        done = python_process.run(*command, stdin=terminal, env=environment)
    finally:
        os.close(controller)
        os.close(terminal)
    assert done.returncode == 1
    assert done.stderr.startswith(f"deleting branch 'work' in {REMOTE}? Type yes to go on:\n")
    assert ("storage_failure" in done.stderr) == let_through
    assert ("needs consent" in done.stderr) == (not let_through)
