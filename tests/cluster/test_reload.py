"""`--reload`: newer revisions are served and no request is dropped; a broken one changes nothing."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from omnigraph import graph as graphs
from omnigraph.cli.main import main
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import Booted, boot
from omnigraph.server.cluster_source import ClusterSource
from omnigraph.server.reload import LedgerWatch, Reload
from omnigraph.server.revisions import Revisions
from omnigraph.server.settings import DEFAULT_RELOAD_SECONDS, Bind, ServeOptions, reload_seconds
from omnigraph.server.sources import FixedSource, ServingPlan, load_plan
from tests.cluster.deployment import MAILS, QUERY, WIDER, Deployment, leave_sidecar, new_deployment
from tests.server.running import RunningServer, start_server

OPEN = """\
version: 1
graphs:
  knowledge: {schema: knowledge.pg, queries: queries/}
"""
SECOND = "  second: {schema: knowledge.pg}\n"
OPTIONS = ServeOptions(None, Bind("127.0.0.1", 0), unauthenticated=True)


class Server:
    """What a server with `--reload` has, without its socket."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        source = ClusterSource.pinned(str(deployment.folder))
        self.folder = folder
        self.outcomes: list[str] = []
        self.revisions = Revisions(self.open(source.load()))
        how = Reload(source, self.open, folder, 0.0, self.outcomes.append)
        self.watch = LedgerWatch(how, self.revisions)

    @staticmethod
    def open(plan: ServingPlan) -> Booted:
        return boot(plan, Tokens(), OPTIONS)

    @property
    def queries(self) -> set[str]:
        return set(self.revisions.current.graphs["knowledge"].queries)

    @property
    def graphs(self) -> set[str]:
        return set(self.revisions.current.graphs)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A cluster without policies that no test changes."""
    made = new_deployment(tmp_path_factory.mktemp("reload") / "template")
    made.configure(OPEN)
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    return made


@pytest.fixture
def deployment(unguarded: Deployment, tmp_path: Path) -> Deployment:
    return unguarded.copy_to(tmp_path / "cluster")


@pytest.fixture
def server(deployment: Deployment, tmp_path: Path) -> Iterator[Server]:
    made = Server(deployment, tmp_path)
    yield made
    made.revisions.close()


def widen(deployment: Deployment) -> None:
    """Apply a wider schema and a query that needs it."""
    deployment.write("knowledge.pg", WIDER)
    deployment.write("queries/mails.gq", MAILS)
    assert deployment.apply("ann")["converged"]


def test_newer_revision_is_served(server: Server, deployment: Deployment) -> None:
    server.watch.look()
    before = server.revisions.current
    assert (server.queries, server.outcomes) == ({"people"}, [])
    widen(deployment)
    server.watch.look()
    assert (server.queries, server.outcomes) == ({"people", "mails"}, ["served"])
    assert before.graphs["knowledge"].graph.closed, "no request used it any more"


def test_request_keeps_the_revision_it_began_with(server: Server, deployment: Deployment) -> None:
    with server.revisions.use() as booted:
        widen(deployment)
        server.watch.look()
        with server.revisions.use() as newer:
            assert newer is not booted
        assert len(booted.graphs["knowledge"].graph.query(QUERY)) == 0
    assert [one.graphs["knowledge"].graph.closed for one in (booted, newer)] == [True, False]


def test_ledger_that_says_the_same_changes_nothing(server: Server, deployment: Deployment) -> None:
    before = server.revisions.current
    assert deployment.refresh()["ok"]
    server.watch.look()
    assert server.revisions.current is before
    assert server.outcomes == []


def test_revision_that_would_not_boot_is_logged_and_the_one_before_stays(
    server: Server, deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    before = server.revisions.current
    widen(deployment)
    [copy] = (deployment.control / "resources" / "query" / "knowledge" / "mails").iterdir()
    text = copy.read_text(encoding="utf-8")
    copy.write_text(text + "\n", encoding="utf-8")
    for _ in range(3):
        server.watch.look()
    assert server.revisions.current is before
    assert not before.graphs["knowledge"].graph.closed
    assert server.outcomes == ["refused"], "the same reason is counted and logged once"
    assert "the one before stays: " in caplog.text
    assert "catalog_payload_digest_mismatch" in caplog.text
    copy.write_text(text, encoding="utf-8")
    server.watch.look()
    assert server.queries == {"people", "mails"}, "it is tried again although the ledger is the same"


def test_graph_that_is_served_is_never_lost_to_a_reload(server: Server, deployment: Deployment) -> None:
    before = server.revisions.current
    deployment.configure(OPEN + SECOND)
    assert deployment.apply("ann")["converged"]
    # As while an apply has written the ledger, and not yet removed its recovery file.
    leave_sidecar(deployment, graph_id="knowledge")
    server.watch.look()
    assert server.revisions.current is before
    shutil.rmtree(deployment.control / "recoveries")
    server.watch.look()
    assert server.graphs == {"knowledge", "second"}


def test_graph_that_was_left_out_is_served_once_it_heals(deployment: Deployment, tmp_path: Path) -> None:
    deployment.configure(OPEN + SECOND)
    assert deployment.apply("ann")["converged"]
    leave_sidecar(deployment, graph_id="second")
    server = Server(deployment, tmp_path)
    assert server.graphs == {"knowledge"}
    server.watch.look()
    assert (server.graphs, server.outcomes) == ({"knowledge"}, [])
    shutil.rmtree(deployment.control / "recoveries")
    server.watch.look()
    assert server.graphs == {"knowledge", "second"}
    server.revisions.close()


def test_deleted_graph_is_no_longer_served(server: Server, deployment: Deployment) -> None:
    deployment.configure(OPEN + SECOND)
    assert deployment.apply("ann")["converged"]
    server.watch.look()
    deployment.configure(OPEN)
    assert deployment.approve("graph.second")["ok"]
    assert deployment.apply("ann")["converged"]
    server.watch.look()
    assert server.graphs == {"knowledge"}


def test_graph_that_was_deleted_and_made_again_is_opened_again(
    server: Server, deployment: Deployment
) -> None:
    with graphs.open(deployment.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Ada" } }')
    deployment.configure("version: 1\n" + "graphs:\n" + SECOND)
    assert deployment.approve("graph.knowledge")["ok"]
    assert deployment.apply("ann")["converged"]
    deployment.configure(OPEN + SECOND)
    assert deployment.apply("ann")["converged"]
    server.watch.look()
    assert len(server.revisions.current.graphs["knowledge"].graph.query(QUERY)) == 0


def test_files_that_named_the_storage_may_go(server: Server, deployment: Deployment) -> None:
    widen(deployment)
    (deployment.folder / "cluster.yaml").write_text("being edited: [", encoding="utf-8")
    server.watch.look()
    assert server.queries == {"people", "mails"}


def test_worker_that_replaces_another_serves_what_the_others_serve(
    server: Server, deployment: Deployment
) -> None:
    started = FixedSource("cluster", server.revisions.current.plan)
    assert load_plan(server.folder, started) is started
    widen(deployment)
    server.watch.look()
    assert load_plan(server.folder, started).plan == server.revisions.current.plan != started.plan


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5", 0.5), ("0", None), ("soon", None), ("nan", None), ("", None)]
)
def test_pause_between_two_looks(text: str, seconds: float | None) -> None:
    expected = DEFAULT_RELOAD_SECONDS if seconds is None else seconds
    assert reload_seconds({"OMNIGRAPH_RELOAD_SECONDS": text}) == expected


def test_single_graph_has_nothing_to_reload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", "x", "--reload"]) == 1
    assert "--reload goes with --cluster" in capsys.readouterr().err


def metric(client: httpx.Client, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_no_request_is_dropped_while_workers_reload(deployment: Deployment, tmp_path: Path) -> None:
    options = ("--unauthenticated", "--reload", "--workers", "2")
    env = {"OMNIGRAPH_RELOAD_SECONDS": "0.05"}
    with start_server(deployment.folder, tmp_path / "log", *options, env=env, flag="--cluster") as running:
        statuses: set[int] = set()
        stopping = threading.Event()

        def ask(server: RunningServer) -> None:
            with server.client() as client:
                while not stopping.is_set():
                    statuses.add(client.post("/graphs/knowledge/queries/people", json={}).status_code)

        asking = threading.Thread(target=ask, args=(running,))
        asking.start()
        try:
            widen(deployment)
            with running.client() as client:
                while metric(client, 'omnigraph_reloads_total{outcome="served"}') < 2:
                    pass
                assert client.post("/graphs/knowledge/queries/mails", json={}).status_code == 200
        finally:
            stopping.set()
            asking.join()
        assert statuses == {200}


def test_failure_of_this_machine_is_logged_and_does_not_end_the_watch(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(deployment, tmp_path / "full disk")
    before = server.revisions.current
    widen(deployment)
    server.watch.look()
    assert (server.revisions.current is before, server.outcomes) == (True, ["refused"])
    assert "FileNotFoundError" in caplog.text
    server.folder.mkdir()
    server.watch.look()
    assert (server.queries, server.outcomes) == ({"people", "mails"}, ["refused", "served"])
    server.revisions.close()
