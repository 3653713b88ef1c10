"""Servers of a cluster: what they answer, which graphs they leave out, and when they refuse to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import BadRequest, ClusterUnreadable, NoHealthyGraphs
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import boot
from omnigraph.server.cluster_source import ClusterSource
from omnigraph.server.settings import Bind, ServeOptions
from omnigraph.storage.location import Location
from tests.cluster.deployment import Deployment, leave_sidecar, new_deployment
from tests.server.running import RunningServer, run_server, start_server, with_tokens

NONE = Tokens()
SCHEMA = """\
node Person {
  name: String @key
  about: String?
  vector: Vector(8)? @embed("about")
}
"""
QUERIES = """\
query people() { match { $p: Person } return { $p.name as name } order { name } }
query similar($text: String) {
  match { $p: Person }
  return { $p.name as name, nearest($p.vector, $text) as distance }
  order { nearest($p.vector, $text) }
  limit 1
}
query add($name: String) { insert Person { name: $name } }
"""
CONFIG = """\
version: 1
providers:
  embedding:
    local: {kind: mock}
    paid: {kind: openai, api_key: "${PAID_KEY}"}
graphs:
  team: {schema: team.pg, queries: team.gq, embedding_provider: local}
  guests: {schema: team.pg, queries: {people: {file: team.gq}}}
policies:
  server: {file: server.yaml, applies_to: [cluster]}
  editors: {file: editors.yaml, applies_to: [team]}
