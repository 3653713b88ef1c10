"""A server that is killed during writes loses nothing it acknowledged, and leaves no half of a write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.server.running import RunningServer, start_server

CLIENTS = 8
ACKNOWLEDGED = 12

pytestmark = pytest.mark.crash


def pair(name: str) -> dict[str, object]:
    """Return a mutation that writes two nodes and the edge between them, in one commit."""
    query = """query add($a: String, $b: String) {
        insert Person { name: $a }
        insert Person { name: $b }
        insert Knows { from: $a, to: $b }
    }"""
    return {"query": query, "params": {"a": f"{name}-a", "b": f"{name}-b"}}


def write_until_killed(server: RunningServer, client_id: int, done: Callable[[str], None]) -> None:
    with server.client() as client:
        for number in range(10_000):
            name = f"w{client_id}-{number}"
            try:
                answer = client.post("/mutate", json=pair(name))
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                done(name)


def test_killed_server_keeps_what_it_acknowledged(copied: Callable[[], Path], tmp_path: Path) -> None:
    place = copied()
    acknowledged: list[str] = []
    enough = threading.Semaphore(0)

    def done(name: str) -> None:
        acknowledged.append(name)
        enough.release()

    with (
        start_server(place, tmp_path / "first", "--unauthenticated") as server,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        writers = [pool.submit(write_until_killed, server, number, done) for number in range(CLIENTS)]
        for _ in range(ACKNOWLEDGED):
            assert enough.acquire(timeout=120)
        server.process.kill()
        assert server.process.wait() == -signal.SIGKILL
        for writer in writers:
            writer.result()
    with start_server(place, tmp_path / "second", "--unauthenticated") as server, server.client() as client:
        assert client.post("/mutate", json=pair("after")).status_code == 200
        query = "query q() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"
        edges = client.post("/query", json={"query": query}).json()["rows"]
        nodes = client.post(
            "/query", json={"query": "query q() { match { $p: Person } return { $p.name as n } }"}
        )
    written = {row["a"].removesuffix("-a") for row in edges if row["b"] == row["a"].removesuffix("a") + "b"}
    assert {*acknowledged, "after"} <= written
    assert len(written - {*acknowledged, "after"}) <= CLIENTS
    names = {row["n"] for row in nodes.json()["rows"] if row["n"].startswith("w")}
    assert names == {f"{name}-{end}" for name in written - {"after"} for end in "ab"}
