"""The commands as an operator types them: output, exit codes, actors, and the example."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph as graphs
from omnigraph.cli.main import main
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import boot
from omnigraph.server.cluster_source import ClusterSource
from omnigraph.server.settings import Bind, ServeOptions
from tests.cluster.deployment import (
    CONFIG,
    GONE,
    GRAPH_POLICY,
    NARROWER,
    SCHEMA,
    SERVER_POLICY,
    WIDER,
    Deployment,
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def omnigraph(run: Run, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs any command of omnigraph."""

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(list(arguments))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; gives its status and what it printed."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["cluster", *arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


def test_the_example_goes_from_an_empty_folder_to_an_edited_schema(run: Run, tmp_path: Path) -> None:
    at = str(tmp_path / "brain")
    status, out, _ = run("init", at)
    assert status == 0
    assert f"wrote {at}/cluster.yaml" in out
    status, out, _ = run("validate", "--config", at)
    assert (status, out) == (0, "cluster config valid: 9 resource(s), 11 dependency edge(s)\n")
    status, out, _ = run("import", "--config", at)
    assert (status, out.splitlines()[0]) == (0, "cluster import: revision 1")
    status, out, _ = run("plan", "--config", at)
    assert status == 0
    assert out.splitlines()[:2] == [
        "cluster plan: 9 change(s), 0 approval gate(s)",
        "  + Create graph.knowledge",
    ]
    status, out, _ = run("apply", "--config", at, "--as", "act-ann")
    assert status == 0
    assert out.splitlines()[0] == "cluster apply: 9 applied, 0 deferred/blocked"
    assert "  Create graph.tickets [Applied]" in out
    assert "  state: revision 2, converged: true, written: true" in out
    schema = tmp_path / "brain" / "tickets.pg"
    schema.write_text(schema.read_text(encoding="utf-8").replace("done: Bool", "done: Bool\n  due: Date?"))
    status, out, _ = run("plan", "--config", at)
    assert "      + Ticket.due: Date?" in out
    assert "      affects query.tickets.open_tickets" in out
    assert run("apply", "--config", at)[0] == 0
    status, _, err = run("init", at)
    assert status == 1
    assert "is not empty" in err


def test_a_command_prints_what_a_script_reads(run: Run, applied: Deployment) -> None:
    at = str(applied.folder)
    status, out, err = run("status", "--config", at, "--json")
    found = json.loads(out)
    assert (status, err, found["ok"]) == (0, "", True)
    assert found["state_observations"]["resource_count"] == 5
    status, out, _ = run("refresh", "--config", at, "--json")
    assert json.loads(out)["operation"] == "refresh"
    applied.configure("version: 2\n")
    status, out, err = run("validate", "--config", at)
    assert (status, out) == (1, "cluster config invalid\n")
    assert err == "ERROR cluster_config_invalid version (cluster.yaml:1:10): must be 1\n"
    status, out, _ = run("plan", "--config", at, "--json")
    assert status == 1
    assert json.loads(out)["ok"] is False


