"""Commands on a graph behind a server: how it is addressed, tokens, and what each command prints."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.credentials import find_token
from omnigraph.cli.main import main
from tests.server.running import (
    PHOTO,
    SCHEMA,
    TOKENS,
    RunningServer,
    make_example,
    policy_options,
    start_server,
    stored_query_options,
    with_tokens,
)

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]
Configure = Callable[[str], None]

PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with tokens, policies and stored queries."""
    folder = tmp_path_factory.mktemp("served")
    options = [*policy_options(folder), *stored_query_options(folder)]
    with start_server(make_example(folder), folder / "log", *options, env=with_tokens()) as found:
        yield found


@pytest.fixture(autouse=True)
def logged_in(home: Path, configure: Configure, server: RunningServer, run: Run) -> None:
    """Root has a token for the server `team`, which is the default."""
    configure(
        f"servers: {{team: {{url: '{server.url}'}}}}\n"
        "defaults: {server: team, default_graph: default}\n"
        "profiles: {team: {server: team, default_graph: default}}\n"
        "aliases: {older: {server: team, graph: default, query: older_than, args: [age], format: csv}}\n"
    )
    run("login", "team", "--token", TOKENS["root"])


# --- addresses and tokens -------------------------------------------------------------------------


def test_a_graph_is_addressed_by_name_url_profile_and_default(server: RunningServer, run: Run) -> None:
    for words in (
        ["--server", "team", "--graph", "default"],
        ["--server", server.url, "--graph", "default"],
        ["--profile", "team"],
        [],
    ):
        assert run("branch", "list", *words) == "main\n"


def test_without_a_graph_the_candidates_are_named(refused: Refused) -> None:
    code, message = refused("branch", "list", "--server", "team")
    assert (code, message) == ("bad_request", "no graph of 'team' is named")


def test_an_unknown_graph_and_a_positional_url_are_refused(server: RunningServer, refused: Refused) -> None:
    assert refused("branch", "list", "--server", "team", "--graph", "other")[0] == "graph_not_found"
    assert "must be addressed with --server" in refused("snapshot", server.url)[1]
    assert "mutually exclusive" in refused("snapshot", "--server", "team", "--store", "x")[1]


def test_a_server_that_does_not_answer_is_named(refused: Refused) -> None:
    code, message = refused("snapshot", "--server", "http://127.0.0.1:1", "--graph", "default")
    assert code == "server_unreachable"
    assert "http://127.0.0.1:1/graphs/default" in message


