"""`omnigraph branch merge`."""

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


def put(uri: str, branch: str, **ages: int) -> None:
    with graph.open(uri) as opened, opened.write(branch) as tx:
        for name, age in ages.items():
            tx.insert("Person", handle=name, age=age)


def ages(uri: str) -> dict[str, int]:
    with graph.open(uri) as opened:
        found = opened.snapshot().rows("Person").to_pydict()
    return dict(zip(found["id"], found["age"], strict=True))


@pytest.fixture
def torn(uri: str, run: Run) -> str:
    """A graph with a branch `work` that disagrees with main on ann."""
    put(uri, "main", ann=1, bob=1)
    run("branch", "create", "work", "--uri", uri)
    put(uri, "work", ann=2, cid=2)
    put(uri, "main", ann=3)
    return uri


def test_a_branch_is_merged_and_merged_again(uri: str, run: Run) -> None:
    run("branch", "create", "work", "--uri", uri)
    assert run("branch", "merge", "work", "--uri", uri) == "merged work into main: already_up_to_date\n"
    put(uri, "work", ann=1)
    assert run("branch", "merge", "work", "--uri", uri) == "merged work into main: fast_forward\n"
    put(uri, "work", bob=1)
    put(uri, "main", cid=1)
    assert (
        run("branch", "merge", "work", "--store", uri, "--into", "main") == "merged work into main: merged\n"
    )
    assert ages(uri) == {"ann": 1, "bob": 1, "cid": 1}
    assert run("branch", "merge", "main", "--into", "work", "--uri", uri).startswith(
        "merged main into work: "
    )


