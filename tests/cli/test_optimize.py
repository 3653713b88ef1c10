"""`omnigraph optimize`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import graph
from omnigraph.cli.main import main

Run = Callable[..., str]


def add(run: Run, uri: str, *names: str, branch: str = "main") -> None:
    for name in names:
        text = f'query q() {{ insert Person {{ handle: "{name}" }} }}'
        run("mutate", "-e", text, "--uri", uri, "--branch", branch)


def test_it_tells_what_it_did_to_each_table(uri: str, run: Run, configure: Callable[[str], None]) -> None:
    add(run, uri, "ada", "bo", "cy")
    configure("operator: {actor: ivy}")
    report = json.loads(run("optimize", uri, "--json"))
    assert (report["uri"], report["branch"], report["commit"]["actor_id"]) == (uri, "main", "ivy")
    knows, person = report["tables"]
    assert (knows["table_key"], knows["changed"]) == ("edge:Knows", False)
    assert (person["fragments_before"], person["fragments_after"]) == (3, 1)
    assert person["bytes_after"] < person["bytes_before"]
    assert (person["indexes_built"], person["indexes_pending"]) == (["id"], [])
    with graph.open(uri) as opened:
        versions = {key: table.version for key, table in opened.snapshot().tables.items()}
    assert {one["type_key"]: one["published_dataset_version"] for one in report["datasets"]} == versions
    assert {one["type_key"]: one["committed"] for one in report["datasets"]} == {
        "edge:Knows": False,
        "node:Person": True,
    }
    datasets = {one["type_key"]: one for one in report["datasets"]}
    moves = [(one["fragments_removed"], one["fragments_added"]) for one in datasets.values()]
    assert dict(zip(datasets, moves, strict=True)) == {"edge:Knows": (0, 0), "node:Person": (3, 1)}
    assert {key: one["lance_head_version"] for key, one in datasets.items()} == versions


def test_it_says_which_graph_it_changed(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", uri]) == 0
    assert capsys.readouterr().err == f"omnigraph optimize → {uri} (direct, local)\n"
    assert main(["optimize", uri, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_it_prints_lines_for_people_and_does_nothing_twice(uri: str, run: Run) -> None:
    add(run, uri, "ada", "bo")
    first, second = run("optimize", uri).splitlines()
    assert first.startswith("node:Person: 2 fragments of ")
    assert first.endswith(" bytes, indexes on id")
    assert second.startswith("commit ")
    assert run("optimize", uri) == "nothing to do on branch 'main'\n"


def test_a_branch_can_be_named(uri: str, run: Run) -> None:
    add(run, uri, "ada")
    run("branch", "create", "work", "--uri", uri)
    add(run, uri, "bo", branch="work")
    report = json.loads(run("optimize", uri, "--branch", "work", "--json"))
    assert [one["table_key"] for one in report["tables"]] == ["node:Person"]
    with graph.open(uri) as opened:
        assert opened.commits.list()[0].id != report["commit"]["graph_commit_id"]
        assert opened.ensure_indices("work").commit is None


def test_a_branch_that_is_not_there_is_an_error(uri: str) -> None:
    assert main(["optimize", uri, "--branch", "nowhere"]) == 1


def test_a_table_that_something_else_changed_is_left_and_reported(uri: str, run: Run) -> None:
    add(run, uri, "ada", "bo")
    with graph.open(uri, read_only=True) as opened:
        shown = opened.snapshot().tables["node:Person"]
    table = lance.dataset(str(Path(uri, shown.path)))
    table.insert(pa.table({"id": ["x"], "handle": ["x"], "age": [1]}, schema=table.schema))
    output = (
        "node:Person: left as it is: it was changed outside of a commit (it is at version 4, the branch "
        "shows 3); see `omnigraph repair`\nnothing else to do on branch 'main'\n"
    )
    assert (shown.version, run("optimize", uri)) == (3, output)
    skipped = [one["skipped"] for one in json.loads(run("optimize", uri, "--json"))["datasets"]]
    assert skipped == [None, "drift_needs_repair"]