def test_the_graphs_of_a_server_are_listed_if_its_policy_allows_it(
    run: Run, run_json: RunJson, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("graphs", "list").startswith("default\t")
    assert [one["graph_id"] for one in run_json("graphs", "list", "--server", "team")["graphs"]] == [
        "default"
    ]
    monkeypatch.setenv("OMNIGRAPH_TOKEN_TEAM", TOKENS["reader"])
    assert refused("graphs", "list")[0] == "forbidden"


def test_login_and_logout_keep_other_sections_and_secrets(
    home: Path, run: Run, run_json: RunJson, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "credentials"
    monkeypatch.setattr("sys.stdin", io.StringIO("token-of-other\n"))
    assert run_json("login", "other") == {
        "server": "other",
        "credentials_path": str(path),
        "declared": False,
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert "token-of-other" in path.read_text()
    run("logout", "team")
    run("logout", "team")
    assert "[team]" not in path.read_text()
    assert "token-of-other" in path.read_text()
    assert refused("branch", "list")[0] == "unauthorized"
    path.chmod(0o644)
    assert refused("branch", "list")[1] == f"'{path}' can be read by others"


def test_a_token_is_sent_only_to_its_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "credentials").write_text('# mine\n[a]\ntoken = "keyed" # quoted\n[a-b]\ntoken = longer\n')
    servers = {"a": "https://h.example/x", "a-b": "https://h.example/x/y/"}
    assert find_token("https://h.example/x/graphs/g", servers) == "keyed"
    assert find_token("https://h.example/x/y/graphs/g", servers) == "longer"
    assert find_token("https://h.example/xyz", servers) is None
    assert find_token("http://h.example/x", servers) is None
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "any")
    monkeypatch.setenv("OMNIGRAPH_TOKEN_A_B", "environment")
    assert find_token("https://h.example/x/y/z", servers) == "environment"
    assert find_token("https://h.example/xyz", servers) == "any"


def test_what_policy_denies_and_an_actor_by_name_are_refused(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ["mutate", "-e", 'query q() { insert Person { name: "X" } }']
    assert "--as does not apply" in refused(*add, "--as", "bo")[1]
    monkeypatch.setenv("OMNIGRAPH_TOKEN_TEAM", TOKENS["reader"])
    assert refused(*add)[0] == "forbidden"


# --- commands -------------------------------------------------------------------------------------


def test_reads(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    assert run("query", "-e", PEOPLE, "--format", "csv").splitlines() == ["p.name", "Ada", "Bob", "Cy", "Di"]
    assert run_json("query", "-e", PEOPLE)["row_count"] == 4
    assert run_json("explain", "-e", PEOPLE)["rows"] == 4
    assert run_json("snapshot")["tables"][1]["row_count"] == 4
    assert run("schema", "show").strip() == SCHEMA.strip()
    newest = run_json("commit", "list", "--limit", "1")["commits"][0]
    assert run_json("commit", "show", newest["graph_commit_id"]) == newest
    assert run_json("commit", "changes", newest["graph_commit_id"])["changes"][0]["type"]["name"] == "Knows"
    assert run_json("diff", "main@v2", "main", "--stat")["stats"]["node:Person"]["inserted"] == 4
    assert len(run_json("changes")["blocks"]) == 2
    lines = run("export", "--type", "Person").splitlines()
    assert [json.loads(line)["data"]["name"] for line in lines] == ["Ada", "Bob", "Cy", "Di"]
    assert run_json("export", "-o", str(tmp_path / "x.ndjson"))["total_rows"] == 5
    place = ["node", "Person", "Ada", "photo"]
    assert run_json("blob", "stat", *place)["size"] == len(PHOTO)
    run("blob", "get", *place, "--offset", "2", "--out", str(tmp_path / "photo"))
    assert (tmp_path / "photo").read_bytes() == PHOTO[2:]


def test_a_baseline_is_a_file_and_a_cursor(run_json: RunJson, tmp_path: Path) -> None:
    found = run_json("changes", "baseline", "--out", str(tmp_path / "base.ndjson"))
    lines = (tmp_path / "base.ndjson").read_bytes()
    assert (found["rows"], found["bytes"], lines.count(b"\n")) == (5, len(lines), 5)
    cursor = found["baseline"]["resume_cursor"]
    assert run_json("changes", "poll", "--cursor", cursor)["blocks"] == []


def test_stored_queries_run_by_name_and_by_alias(run: Run, run_json: RunJson, refused: Refused) -> None:
    assert run("alias", "older", "30").splitlines() == ["p.name,p.age", "Ada,36"]
    found = run_json("query", "older_than", "--params", '{"age": 30}')
    assert found["rows"] == [{"p.name": "Ada", "p.age": 36}]
    run("branch", "create", "stored")
    done = run_json("mutate", "add_person", "--param", "name=Zoe", "--branch", "stored")
    assert (done["affected_nodes"], done["actor_id"]) == (1, "root")
    assert refused("query", "add_person", "--param", "name=Zoe")[1].endswith(
        "use omnigraph mutate add_person"
    )
    assert refused("query", "nothing")[1] == "stored query not found"


def test_writes(
    run: Run, run_json: RunJson, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    run("branch", "create", "work")
    shown = ["load", "--data", str(tmp_path / "people.ndjson"), "--mode", "append", "--branch", "work"]
    (tmp_path / "people.ndjson").write_text('{"type": "Person", "data": {"name": "Eve"}}\n')
    loaded = run_json(*shown)
    assert (loaded["total_entities"], loaded["actor_id"]) == (1, "root")
    assert refused(*shown)[0] == "key_conflict"
    head = loaded["commit"]["graph_commit_id"]
    change = [
        "mutate",
        "-e",
        'query q() { update Person set { age: 1 } where name = "Eve" }',
        "--branch",
        "work",
    ]
    assert run_json(*change, "--if-commit", head)["affected_nodes"] == 1
    capsys.readouterr()
    assert main([*change, "--if-commit", head, "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["code"] == "precondition_failure"
    assert run_json("branch", "merge", "work", "--dry-run")["changes"]["node:Person"]["inserted"] == 1
    run("branch", "create", "other")
    merged = run_json("branch", "merge", "work", "--into", "other", "--delete-branch")
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
    assert "needs consent" in refused("branch", "delete", "other")[1]
    capsys.readouterr()
    assert main(["branch", "delete", "other", "--yes"]) == 0
    assert capsys.readouterr().err.rstrip().endswith("(served)")


def test_wrong_records_of_a_load_come_back(
    run: Run, run_json: RunJson, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    run("branch", "create", "rejected")
    (tmp_path / "people.txt").write_text("full name,age\nFay,1\nGil,x\n")
    (tmp_path / "map.yaml").write_text(
        "inputs:\n- files: [people.txt]\n  type: Person\n  format: csv\n  columns: {full name: name}\n"
    )
    rejects = tmp_path / "rejects.ndjson"
    shown = ["load", "--data", str(tmp_path / "people.txt"), "--mapping", str(tmp_path / "map.yaml")]
    shown += ["--mode", "append", "--branch", "rejected", "--rejects", str(rejects)]
    assert refused(*shown)[0] == "load_rejected"
    assert json.loads(rejects.read_text())["record"] == "Gil,x"
    rejects.unlink()
    loaded = run_json(*shown, "--skip-bad")
    assert (loaded["total_entities"], loaded["skipped_counts"]) == (1, {"value": 1})
    assert loaded["skipped"][0]["line"] == 3
    assert json.loads(rejects.read_text())["line"] == 3


def test_a_schema_is_applied_where_the_server_may(refused: Refused, tmp_path: Path, run: Run) -> None:
    run("branch", "create", "blocking")
    (tmp_path / "new.pg").write_text(SCHEMA + "node Pet { name: String @key }\n")
    assert refused("schema", "apply", "--schema", str(tmp_path / "new.pg"))[0] == "schema_apply_blocked"