def test_json_tells_the_outcome_and_what_it_changed(uri: str, run: Run, run_json: Callable[..., Any]) -> None:
    run("branch", "create", "work", "--uri", uri)
    put(uri, "work", ann=1)
    done = run_json("branch", "merge", "work", "--uri", uri, "--as", "eve", "--delete-branch")
    commit = run_json("commit", "list", uri)["commits"][0]["graph_commit_id"]
    assert done == {
        "source": "work",
        "target": "main",
        "outcome": "fast_forward",
        "actor_id": "eve",
        "branch_deleted": True,
        "graph_commit_id": commit,
        "resolved": 0,
        "changes": {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
        "pending_indexes": {},
        "by_branch": {
            "node:Person": {
                "source": {"inserted": 1, "updated": 0, "deleted": 0},
                "target": {"inserted": 0, "updated": 0, "deleted": 0},
            }
        },
    }
    assert run("branch", "list", "--uri", uri) == "main\n"


def test_it_says_on_stderr_where_it_went_unless_quiet(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["branch", "create", "work", "--uri", uri, "--quiet"]) == 0
    assert main(["branch", "merge", "work", "--uri", uri]) == 0
    assert capsys.readouterr().err == f"omnigraph branch merge → {uri} (direct, local)\n"
    assert main(["branch", "merge", "work", "--uri", uri, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_source_that_cannot_be_deleted_is_a_warning(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["branch", "create", "work", "--uri", uri])
    main(["branch", "create", "below", "--from", "work", "--uri", uri])
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--uri", uri, "--delete-branch", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "merged work into main: already_up_to_date\n"
    assert shown.err == (
        "warning: branch 'work' was not deleted: "
        "branch 'work' cannot be deleted: 'below' still depends on it\n"
    )


def test_conflicts_are_listed_and_exit_with_1(torn: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--uri", torn]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error[merge_conflicts]: merging 'work' into 'main' has 1 conflict; ours is main, theirs is work\n"
        "  divergent_update: node Person 'ann' was changed on both 'work' and 'main': "
        "'work' changed age; 'main' changed age\n"
        "      age: base 1, ours 3, theirs 2\n"
        "  help: preview the merge with --dry-run, then decide with --strategy or --resolutions, "
        "or change one of the branches\n"
    )
    assert ages(torn) == {"ann": 3, "bob": 1}


def test_conflicts_as_json_have_their_images(torn: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--uri", torn, "--json"]) == 1
    found = json.loads(capsys.readouterr().err)
    assert found["code"] == "merge_conflicts"
    (conflict,) = found["data"]["conflicts"]
    assert (conflict["kind"], conflict["entity_id"]) == ("divergent_update", "ann")
    assert conflict["source"] == {"properties": {"handle": "ann", "age": 2}}


def test_a_long_list_is_cut(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["branch", "create", "work", "--uri", uri])
    for branch, age in (("work", 1), ("main", 2)):
        put(uri, branch, **{f"p{number}": age for number in range(25)})
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--uri", uri]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("has 25 conflicts; ours is main, theirs is work")
    assert lines[2].endswith("base not there, ours 2, theirs 1")
    assert sum("divergent_insert" in line for line in lines) == 20
    assert lines[-2] == "  and 5 more"


def test_a_preview_shows_counts_and_conflicts_and_changes_nothing(
    torn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--uri", torn, "--dry-run"]) == 1
    shown = capsys.readouterr()
    assert shown.out == (
        "merging work into main would be: merged\n"
        "node:Person: 1 inserted, 0 updated, 0 deleted\n"
        "  node:Person: work 1 inserted, 1 updated, 0 deleted; main 0 inserted, 1 updated, 0 deleted\n"
        "1 conflict; ours is main, theirs is work\n"
        "  divergent_update: node Person 'ann' was changed on both 'work' and 'main': "
        "'work' changed age; 'main' changed age\n"
        "      age: base 1, ours 3, theirs 2\n"
    )
    assert shown.err == ""
    assert main(["branch", "merge", "work", "--uri", torn, "--dry-run", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["merge_conflicts"][0]["entity_id"] == "ann"
    assert ages(torn) == {"ann": 3, "bob": 1}
    assert main(["branch", "merge", "work", "--uri", torn, "--dry-run", "--strategy", "theirs"]) == 0
    decided = capsys.readouterr().out
    assert "\nnode:Person: 1 inserted, 1 updated, 0 deleted\n  node:Person: work 1 inserted" in decided
    assert decided.endswith("\n1 decided\n")


@pytest.mark.parametrize(("side", "age"), [("ours", 3), ("theirs", 2)])
def test_a_strategy_decides(torn: str, run: Run, side: str, age: int) -> None:
    assert (
        run("branch", "merge", "work", "--uri", torn, "--strategy", side) == "merged work into main: merged\n"
    )
    assert ages(torn) == {"ann": age, "bob": 1, "cid": 2}


def test_decisions_are_made_in_a_file(
    torn: str, tmp_path: Path, run: Run, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    at = str(tmp_path / "decisions.json")
    command = ["branch", "merge", "work", "--uri", torn]
    capsys.readouterr()
    assert main([*command, "--write-resolutions", at]) == 1
    then = f"fill in what should stand, then merge with --resolutions {at}"
    assert capsys.readouterr().err == f"wrote 1 conflict to {at}; {then}\n"
    code, message = refused(*command, "--write-resolutions", at)
    assert (code, "exists already" in message) == ("bad_request", True)
    file = json.loads(Path(at).read_text(encoding="utf-8"))
    assert "`ours` (as in main), `theirs` (as in work)" in file["help"][0]
    file["conflicts"][0]["properties"]["age"] = {"value": 40}
    Path(at).write_text(json.dumps(file), encoding="utf-8")
    run(*command, "--resolutions", at, "--write-resolutions", at)
    assert (
        json.loads(Path(at).read_text(encoding="utf-8"))["conflicts"][0]["properties"]["age"]["value"] == 40
    )
    run(*command, "--resolutions", at)
    assert ages(torn) == {"ann": 40, "bob": 1, "cid": 2}
    assert refused(*command, "--resolutions", at, "--granularity", "property")[0] == "bad_request"


def test_different_properties_go_together_when_asked(tmp_path: Path, run: Run, refused: Refused) -> None:
    uri = str(tmp_path / "p.omni")
    with graph.init(uri, schema="node P { k: String @key  a: I32?  b: I32? }") as opened:
        with opened.write() as tx:
            tx.insert("P", k="x", a=1, b=1)
        opened.branches.create("work")
        for branch, values in (("work", {"a": 2}), ("main", {"b": 3})):
            with opened.write(branch) as tx:
                tx.update("P", ("k", "=", "x"), values)
    assert refused("branch", "merge", "work", "--uri", uri)[0] == "merge_conflicts"
    run("branch", "merge", "work", "--uri", uri, "--granularity", "property")
    with graph.open(uri) as opened:
        assert opened.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x", "a": 2, "b": 3}]


def test_what_cannot_be_merged_is_reported(uri: str, refused: Refused) -> None:
    assert refused("branch", "merge", "nowhere", "--uri", uri)[0] == "branch_not_found"
    assert refused("branch", "merge", "main", "--uri", uri) == (
        "bad_request",
        "branch 'main' cannot be merged into itself",
    )
    assert main(["branch", "merge", "work", "--uri", uri, "--strategy", "mine"]) == 2


def test_a_conflict_names_the_granularity_that_settles_it_and_a_strategy_what_it_costs(
    tmp_path: Path, run: Run, run_json: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = str(tmp_path / "apart.omni")
    with graph.init(uri, schema="node P { k: String @key  a: I32?  b: I32? }") as opened:
        for branch, a, b in (("main", 1, 1), ("work", 2, 1), ("main", 1, 5)):
            if branch == "work":
                opened.branches.create("work")
            with opened.write(branch) as tx:
                tx.insert("P", k="x", a=a, b=b)
    capsys.readouterr()
    assert main(["branch", "merge", "work", "--dry-run", "--uri", uri]) == 1
    assert capsys.readouterr().out == (
        "merging work into main would be: merged\n"
        "  node:P: work 0 inserted, 1 updated, 0 deleted; main 0 inserted, 1 updated, 0 deleted\n"
        "1 conflict; ours is main, theirs is work\n"
        "  divergent_update: node P 'x' was changed on both 'work' and 'main': "
        "'work' changed a; 'main' changed b\n"
        "      a: base 1, ours 1, theirs 2\n"
        "      b: base 1, ours 5, theirs 1\n"
        "      help: merge with --granularity property: the branches changed different properties\n"
    )
    assert main(["branch", "merge", "work", "--dry-run", "--json", "--uri", uri]) == 1
    (conflict,) = json.loads(capsys.readouterr().out)["merge_conflicts"]
    assert (conflict["source_changed"], conflict["target_changed"]) == (["a"], ["b"])
    would = run_json("branch", "merge", "work", "--dry-run", "--strategy", "theirs", "--uri", uri)
    assert would["given_up"] == [
        {"entity_kind": "node", "type_name": "P", "entity_id": "x", "target": {"b": 5}}
    ]
    assert run("branch", "merge", "work", "--strategy", "theirs", "--uri", uri) == (
        "merged work into main: merged\n"
        "  node P 'x' was taken whole and gave up b 5 of main\n"
        "  help: --granularity property keeps what only one branch changed\n"
    )


def test_strategies_for_types_and_properties_can_be_repeated(torn: str) -> None:
    assert main(["branch", "merge", "work", "--uri", torn, "--strategy", "Person.age=both"]) == 2
    assert main(["branch", "merge", "work", "--uri", torn, "--strategy", "Robot=ours"]) == 1
    several = ["--strategy", "ours", "--strategy", "Person.age=theirs"]
    assert main(["branch", "merge", "work", "--uri", torn, *several]) == 0
    assert ages(torn)["ann"] == 2


def test_the_config_file_says_what_contradicts_where_nothing_else_does(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = str(tmp_path / "graph")
    schema = tmp_path / "schema.pg"
    schema.write_text("node P { k: String @key  a: I32?  b: I32? }\n")
    run("init", at, "--schema", str(schema))
    add = "query q($k: String, $a: I32?, $b: I32?) { insert P { k: $k, a: $a, b: $b } }"
    for branch, a, b in (("main", 1, 1), ("work", 2, 1), ("main", 1, 2)):
        if branch == "work":
            run("branch", "create", "work", "--store", at)
        values = json.dumps({"k": "x", "a": a, "b": b})
        run("mutate", "-e", add, "--params", values, "--branch", branch, "--store", at)
    assert main(["branch", "merge", "work", "--store", at]) == 1
    (tmp_path / "config.yaml").write_text("defaults: {merge_granularity: property}\n")
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    assert main(["branch", "merge", "work", "--granularity", "row", "--store", at]) == 1
    run("branch", "merge", "work", "--store", at)
