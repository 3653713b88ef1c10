"""`omnigraph cleanup`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints, graph
from omnigraph.cli.cleanup import render_lines
from omnigraph.cli.main import main
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import CleanupResult
from omnigraph.engine.maintenance.cleanup.unneeded_tables import DroppedTable

Run = Callable[..., str]
RunJson = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions may go as soon as they are past."""
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")


def add(uri: str, *names: str) -> list[str]:
    """A commit for each; gives their ids."""
    with graph.open(uri) as opened:
        done = [
            opened.mutate("query q($h: String) { insert Person { handle: $h } }", {"h": name}).commit
            for name in names
        ]
    return [commit.id for commit in done if commit is not None]


def files(uri: str) -> set[str]:
    return {str(at) for at in Path(uri).rglob("*") if at.is_file()}


def test_without_confirm_it_tells_the_policy_and_what_would_go(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add(uri, "ada", "bo", "cy")
    before = files(uri)
    assert main(["cleanup", uri, "--keep", "2", "--older-than", "0s"]) == 0
    shown = capsys.readouterr()
    assert shown.err == (
        "keeps the newest 2 commits of each branch and what was current in the last 0s, and whatever was "
        "current 0 seconds ago or later; nothing is removed without --confirm\n"
    )
    person, manifest, summary = shown.out.splitlines()
    assert person.startswith("node:Person on main: 4 versions -> 2, ")
    assert manifest.startswith("manifest on main: ")
    assert summary.startswith("would remove ")
    assert files(uri) == before


def test_with_confirm_it_goes_and_the_graph_is_named(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = add(uri, "ada", "bo", "cy")
    assert main(["cleanup", uri, "--keep", "1", "--confirm"]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"omnigraph cleanup → {uri} (direct, local)\n"
    assert shown.out.splitlines()[0].startswith("node:Person on main: 4 versions -> 1, ")
    assert shown.out.splitlines()[-1].startswith("removed ")
    assert main(["snapshot", uri, "--commit", made[2]]) == 0
    capsys.readouterr()
    assert main(["cleanup", uri, "--keep", "1", "--confirm", "--quiet"]) == 0
    assert capsys.readouterr() == ("nothing to remove\n", "")


def test_a_commit_that_is_gone_is_reported_by_queries_diffs_and_feeds(
    uri: str, refused: Callable[..., tuple[str, str]], run: Run
) -> None:
    made = add(uri, "ada", "bo", "cy")
    run("optimize", uri)
    run("cleanup", uri, "--keep", "1", "--confirm")
    read = ["-e", "query q() { match { $p: Person } return { $p.handle } }", "--uri", uri]
    assert refused("query", *read, "--commit", made[0])[0] == "version_reclaimed"
    assert refused("diff", made[0], "main", "--uri", uri)[0] == "version_reclaimed"
    assert refused("changes", "--since", "beginning", "--uri", uri)[0] == "change_feed_gap"
    assert len(run("commit", "list", uri).splitlines()) == 5, "no commit is forgotten"


def test_scripts_get_numbers(uri: str, run_json: RunJson) -> None:
    add(uri, "ada", "bo")
    preview = run_json("cleanup", uri, "--keep", "1")
    done = run_json("cleanup", uri, "--keep", "1", "--confirm", "--quiet")
    assert (preview["dry_run"], done["dry_run"], done["ok"]) == (True, False, True)
    assert preview["tables"] == done["tables"]
    knows, person = done["tables"]
    assert (knows["table_key"], knows["versions_removed"]) == ("edge:Knows", 0)
    assert (person["versions_before"], person["versions_after"]) == (3, 1)
    assert done["policy"] == {
        "keep": 1,
        "older_than_seconds": None,
        "minimum_age_seconds": 0.0,
        "staged_older_than_seconds": 7 * 86_400.0,
    }
    assert done["manifests"][0]["versions_removed"] > 0
    removed = sum(one["versions_removed"] for one in (*done["tables"], *done["manifests"]))
    assert done["versions_removed"] == removed
    assert (done["forks"], done["forks_left"], done["dropped"]) == ([], [], [])
    assert done["derived"] == {"files": 0, "bytes": 0}


def test_how_much_to_keep_has_to_be_said(uri: str, refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("cleanup", uri)[0] == "bad_request"
    assert refused("cleanup", uri, "--keep", "0")[0] == "invalid_value"
    assert refused("cleanup", uri, "--older-than", "soon", "--confirm")[0] == "invalid_value"


def test_what_could_not_go_makes_it_fail(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    add(uri, "ada", "bo")
    point = failpoints.CLEANUP_TABLE_GC
    with failpoints.arm(point, failpoints.error(point)):
        assert main(["cleanup", uri, "--keep", "1", "--confirm", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert {one["failure"] for one in found["tables"]} == {f"injected failure at '{point}'"}


def test_sorted_edges_of_tables_that_are_gone_go(uri: str, run: Run, run_json: RunJson) -> None:
    stray = Path(uri, "__derived", "0123456789abcdef.topology")
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"12345")
    assert "derived: 1 files of 5 bytes in __derived" in run("doctor", uri)
    assert run_json("cleanup", uri, "--keep", "1")["derived"] == {"files": 1, "bytes": 5}
    assert "__derived: 1 files of 5 bytes" in run("cleanup", uri, "--keep", "1", "--confirm")
    assert not stray.exists()


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"dropped": (DroppedTable("node:Gone", 0),)}, "node:Gone: of a type that was dropped, 0 bytes"),
        ({"loads": ("01JZ5E8W6Q5T0Y7K3S9D2V4B1N",)}, "__staging: files of 1 interrupted loads, 0 bytes"),
    ],
)
def test_what_takes_no_room_is_something_to_remove(found: dict[str, Any], line: str) -> None:
    result = CleanupResult(CleanupPolicy(1, None, 0.0), True, (), (), **found)
    assert list(render_lines(result)) == [line, "would remove 0 versions, 0 bytes"]
    assert list(render_lines(CleanupResult(CleanupPolicy(1, None, 0.0), True, (), ()))) == [
        "nothing to remove"
    ]
