"""`omnigraph diff`, `omnigraph changes` and `omnigraph commit changes`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.main import main

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]
ADD = 'query q() { insert Person { handle: "ann", age: 7 } insert Person { handle: "bob" } }'
CHANGE = 'query q() { update Person set { age: 8 } where handle = "ann" }'
LINK = 'query q() { insert Knows { from: "ann", to: "bob" } }'


@pytest.fixture
def commits(uri: str) -> list[str]:
    """The ids of three commits: two people, a birthday on a branch `work`, and a friendship there."""
    with graph.open(uri) as opened:
        opened.mutate(ADD, actor="eve")
        opened.branches.create("work")
        opened.mutate(CHANGE, branch="work")
        opened.mutate(LINK, branch="work")
        return [commit.id for commit in opened.commits.list("work", limit=3)][::-1]


def test_a_diff_is_read_from_top_to_bottom(uri: str, commits: list[str], run: Run) -> None:
    assert run("diff", "main", commits[1], "--uri", uri) == "~ node Person ann\n    age: 7 -> 8\n"
    text = run("diff", "--uri", uri, "main", "work", "--type", "Knows")
    lines = text.splitlines()
    assert lines[0].startswith("+ edge Knows ")
    assert lines[1:] == ["    src: ann", "    dst: bob"]
    assert run("diff", "--store", uri, "work", "main", "--op", "delete").startswith("- edge Knows ")
    assert run("diff", "main", "main", "--uri", uri) == "no changes\n"


def test_a_diff_can_only_count(uri: str, commits: list[str], run: Run, run_json: Callable[..., Any]) -> None:
    assert run("diff", "main", "work", "--stat", "--uri", uri) == (
        "node:Person: 0 inserted, 1 updated, 0 deleted\nedge:Knows: 1 inserted, 0 updated, 0 deleted\n"
    )
    assert run("diff", "main", "main", "--stat", "--uri", uri) == "no changes\n"
    counted = run_json("diff", "main", "work", "--stat", "--uri", uri)
    assert counted["stats"]["node:Person"] == {"inserted": 0, "updated": 1, "deleted": 0}
    assert counted["from"]["graph_commit_id"] == commits[0]
    assert counted["to"]["graph_branch"] == "work"
    assert "changes" not in counted


def test_a_diff_as_json_has_images(uri: str, commits: list[str], run_json: Callable[..., Any]) -> None:
    (change,) = run_json("diff", commits[0], commits[1], "--uri", uri)["changes"]
    assert (change["op"], change["id"], change["changed"]) == ("update", "ann", ["age"])
    assert change["before"] == {"properties": {"handle": "ann", "age": 7}}
    assert change["after"] == {"properties": {"handle": "ann", "age": 8}}


def test_the_exit_code_tells_whether_anything_differs_when_asked(
    uri: str, commits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "main", "work", "--uri", uri]) == 0
    assert main(["diff", "main", "work", "--uri", uri, "--exit-code"]) == 1
    assert main(["diff", "main", "work", "--uri", uri, "--exit-code", "--stat", "--json"]) == 1
    assert main(["diff", "main", "main", "--uri", uri, "--exit-code"]) == 0
    assert capsys.readouterr().err == ""


def test_a_feed_ends_with_a_cursor_to_go_on_with(uri: str, commits: list[str], run: Run) -> None:
    text = run("changes", "--branch", "work", "--uri", uri, "--limit", "2")
    lines = text.splitlines()
    assert lines[0].startswith(f"commit {commits[0]} ")
    assert lines[0].endswith(" actor=eve")
    assert lines[1:6] == [
        "  + node Person ann",
        "      handle: ann",
        "      age: 7",
        "  + node Person bob",
        "      handle: bob",
    ]
    assert lines[6].startswith(f"commit {commits[1]} ")
    kept = lines[-1].removeprefix("cursor: ")
    rest = run("changes", "--branch", "work", "--uri", uri, "--since", kept).splitlines()
    assert [line.split()[1] for line in rest if line.startswith("commit")] == [commits[2]]


def test_a_feed_as_json(uri: str, commits: list[str], run_json: Callable[..., Any]) -> None:
    found = run_json("changes", "--uri", uri)
    (block,) = found["blocks"]
    assert block["cause"]["graph_commit_id"] == commits[0]
    assert (block["cause"]["actor_id"], block["cause"]["authored_branch"]) == ("eve", "main")
    assert [change["id"] for change in block["changes"]] == ["ann", "bob"]
    again = run_json("changes", "--uri", uri, "--since", found["cursor"])
    assert again == {"blocks": [], "cursor": found["cursor"], "caught_up": True}


def test_the_changes_of_a_commit(
    uri: str, commits: list[str], run: Run, run_json: Callable[..., Any]
) -> None:
    assert run("commit", "changes", commits[1], "--uri", uri) == "~ node Person ann\n    age: 7 -> 8\n"
    assert run("commit", "changes", commits[1], "--uri", uri, "--kind", "edge") == "no changes\n"
    found = run_json("commit", "changes", commits[0], "--uri", uri, "--op", "insert")
    assert found["cause"]["graph_commit_id"] == commits[0]
    assert len(found["changes"]) == 2


def test_the_changes_of_a_commit_page_by_page(
    uri: str, commits: list[str], run: Run, run_json: Callable[..., Any], refused: Refused
) -> None:
    of_first = ("commit", "changes", commits[0], "--uri", uri)
    whole = run_json(*of_first)
    first = run_json(*of_first, "--limit", "1")
    token = first.pop("next_page_token")
    rest = run_json(*of_first, "--limit", "5", "--page-token", token)
    assert first["cause"] == rest["cause"] == whole["cause"]
    assert first["changes"] + rest["changes"] == whole["changes"]
    assert "next_page_token" not in rest
    assert run(*of_first, "--limit", "1").splitlines()[-1] == f"next page: {token}"
    assert run(*of_first, "--limit", "2") == run(*of_first)
    assert refused(*of_first, "--limit", "0")[0] == "bad_request"
    assert refused(*of_first, "--limit", "8193")[0] == "resource_limit"
    of_second = ("commit", "changes", commits[1], "--uri", uri)
    assert refused(*of_second, "--page-token", token)[0] == "change_cursor_rejected"
    assert refused(*of_first, "--kind", "edge", "--page-token", token)[0] == "change_cursor_rejected"


def test_a_poll_begins_now_and_goes_on_from_its_cursor(
    uri: str, commits: list[str], run: Run, run_json: Callable[..., Any], refused: Refused
) -> None:
    assert run_json("changes", "poll", "--uri", uri)["blocks"] == []
    first = run_json(
        "changes", "poll", "--uri", uri, "--branch", "work", "--start", "beginning", "--limit", "1"
    )
    assert [block["cause"]["graph_commit_id"] for block in first["blocks"]] == [commits[0]]
    assert not first["caught_up"]
    on_work = ("changes", "poll", "--uri", uri, "--branch", "work")
    rest = run_json(*on_work, "--cursor", first["cursor"])
    assert [block["cause"]["graph_commit_id"] for block in rest["blocks"]] == commits[1:]
    assert run(*on_work, "--start", f"after:{commits[2]}") == f"cursor: {rest['cursor']}\n"
    assert refused(*on_work, "--start", "now", "--cursor", "c1.x") == (
        "bad_request",
        "--cursor and --start are mutually exclusive",
    )
    assert refused("changes", "--branch", "work", "poll", "--uri", uri) == (
        "bad_request",
        "--branch stands before `poll`",
    )


def test_a_baseline_is_a_whole_file_and_the_cursor_behind_it(
    uri: str, commits: list[str], tmp_path: Path, run: Run, run_json: Callable[..., Any], refused: Refused
) -> None:
    out = tmp_path / "base.ndjson"
    found = run_json("changes", "baseline", "--uri", uri, "--branch", "work", "--out", str(out))
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert found["rows"] == len(records) > 1
    assert found["baseline"]["snapshot_commit_id"] == commits[2]
    cursor = found["baseline"]["resume_cursor"]
    after = run_json("changes", "poll", "--uri", uri, "--branch", "work", "--cursor", cursor)
    assert (after["blocks"], after["caught_up"]) == ([], True)
    whole = out.read_bytes()
    assert (
        refused("changes", "baseline", "--uri", uri, "--out", str(out), "--type", "Missing")[0]
        == "bad_request"
    )
    assert out.read_bytes() == whole
    text = run("changes", "baseline", "--uri", uri, "--out", str(out), "--kind", "edge", "--op", "insert")
    assert text.splitlines()[0] == f"wrote 0 entities to {out}"
    assert out.read_bytes() == b""


def test_what_cannot_be_compared_is_reported(uri: str, commits: list[str], refused: Refused) -> None:
    assert refused("diff", "main", "nowhere", "--uri", uri)[0] == "not_found"
    assert refused("diff", "main", "work", "--uri", uri, "--type", "Missing")[0] == "bad_request"
    assert refused("diff", "main", "work") == ("bad_request", "no graph addressed")
    assert refused("changes", "--uri", uri, "--since", "c1.x")[0] == "change_cursor_rejected"
    assert refused("commit", "changes", "0" * 26, "--uri", uri)[0] == "commit_not_found"