def test_an_actor_has_several_spellings(
    run: Run, applied: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = str(applied.folder)
    applied.configure(GONE)
    status, _, err = run("approve", "graph.knowledge", "--config", at)
    assert status == 1
    assert "actor_required" in err
    for words in (("--as", "ann"), ("--actor", "bob"), ("--by", "cy")):
        status, out, _ = run("approve", "graph.knowledge", "--config", at, *words, "--json")
        assert (status, json.loads(out)["approved_by"]) == (0, words[1])
    monkeypatch.setenv("OMNIGRAPH_CLUSTER_ACTOR", "dee")
    status, out, _ = run("approve", "graph.knowledge", "--config", at)
    assert status == 0
    assert out.startswith("approved delete of graph.knowledge by dee: ")
    status, _, err = run("plan", "--as", "ann", "--config", at)
    assert status == 1
    assert "`cluster plan` is a cluster control command" in err
    status, out, _ = run("apply", "--config", at, "--json")
    assert json.loads(out)["actor"] == "dee"


def test_blocked_changes_are_shown_and_exit_with_0(run: Run, applied: Deployment) -> None:
    applied.configure(GONE)
    status, out, err = run("apply", "--config", str(applied.folder))
    assert status == 0
    assert "  Delete graph.knowledge [Blocked: approval_required]" in out
    assert "converged: false" in out
    assert "WARN  apply_dependency_blocked graph.knowledge: " in err


def test_a_stored_plan_is_applied(run: Run, applied: Deployment, tmp_path: Path) -> None:
    at, out = str(applied.folder), str(tmp_path / "plan.json")
    applied.write("knowledge.pg", WIDER)
    assert run("plan", "--config", at, "--out", out)[0] == 0
    assert run("apply", "--config", at, "--plan", out)[0] == 0
    status, _, err = run("apply", "--config", at, "--plan", out)
    assert status == 1
    assert "plan_stale" in err


def test_a_lock_is_removed_by_its_id(run: Run, applied: Deployment) -> None:
    at = str(applied.folder)
    lock = {"version": 1, "lock_id": "L", "operation": "apply", "created_at": "x", "pid": 7}
    (applied.control / "lock.json").write_text(json.dumps(lock), encoding="utf-8")
    _, out, _ = run("status", "--config", at)
    assert "locked by `cluster apply` (lock L, pid 7)" in out
    assert run("force-unlock", "M", "--config", at)[:2] == (1, "no lock was removed\n")
    assert run("force-unlock", "L", "--config", at)[:2] == (0, "removed lock L\n")


def test_direct_commands_find_a_graph_by_its_cluster(omnigraph: Run, applied: Deployment) -> None:
    at = str(applied.folder)
    for words in ((at,), (at, "--graph", "knowledge"), (f"file://{at}",)):
        status, out, err = omnigraph("doctor", "--cluster", *words, "--json")
        assert status == 0, err
        assert json.loads(out)["uri"] == str(applied.graph())
    status, _, err = omnigraph("doctor", "--cluster", at, "--graph", "tickets", "--json")
    assert (status, json.loads(err)["code"]) == (1, "graph_not_applied")
    assert json.loads(err)["data"]["applied"] == ["knowledge"]

    def declare_second(state: dict[str, Any]) -> None:
        state["applied_revision"]["resources"]["graph.second"] = {"digest": "x"}

    applied.edit_state(declare_second)
    status, _, err = omnigraph("doctor", "--cluster", at)
    assert status == 1
    assert "has several graphs: knowledge, second" in err


def test_a_cluster_without_files_or_ledger_cannot_be_used(
    omnigraph: Run, fresh: Deployment, tmp_path: Path
) -> None:
    for at, reason in ((tmp_path, "cluster_config_missing"), (fresh.folder, "it has no ledger")):
        status, _, err = omnigraph("doctor", "--cluster", str(at), "--json")
        assert (status, json.loads(err)["code"]) == (1, "cluster_unreadable")
        assert reason in json.loads(err)["error"]
    fresh.control.mkdir()
    (fresh.control / "state.json").write_text("{}", encoding="utf-8")
    assert "invalid_state" in omnigraph("doctor", "--cluster", str(fresh.folder))[2]


def test_only_the_cluster_makes_its_graphs_and_changes_their_schemas(
    omnigraph: Run, applied: Deployment
) -> None:
    schema = str(applied.folder / "knowledge.pg")
    for words in (
        ("init", str(applied.graph("other")), "--schema", schema),
        ("schema", "apply", str(applied.graph()), "--schema", schema),
    ):
        status, _, err = omnigraph(*words, "--json")
        assert (status, json.loads(err)["code"]) == (1, "managed_by_cluster")
    assert not applied.graph("other").exists()
    # Nothing else in the folder of a cluster is a graph of it.
    assert omnigraph("init", str(applied.folder / "private.omni"), "--schema", schema)[0] == 0


def test_stored_queries_of_a_cluster_are_listed_and_checked(omnigraph: Run, applied: Deployment) -> None:
    text = 'query named($name: String, $age: I32?) @description("By name") {\n'
    text += "  match { $p: Person { name: $name } } return { $p.age }\n}\n"
    applied.write("queries/named.gq", text)
    assert applied.apply("ann")["converged"]
    at = ("--cluster", str(applied.folder))
    status, out, err = omnigraph("queries", "list", *at)
    assert (status, out, err) == (
        0,
        "knowledge.named($name: String, $age: I32?)  read\nknowledge.people()  read\n",
        "",
    )
    listed = json.loads(omnigraph("queries", "list", *at, "--graph", "knowledge", "--json")[1])["queries"]
    assert listed[0] == {
        "graph": "knowledge",
        "name": "named",
        "mcp_expose": True,
        "tool_name": "named",
        "mutation": False,
        "description": "By name",
        "params": [
            {"name": "name", "type": "String", "nullable": False},
            {"name": "age", "type": "I32", "nullable": True},
        ],
    }
    status, out, _ = omnigraph("queries", "validate", *at, "--json")
    assert (status, json.loads(out)["breakages"]) == (0, [])
    with graphs.open(applied.graph()) as graph:
        graph.apply_schema(NARROWER)
    status, out, _ = omnigraph("queries", "validate", *at, "--json")
    assert status == 1
    assert [(one["graph"], one["query"]) for one in json.loads(out)["breakages"]] == [("knowledge", "named")]
    assert "stored queries broken: 2 checked, 1 broken" in omnigraph("queries", "validate", *at)[1]
    status, _, err = omnigraph("queries", "list", *at, "--graph", "nothing", "--json")
    assert (status, json.loads(err)["code"]) == (1, "graph_not_applied")


def test_policies_of_a_cluster_are_chosen_by_graph_or_name(omnigraph: Run, applied: Deployment) -> None:
    at = ("--cluster", str(applied.folder))
    assert omnigraph("policy", "validate", *at)[1] == "policy valid: bundle 'server' [1 actors]\n"
    applied.configure(CONFIG + "  editors: {file: editors.yaml, applies_to: [knowledge]}\n")
    applied.write("editors.yaml", GRAPH_POLICY)
    assert applied.apply("ann")["converged"]
    status, _, err = omnigraph("policy", "validate", *at)
    assert status == 1
    assert "has several policies: editors, server" in err
    shown = json.loads(omnigraph("policy", "validate", *at, "--graph", "knowledge", "--json")[1])
    assert (shown["bundle"], shown["kind"]) == ("editors", "graph")
    shown = json.loads(omnigraph("policy", "validate", *at, "--bundle", "server", "--json")[1])
    assert (shown["bundle"], shown["kind"]) == ("server", "server")
    # A graph without a policy of its own falls under that of the server.
    shown = json.loads(omnigraph("policy", "validate", *at, "--graph", "other", "--json")[1])
    assert shown["bundle"] == "server"
    asked = ("policy", "explain", *at, "--graph", "knowledge", "--action", "schema-apply", "--actor")
    assert "decision: allow" in omnigraph(*asked, "ann")[1]
    assert "decision: deny" in omnigraph(*asked, "bob")[1]
    for words, message in (
        (("--bundle", "none"), "has no such policy"),
        (("--file", "x.yaml"), "mutually exclusive"),
    ):
        status, _, err = omnigraph("policy", "validate", *at, *words)
        assert (status, message in err) == (1, True)
    assert "no cluster addressed" in omnigraph("policy", "validate")[2]


def test_vectors_are_made_by_the_provider_of_the_cluster(omnigraph: Run, applied: Deployment) -> None:
    applied.write("knowledge.pg", SCHEMA.replace("age: I32?", 'age: I32?  vector: Vector(4)? @embed("name")'))
    assert applied.apply("ann")["converged"]
    with graphs.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Ada" } }')
    status, out, err = omnigraph("embed", "--cluster", str(applied.folder), "--json")
    assert status == 0, err
    assert json.loads(out)["model"] == "mock"


COOKBOOK = {
    "cluster.yaml": """\
version: 1
metadata: {name: brain}
state: {backend: cluster, lock: true}
graphs:
  spike: {schema: schema.pg, queries: queries/}
policies:
  server: {file: policies/server.yaml, applies_to: [cluster]}
""",
    "schema.pg": "node Signal { slug: String @key  title: String  seen: Date? }\n",
    "queries/signals.gq": "query signals() { match { $s: Signal } return { $s.title as title } }\n",
    "policies/server.yaml": SERVER_POLICY,
    "seed.jsonl": '{"type": "Signal", "data": {"slug": "a", "title": "First"}}\n',
}


def test_directory_of_the_published_form_goes_from_files_to_a_server(
    omnigraph: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Deployment(tmp_path / "cookbook")
    for name, text in COOKBOOK.items():
        made.write(name, text)
    monkeypatch.chdir(made.folder)
    for words in (
        "cluster validate --config .",
        "cluster import --config .",
        "cluster plan --config .",
        "cluster apply --config . --as ann",
        "load --data seed.jsonl --mode overwrite graphs/spike.omni",
        "lint --schema schema.pg --query queries/signals.gq",
    ):
        status, _, err = omnigraph(*words.split())
        assert status == 0, (words, err)
    tokens = Tokens("env-or-file", (("ann", b"x" * 32),))
    booted = boot(ClusterSource(".").load(), tokens, ServeOptions(None, Bind("127.0.0.1", 0)))
    served = booted.graphs["spike"]
    assert set(served.queries) == {"signals"}
    assert served.graph.query(served.queries["signals"].text).to_arrow().to_pylist() == [{"title": "First"}]
    booted.close()
