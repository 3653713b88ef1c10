"""`omnigraph mutate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints, graph
from omnigraph.cli.main import main

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]
ADD = "query add($h: String, $a: I32?) { insert Person { handle: $h, age: $a } }"


def people(uri: str, branch: str = "main") -> dict[str, int | None]:
    with graph.open(uri, read_only=True) as opened:
        rows = opened.snapshot(branch).rows("Person").to_pylist()
    return {row["handle"]: row["age"] for row in rows}


def test_a_mutation_tells_what_it_changed(uri: str, run: Run) -> None:
    run("branch", "create", "--uri", uri, "work")
    output = run("mutate", "-e", ADD, "--params", '{"h": "ada", "a": 36}', "--uri", uri, "--branch", "work")
    assert output == "changed work via add: 1 node, 0 edges\n"
    assert people(uri, "work") == {"ada": 36}
    assert people(uri) == {}


def test_a_query_comes_from_a_file_and_is_chosen_by_name(uri: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text(ADD + ' query gone() { delete Person where handle = "ada" }', "utf-8")
    (tmp_path / "p.json").write_text('{"h": "ada"}', "utf-8")
    query = ("--query", str(tmp_path / "q.gq"), "--store", uri)
    run("mutate", "add", *query, "--params-file", str(tmp_path / "p.json"))
    assert people(uri) == {"ada": None}
    assert run("mutate", "gone", *query) == "changed main via gone: 1 node, 0 edges\n"


def test_the_result_as_json(uri: str, run_json: RunJson, run: Run) -> None:
    found = run_json("mutate", "-e", ADD, "--params", '{"h": "ada"}', "--uri", uri, "--as", "ann")
    newest = json.loads(run("commit", "list", uri, "--json"))["commits"][0]
    assert newest.pop("tags") == []
    assert found == {
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "tables": [{"table_key": "node:Person", "inserted": 1, "updated": 0, "deleted": 0}],
        "actor_id": "ann",
        "commit": newest,
        "pending_indexes": {},
    }
    assert newest["actor_id"] == "ann"
    nothing = run_json("mutate", "-e", 'query q() { delete Person where handle = "zz" }', "--uri", uri)
    assert (nothing["affected_nodes"], nothing["tables"], nothing["commit"]) == (0, [], None)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_lost_condition_exits_with_4(
    uri: str, as_json: bool, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    head = run("commit", "list", uri).split()[0]
    run("mutate", "-e", ADD, "--params", '{"h": "ada"}', "--uri", uri, "--if-commit", head)
    arguments = ["mutate", "-e", ADD, "--params", '{"h": "bo"}', "--uri", uri, "--if-commit", head]
    capsys.readouterr()
    assert main([*arguments, *(["--json"] if as_json else [])]) == 4
    shown = capsys.readouterr()
    output = shown.out if as_json else shown.err
    assert f"precondition failed on branch 'main': expected head '{head}'" in output
    assert (shown.err if as_json else shown.out) == ""
    if as_json:
        assert json.loads(shown.out)["code"] == "precondition_failure"
    assert people(uri) == {"ada": None}


@pytest.mark.parametrize(("retry", "code", "age"), [("0", 1, 5), ("1", 0, 9)])
def test_an_update_is_retried_as_often_as_asked(uri: str, run: Run, retry: str, code: int, age: int) -> None:
    run("mutate", "-e", ADD, "--params", '{"h": "ada"}', "--uri", uri)
    update = 'query q() {{ update Person set {{ age: {} }} where handle = "ada" }}'
    rivals = [update.format(5)]

    def overtake() -> None:
        while rivals:
            with graph.open(uri) as other:
                other.mutate(rivals.pop())

    with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, overtake):
        assert main(["mutate", "-e", update.format(9), "--uri", uri, "--retry", retry]) == code
    assert people(uri) == {"ada": age}


def test_what_is_wrong_is_reported(uri: str, refused: Refused, tmp_path: Path) -> None:
    assert refused("mutate", "-e", ADD) == ("bad_request", "no graph addressed")
    assert refused("mutate", "--uri", uri) == ("bad_request", "no query given")
    both = refused("mutate", "-e", ADD, "--query", "q.gq", "--uri", uri)
    assert both == ("bad_request", "--query and --query-string are mutually exclusive")
    read = "query q() { match { $p: Person } return { $p.age as a } }"
    assert refused("mutate", "-e", read, "--uri", uri)[0] == "wrong_query_kind"
    assert refused("mutate", "-e", ADD, "--uri", uri)[1] == "parameter 'h' not provided"
    assert refused("mutate", "-e", "insert Person", "--uri", uri)[0] == "parse_error"
    assert "cannot read" in refused("mutate", "--query", str(tmp_path / "no.gq"), "--uri", uri)[1]
    for params, message in (
        (["--params", "{"], "params are not JSON"),
        (["--params", "[1]"], "params must be a JSON object"),
        (["--params-file", str(tmp_path / "no.json")], "cannot read"),
        (["--params", "{}", "--params-file", "x"], "mutually exclusive"),
    ):
        assert message in refused("mutate", "-e", ADD, *params, "--uri", uri)[1]
    assert refused("mutate", "-e", ADD, "--params", '{"h": "a"}', "--uri", uri, "--branch", "no")[0] == (
        "branch_not_found"
    )
    assert people(uri) == {}