"""
OPEN = CONFIG.partition("policies:")[0]
PAID = OPEN.replace("{people: {file: team.gq}}}", "{people: {file: team.gq}}, embedding_provider: paid}")
SERVER_POLICY = """\
version: 1
kind: server
groups: {admins: [root]}
rules: [{id: list, allow: {actors: {group: admins}, actions: [graph_list]}}]
"""
EDITORS = """\
version: 1
groups: {admins: [root]}
rules: [{id: all, allow: {actors: {group: admins}, actions: [read, change, invoke_query, schema_apply]}}]
"""


def deploy(folder: Path, config: str) -> Deployment:
    """Apply a configuration with two graphs, one of them with rows."""
    made = Deployment(folder)
    made.configure(config)
    for name, text in {
        "team.pg": SCHEMA,
        "team.gq": QUERIES,
        "server.yaml": SERVER_POLICY,
        "editors.yaml": EDITORS,
    }.items():
        made.write(name, text)
    assert made.import_()["ok"]
    assert made.apply("root")["converged"]
    with og.open(made.graph("team"), embedding=og.EmbedSettings.choose("mock")) as graph:
        rows = [{"name": name, "about": f"all about {name}"} for name in ("Ada", "Bob")]
        graph.load(rows, type="Person", mode="append")
        graph.embed()
    return made


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A cluster with policies that no test changes."""
    return deploy(tmp_path_factory.mktemp("cluster"), CONFIG)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A cluster without policies that no test changes."""
    return deploy(tmp_path_factory.mktemp("cluster"), OPEN)


@pytest.fixture
def copied(unguarded: Deployment, tmp_path: Path) -> Deployment:
    """A cluster without policies that a test may damage."""
    return unguarded.copy_to(tmp_path / "copied")


@pytest.fixture(scope="module")
def server(deployed: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the cluster with policies."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    with start_server(deployed.folder, log, env=with_tokens(), flag="--cluster") as running:
        yield running


def opened(deployment: Deployment, *, tokens: Tokens = NONE, require_all_graphs: bool = False) -> set[str]:
    """Return the graphs that a server would serve."""
    options = ServeOptions(
        None, Bind("127.0.0.1", 0), unauthenticated=True, require_all_graphs=require_all_graphs
    )
    booted = boot(ClusterSource(str(deployment.folder)).load(), tokens, options)
    booted.close()
    return set(booted.graphs)


def test_graphs_are_listed_by_the_server_policy(server: RunningServer, deployed: Deployment) -> None:
    with server.client("root") as root, server.client("reader") as reader:
        assert root.get("/graphs").json() == {
            "graphs": [{"graph_id": name, "uri": str(deployed.graph(name))} for name in ("guests", "team")]
        }
        assert reader.get("/graphs").status_code == 403
    with server.client() as anonymous:
        assert anonymous.get("/healthz").json()["status"] == "ok"
        assert anonymous.get("/graphs").status_code == 401


def test_stored_queries_are_those_that_were_applied(server: RunningServer) -> None:
    with server.client("root") as client:
        listed = client.get("/graphs/team/queries").json()["queries"]
        assert [one["name"] for one in listed] == ["add", "people", "similar"]
        answer = client.post("/graphs/team/queries/people", json={})
        assert [row["name"] for row in answer.json()["rows"]] == ["Ada", "Bob"]
        chosen = client.get("/graphs/guests/queries").json()["queries"]
        assert [one["name"] for one in chosen] == ["people"], "other queries of the same file are not applied"


def test_texts_are_embedded_by_the_provider_of_the_graph(server: RunningServer) -> None:
    with server.client("root") as client:
        body = {"params": {"text": "all about Bob"}}
        answer = client.post("/graphs/team/queries/similar", json=body)
        assert [row["name"] for row in answer.json()["rows"]] == ["Bob"]


def test_graph_without_a_policy_of_its_own_is_only_read(server: RunningServer) -> None:
    insert = {"query": 'query q() { insert Person { name: "Cy" } }'}
    with server.client("root") as client:
        assert client.get("/graphs/guests/snapshot").status_code == 200
        assert client.post("/graphs/guests/mutate", json=insert).status_code == 403


def test_schemas_belong_to_the_cluster(server: RunningServer) -> None:
    with server.client("root") as client:
        answer = client.post("/graphs/team/schema/apply", json={"schema_source": SCHEMA})
        assert answer.status_code == 409
        assert "managed by a cluster" in answer.json()["error"]
        assert client.get("/snapshot").status_code == 404, "only a single store has routes at the root"


def test_log_says_what_is_served(server: RunningServer) -> None:
    [starting] = [line for line in server.log_lines() if line["message"] == "starting"]
    assert (starting["source"], starting["graphs"], starting["mode"]) == ("cluster", 2, "policy")


def test_damaged_graph_is_left_out_unless_all_are_required(copied: Deployment, tmp_path: Path) -> None:
    shutil.rmtree(copied.graph("guests") / "__manifest")
    options = ("--unauthenticated",)
    with (
        start_server(copied.folder, tmp_path / "log", *options, flag="--cluster") as running,
        running.client() as client,
    ):
        assert client.get("/graphs/team/snapshot").status_code == 200
        assert client.get("/graphs/guests/snapshot").status_code == 404
        assert client.get("/graphs").status_code == 403, "an open server lists no graphs"
    assert "graph 'guests' is not served" in (tmp_path / "log").read_text()
    required = {"OMNIGRAPH_REQUIRE_ALL_GRAPHS": "1"}
    status, output, errors = run_server(copied.folder, *options, env=required, flag="--cluster")
    assert (status, output) == (1, "")
    assert "guests" in errors
    shutil.rmtree(copied.graph("team"))
    with pytest.raises(NoHealthyGraphs, match="guests"):
        opened(copied)


def test_graph_whose_queries_no_longer_fit_is_left_out(copied: Deployment) -> None:
    with og.open(copied.graph("guests")) as graph:
        graph.apply_schema(SCHEMA.replace("name: String @key", 'title: String @key @rename_from("name")'))
    assert opened(copied) == {"team"}
    with pytest.raises(BadRequest, match="does not fit the schema"):
        opened(copied, require_all_graphs=True)


def test_graph_whose_secret_is_unset_is_left_out(
    copied: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copied.configure(PAID)
    assert copied.apply("root")["converged"]
    monkeypatch.setenv("PAID_KEY", " ")
    assert opened(copied) == {"team"}
    assert "PAID_KEY, which is not set" in caplog.text
    monkeypatch.setenv("PAID_KEY", "k")
    assert opened(copied) == {"team", "guests"}


def test_graph_that_waits_for_recovery_is_left_out(
    copied: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    leave_sidecar(copied, graph_id="guests")
    assert opened(copied) == {"team"}
    assert "cluster_recovery_pending" in caplog.text
    with pytest.raises(BadRequest, match="cluster_recovery_pending"):
        opened(copied, require_all_graphs=True)


def test_graph_with_an_id_that_has_no_route_is_left_out(
    copied: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    copied.configure(OPEN.replace("  guests:", "  odd_id: {schema: team.pg}\n  guests:"))
    assert copied.apply("root")["converged"]
    assert opened(copied) == {"team", "guests"}
    assert "'odd_id' cannot be the id of a graph" in caplog.text


def test_policy_needs_tokens_also_while_its_graph_is_left_out(deployed: Deployment, tmp_path: Path) -> None:
    guarded = deployed.copy_to(tmp_path / "guarded")
    leave_sidecar(guarded, graph_id="team")
    with pytest.raises(BadRequest, match="a policy needs bearer tokens"):
        opened(guarded)
    assert opened(guarded, tokens=Tokens("env-or-file", (("root", b"x" * 32),))) == {"guests"}


def test_cluster_without_a_ledger_is_not_served(tmp_path: Path) -> None:
    fresh = new_deployment(tmp_path / "fresh")
    status, output, errors = run_server(fresh.folder, "--unauthenticated", flag="--cluster")
    assert (status, output) == (1, "")
    assert "cluster_state_missing" in errors
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClusterUnreadable, match="cluster_config_missing"):
        opened(Deployment(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--queries", "x.gq"), "its own policies"), (("--store", "x"), "mutually exclusive")],
)
def test_options_of_a_single_graph_do_not_go_with_a_cluster(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(["serve", "--cluster", "anywhere", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.s3
def test_cluster_in_a_bucket_is_served_by_its_uri(s3_root: Location, tmp_path: Path) -> None:
    made = new_deployment(tmp_path / "files")
    graphs = "graphs:\n  knowledge: {schema: knowledge.pg, queries: queries/}\n"
    made.configure(f"version: 1\nstorage: {s3_root.uri}\n{graphs}")
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    shutil.rmtree(made.folder)
    options = ("--unauthenticated", "--require-all-graphs")
    with (
        start_server(s3_root.uri, tmp_path / "log", *options, flag="--cluster") as running,
        running.client() as client,
    ):
        insert = {"query": 'query q() { insert Person { name: "Ada" } }'}
        assert client.post("/graphs/knowledge/mutate", json=insert).status_code == 200
        answer = client.post("/graphs/knowledge/queries/people", json={})
        assert [row["p.name"] for row in answer.json()["rows"]] == ["Ada"]
