"""Several processes that serve one graph: what they share, and what happens when one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.engine.graph.root import Root
from omnigraph.server.admission import Admission, AdmissionTable
from omnigraph.server.board import Board
from omnigraph.server.metrics import Metrics
from omnigraph.server.numbers import NumberFile, read_numbers
from omnigraph.server.settings import Limits
from omnigraph.storage.location import Location
from tests.server.route_cases import insert
from tests.server.running import (
    RunningServer,
    policy_options,
    run_server,
    start_server,
    stored_query_options,
    with_tokens,
)
from tests.server.test_server_crash import pair

CLIENTS = 6
ACKNOWLEDGED = 12
LIMIT = 2
ACTOR = "root"


@pytest.fixture(scope="module")
def store(copied: Callable[[], Path]) -> Path:
    """The graph that the workers serve."""
    return copied()


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Policies of these tests alone, since one changes them."""
    return policy_options(tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="module")
def server(
    store: Path, policies: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server of two workers that admits two writes of an actor at a time."""
    env = with_tokens({"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": str(LIMIT)})
    log = tmp_path_factory.mktemp("workers") / "server.log"
    with start_server(store, log, *policies, "--workers", "2", env=env) as running:
        yield running


def workers_of(server: RunningServer) -> list[int]:
    """Return the pids of the workers that run, by index."""
    started = {line["worker"]: line["pid"] for line in server.log_lines() if "pid" in line}
    return [int(str(started[index])) for index in sorted(started, key=str)]


def send(server: RunningServer, body: Mapping[str, object]) -> httpx.Response:
    """Write on a connection of its own."""
    with server.client(ACTOR) as client:
        return client.post("/mutate", json=body)


def metric(server: RunningServer, name: str) -> float:
    with server.client(ACTOR) as client:
        found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0


def wait_for(server: RunningServer, name: str, value: float) -> None:
    while metric(server, name) != value:
        pass


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a worker from taking connections, so that all go to the other one."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_session_of_the_page_counts_in_every_worker_until_it_ends(server: RunningServer) -> None:
    one, other = workers_of(server)
    page = {"x-omnigraph-page": "1"}
    with stopped(other), httpx.Client(base_url=server.url) as client:
        answer = client.post("/ui/session", json={"token": f"token-{ACTOR}"}, headers=page)
        assert (answer.status_code, answer.json()) == (200, {"actor_id": ACTOR})
        cookies = dict(client.cookies)
    with stopped(one), httpx.Client(base_url=server.url, cookies=cookies) as client:
        assert client.get("/branches", headers=page).status_code == 200
        # Another site cannot add the header of the page.
        assert client.get("/branches").status_code == 401
        assert client.delete("/ui/session", headers=page).status_code == 200
    with stopped(other), httpx.Client(base_url=server.url, cookies=cookies) as client:
        assert client.get("/branches", headers=page).status_code == 401


def test_limits_are_shared_and_those_of_a_killed_worker_are_free_again(
    server: RunningServer, store: Path, policies: list[str]
) -> None:
    one, other = workers_of(server)
    # What replaces a worker serves what the others serve, whatever the files say by then.
    Path(policies[1]).write_text("version: 1\nrules: []\n")
    with (
        Root.at(Location.parse(store)).locks.hold(["main"]),
        ThreadPoolExecutor(LIMIT) as pool,
    ):
        with stopped(one):
            held = [pool.submit(send, server, insert(f"held {number}")) for number in range(LIMIT)]
            wait_for(server, "omnigraph_admitted", LIMIT)
        with stopped(other):
            refused = send(server, insert("refused"))
            assert metric(server, "omnigraph_admitted") == LIMIT
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        os.kill(other, signal.SIGKILL)
        for answer in held:
            with pytest.raises(httpx.TransportError):
                answer.result()
        wait_for(server, "omnigraph_admitted", 0)
        wait_for(server, "omnigraph_workers", 2)
    with stopped(one):
        assert send(server, insert("after")).status_code == 200
    assert metric(server, "omnigraph_worker_restarts_total") == 1
    assert len(set(workers_of(server)) - {one, other}) == 1


def test_worker_killed_during_writes_is_replaced_and_nothing_acknowledged_is_lost(
    server: RunningServer, store: Path
) -> None:
    acknowledged: list[str] = []
    enough, done = threading.Semaphore(0), threading.Event()

    def write(writer: int) -> int:
        """Write until the end; a connection that is cut is opened again. Return how many were cut."""
        cut = number = 0
        while not done.is_set():
            number += 1
            try:
                answer = send(server, pair(f"w{writer}-{number}"))
            except httpx.TransportError:
                cut += 1
                continue
            if answer.status_code == 200:
                acknowledged.append(f"w{writer}-{number}")
                enough.release()
        return cut

    restarts = metric(server, "omnigraph_worker_restarts_total")
    counted = metric(server, 'omnigraph_commits_total{operation="mutate"}')
    with ThreadPoolExecutor(CLIENTS) as pool:
        writers = [pool.submit(write, number) for number in range(CLIENTS)]
        for _ in range(ACKNOWLEDGED):
            assert enough.acquire(timeout=120)
        os.kill(workers_of(server)[0], signal.SIGKILL)
        wait_for(server, "omnigraph_worker_restarts_total", restarts + 1)
        wait_for(server, "omnigraph_workers", 2)
        for _ in range(ACKNOWLEDGED):
            assert enough.acquire(timeout=120)
        done.set()
        cut = sum(writer.result() for writer in writers)
    wait_for(server, "omnigraph_admitted", 0)
    with og.open(store) as graph:
        query = "query q() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"
        edges = {(row["a"], row["b"]) for row in graph.query(query).rows()}
        people = "query q() { match { $p: Person } return { $p.name as n } }"
        names = {row["n"] for row in graph.query(people).rows()}
    written = {str(a).removesuffix("-a") for a, b in edges if str(a).startswith("w")}
    assert set(acknowledged) <= written
    assert len(written - set(acknowledged)) <= cut
    assert {name for name in names if str(name).startswith("w")} == {
        f"{name}-{end}" for name in written for end in "ab"
    }
    # The sums still have the counters of the killed worker, up to what it had under way.
    commits = metric(server, 'omnigraph_commits_total{operation="mutate"}') - counted
    assert len(acknowledged) - LIMIT <= commits <= len(written)


def test_end_of_all_workers_is_graceful(server: RunningServer, store: Path) -> None:
    pids = workers_of(server)
    with ThreadPoolExecutor(1) as pool:
        with Root.at(Location.parse(store)).locks.hold(["main"]):
            last = pool.submit(send, server, insert("last"))
            wait_for(server, "omnigraph_admitted", 1)
            server.process.send_signal(signal.SIGTERM)
        assert last.result().status_code == 200
    assert server.process.wait() == 0
    assert server.process.stdout is not None
    assert server.process.stdout.read() == "", "one address for all workers, announced once"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_keeps_a_worker_from_starting_is_reported_and_ends_the_server(tmp_path: Path) -> None:
    status, output, errors = run_server(tmp_path / "missing.omni", "--unauthenticated", "--workers", "2")
    assert (status, output) == (1, "")
    assert "missing.omni" in errors


def test_workers_end_with_a_supervisor_that_is_killed(copied: Callable[[], Path], tmp_path: Path) -> None:
    with start_server(copied(), tmp_path / "log", "--unauthenticated", "--workers", "2") as server:
        pids = workers_of(server)
        server.process.kill()
        server.process.wait()
    for pid in pids:
        while Path(f"/proc/{pid}").exists():
            pass


def test_paths_of_any_bytes_reach_the_workers(example_graph: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    options = ["--unauthenticated", "--workers", "2", *stored_query_options(folder)]
    with start_server(example_graph, tmp_path / "log", *options) as server, server.client() as client:
        assert client.post("/queries/older_than", json={"params": {"age": 35}}).json()["row_count"] == 1


def test_cleared_column_frees_what_its_worker_had(tmp_path: Path) -> None:
    ours, theirs = Board(tmp_path, 0, 2), Board(tmp_path, 1, 2)
    first, second = (Admission(Limits(inflight=1), board, ("ada",)) for board in (ours, theirs))
    under_way = second.admit("ada", 10)
    under_way.__enter__()
    with pytest.raises(og.errors.TooManyRequests):
        first.admit("ada", 10).__enter__()
    with first.admit(None, 10):
        AdmissionTable(theirs, rows=2).clear()
        with first.admit("ada", 10):
            pass


def test_numbers_outlive_their_writer_and_grow_beyond_the_first_pages(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = NumberFile(path)
    for number in range(3000):
        numbers.add(number, "count", "label", f'value "{number}" é')
    numbers.close()
    again = NumberFile(path)
    again.add(1, "count", "label", 'value "2999" é')
    found = read_numbers(path)
    assert len(found) == 3000
    assert found["count", "label", 'value "2999" é'] == 3000
    assert read_numbers(tmp_path / "none") == {}


def test_metrics_are_the_sums_over_all_workers(tmp_path: Path) -> None:
    boards = [Board(tmp_path, index, 2) for index in range(2)]
    one, other = (Metrics(board) for board in boards)
    for metrics, times in ((one, 1), (other, 2)):
        metrics.watch("here", "H.", lambda times=times: {"": times})  # type: ignore[misc]
        for _ in range(times):
            metrics.requests.add(operation="query", status="200")
            metrics.seconds.observe(0.002, operation="query")
        metrics.share()
    for metrics in (one, other):
        lines = metrics.render().splitlines()
        assert 'omnigraph_http_requests_total{operation="query",status="200"} 3' in lines
        assert 'omnigraph_http_request_seconds_count{operation="query"} 3' in lines
        assert "here 3" in lines
    boards[1].gauges.unlink()
    assert "here 1" in one.render().splitlines()
