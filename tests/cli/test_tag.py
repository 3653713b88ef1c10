"""`omnigraph tag`, and where commands take tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.cli.main import main

Run = Callable[..., str]


def add(run_json: Callable[..., Any], uri: str, name: str) -> str:
    text = f'query q() {{ insert Person {{ handle: "{name}" }} }}'
    return str(run_json("mutate", "-e", text, "--store", uri)["commit"]["graph_commit_id"])


def test_tags_are_created_listed_shown_and_deleted(
    uri: str, run: Run, run_json: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    first = add(run_json, uri, "ada")
    made = run_json("tag", "create", "v1", "--store", uri, "-m", "Done\nAll of it", "--as", "ann")
    assert (made["name"], made["graph_commit_id"], made["actor_id"]) == ("v1", first, "ann")
    second = add(run_json, uri, "bo")
    assert run("tag", "create", "v2", "--at", second, "--store", uri) == f"tagged {second} as v2\n"
    assert [line.split("  ")[::3] for line in run("tag", "list", uri).splitlines()] == [
        ["v1", "Done"],
        ["v2"],
    ]
    assert len(run_json("tag", "list", uri, "--limit", "1")["tags"]) == 1
    assert f"{first} " in run("commit", "list", uri).replace(" tags=v1", " ")
    assert run_json("commit", "list", uri)["commits"][1]["tags"] == ["v1"]
    assert "(main, tag: v2)" in run("log", uri)
    assert run("log", uri, "--branch", "v1").count("\n") == 2
    assert main(["tag", "create", "v1", "--store", uri]) != 0
    assert "move the tag with --force" in capsys.readouterr().err
    run("tag", "create", "v1", "--force", "--store", uri)
    assert run("tag", "delete", "v2", "--store", uri) == "deleted tag v2\n"
    assert [one["graph_commit_id"] for one in run_json("tag", "list", uri)["tags"]] == [second]


@pytest.mark.parametrize("option", ["--at", "--time", "--commit", "--snapshot"])
def test_reads_take_a_tag_where_they_take_a_moment(
    uri: str, run: Run, run_json: Callable[..., Any], option: str
) -> None:
    add(run_json, uri, "ada")
    run("tag", "create", "v1", "--store", uri)
    add(run_json, uri, "bo")
    text = "query q() { match { $p: Person } return { count($p) } }"
    assert run("query", "-e", text, option, "v1", "--store", uri).split()[-1] == "1"


def test_a_branch_begins_at_a_tag(uri: str, run: Run, run_json: Callable[..., Any]) -> None:
    first = add(run_json, uri, "ada")
    run("tag", "create", "v1", "--store", uri)
    add(run_json, uri, "bo")
    assert run("branch", "create", "old", "--from", "v1", "--store", uri) == "created branch old from v1\n"
    assert run_json("commit", "list", uri, "--branch", "old")["commits"][0]["graph_commit_id"] == first
