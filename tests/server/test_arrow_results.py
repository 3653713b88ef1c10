"""Results as Arrow: streamed in batches, with what was read in the metadata of the schema."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.server.route import ARROW
from omnigraph.server.streams import PART_BYTES
from tests.server.running import RunningServer, start_server

ALL = "query q() { match { $p: Person } return { $p.name, $p.age, $p.born, $p.tags } order { $p.name } }"


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


def ask(client: httpx.Client, accept: str = ARROW, **body: Any) -> httpx.Response:
    return client.post("/query", json={"query": ALL, **body}, headers={"Accept": accept})


def read(answer: httpx.Response) -> pa.Table:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    return pa.ipc.open_stream(answer.content).read_all()


def test_arrow_has_the_rows_that_json_has(client: httpx.Client) -> None:
    table, rows = read(ask(client)), ask(client, "*/*").json()
    assert table.column("p.name").to_pylist() == [row["p.name"] for row in rows["rows"]]
    assert table.schema.metadata == {
        b"omnigraph.query_name": b"q",
        b"omnigraph.branch": b"main",
        b"omnigraph.graph_commit_id": rows["graph_commit_id"].encode(),
        b"omnigraph.types": json.dumps(
            ["String", "I32?", "Date?", "[String]?"], separators=(",", ":")
        ).encode(),
    }


def test_past_is_named_by_its_snapshot(client: httpx.Client) -> None:
    commit = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    metadata = read(ask(client, snapshot=commit)).schema.metadata
    assert metadata[b"omnigraph.snapshot"] == commit.encode()
    assert b"omnigraph.branch" not in metadata


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", f"{ARROW}, application/json", f"{ARROW};q=0.5", "application/*"]
)
def test_anything_wider_than_arrow_means_json(client: httpx.Client, accept: str) -> None:
    assert ask(client, accept).headers["content-type"] == "application/json"


def test_result_without_rows_has_its_columns(client: httpx.Client) -> None:
    nothing = 'query q() { match { $p: Person { name: "missing" } } return { $p.name } }'
    table = read(ask(client, query=nothing))
    assert (table.num_rows, table.column_names) == (0, ["p.name"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": "query q() {"}, 400),
        ({"query": 'query q() { insert Person { name: "x" } }'}, 400),
        ({"branch": "nowhere"}, 404),
        ({"max_rows": 1}, 413),
    ],
)
def test_failures_before_the_first_batch_are_json(
    client: httpx.Client, body: dict[str, Any], status: int
) -> None:
    answer = ask(client, **body)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("large")
    schema = "node Item { key: I64 @key text: String }"
    with og.init(folder / "g.omni", schema=schema) as graph:
        keys = pa.array(range(150_000), pa.int64())
        texts = pa.array([f"{key:0400}" for key in range(150_000)])
        graph.load(pa.table({"key": keys, "text": texts}), type="Item", mode="append")
    with start_server(folder / "g.omni", folder / "log", "--unauthenticated") as server:
        yield server


ITEMS = "query q() { match { $i: Item } return { $i.key, $i.text } }"


def test_large_result_comes_in_batches(large_server: RunningServer) -> None:
    with large_server.client() as client:
        answer = client.post("/query", json={"query": ITEMS}, headers={"Accept": ARROW})
        batches = list(pa.ipc.open_stream(answer.content))
    assert len(batches) > 4
    keys = pa.concat_arrays([batch.column(0) for batch in batches]).to_numpy()
    assert sorted(keys.tolist()) == list(range(150_000))


def test_large_result_as_json_has_its_length_and_all_rows(large_server: RunningServer) -> None:
    with large_server.client() as client:
        answer = client.post("/query", json={"query": ITEMS})
        table = pa.ipc.open_stream(
            client.post("/query", json={"query": ITEMS}, headers={"Accept": ARROW}).content
        ).read_all()
    assert int(answer.headers["content-length"]) == len(answer.content) > PART_BYTES
    found = answer.json()
    assert list(found) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert found["rows"] == table.to_pylist()


def memory_of(server: RunningServer) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_client_that_does_not_read_costs_no_memory_and_no_thread(large_server: RunningServer) -> None:
    body = json.dumps({"query": ITEMS}).encode()
    head = (
        f"POST /query HTTP/1.1\r\nHost: x\r\nAccept: {ARROW}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with large_server.client() as client:
        client.post("/query", json={"query": ITEMS}, headers={"Accept": ARROW})
        before = memory_of(large_server)
        stalled = [
            socket.create_connection((large_server.host, large_server.port), timeout=60) for _ in range(6)
        ]
        try:
            for connection in stalled:
                connection.sendall(head.encode() + body)
                assert connection.recv(12) == b"HTTP/1.1 200"
            # Each holds a batch and not its result, which has more than 60 MB; reads go on.
            count = "query q() { match { $i: Item } return { count($i) as items } }"
            assert client.post("/query", json={"query": count}).json()["rows"] == [{"items": 150_000}]
            assert memory_of(large_server) - before < 6 * 40 * 2**20
        finally:
            for connection in stalled:
                connection.close()
