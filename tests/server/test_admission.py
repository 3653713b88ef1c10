"""How much one actor may have under way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.engine.graph.root import Root
from omnigraph.errors import TooManyRequests
from omnigraph.server.admission import Admission
from omnigraph.server.board import Board
from omnigraph.server.settings import Limits
from omnigraph.storage.location import Location
from tests.server.route_cases import insert
from tests.server.running import start_server

SENT, ADMITTED = 32, 16


def test_of_parallel_writes_of_one_actor_as_many_are_admitted_as_the_limit_says(
    copied: Callable[[], Path], tmp_path: Path
) -> None:
    place = copied()
    refused = threading.Semaphore(0)

    def send(client: httpx.Client, number: int) -> httpx.Response:
        answer = client.post("/mutate", json=insert(f"parallel {number}"))
        if answer.status_code == 429:
            refused.release()
        return answer

    locks = Root.at(Location.parse(place)).locks
    with (
        start_server(place, tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
        ThreadPoolExecutor(SENT) as pool,
    ):
        # Admitted writes wait for the lock of main until all others were refused.
        with locks.hold(["main"]):
            sent = [pool.submit(send, client, number) for number in range(SENT)]
            for _ in range(SENT - ADMITTED):
                assert refused.acquire(timeout=60)
        answers = [one.result() for one in sent]
        # Nothing of a refused request is left behind.
        assert client.post("/mutate", json=insert("after")).status_code == 200
    assert Counter(answer.status_code for answer in answers) == {200: ADMITTED, 429: SENT - ADMITTED}
    for answer in answers:
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "60"
            assert answer.json()["error"] == "actor in-flight count cap 16 exceeded"
            assert (answer.json()["code"], answer.json()["retryable"]) == ("too_many_requests", True)
    with og.open(place) as graph:
        rows = graph.query("query q() { match { $p: Person } return { $p.name } }").rows()
    assert sum(str(row["p.name"]).startswith("parallel") for row in rows) == ADMITTED


def test_bytes_are_counted_and_a_refusal_leaves_no_residue() -> None:
    admission = Admission(Limits(inflight=3, bytes=100), Board.create(), ("ada", "bob"))
    with admission.admit("ada", 60):
        with pytest.raises(TooManyRequests, match="would use 110 bytes against cap 100"):
            admission.admit("ada", 50).__enter__()
        with admission.admit("ada", 40), admission.admit("bob", 100):
            assert admission.in_flight() == 3
    assert admission.in_flight() == 0
    with admission.admit("ada", 100):
        pass


def test_requests_without_an_actor_share_a_bucket() -> None:
    admission = Admission(Limits(inflight=1), Board.create())
    with admission.admit(None, 1), pytest.raises(TooManyRequests, match="count cap 1 exceeded"):
        admission.admit(None, 1).__enter__()
