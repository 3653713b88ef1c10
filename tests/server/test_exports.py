"""Exports: streams of NDJSON, one for each graph at a time."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.slots import STREAM_BYTES, TRANSPORT_BYTES, StreamSlots
from tests.server.running import PHOTO, SCHEMA, RunningServer, start_server

MANY = 30_000
"""People whose export is larger than what sockets and server buffer."""


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("large")
    with og.init(folder / "large.omni", schema=SCHEMA) as graph:
        people = [{"name": f"person-{n:06}", "tags": ["x" * 600]} for n in range(MANY)]
        graph.load(people, type="Person", mode="append")
        graph.branches.create("side")
    with start_server(folder / "large.omni", folder / "log", "--unauthenticated") as server:
        yield server


def export(client: httpx.Client, **body: object) -> list[dict[str, object]]:
    answer = client.post("/export", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    return [json.loads(line) for line in answer.text.splitlines()]


def start_export(server: RunningServer) -> socket.socket:
    """Begin an export and read no more of it than its status."""
    connection = socket.create_connection((server.host, server.port), timeout=30)
    head = "POST /export HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    connection.sendall(head.encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def test_export_can_be_loaded_again(client: httpx.Client, copied: Callable[[], Path], tmp_path: Path) -> None:
    answer = client.post("/export", json={})
    (tmp_path / "export.ndjson").write_bytes(answer.content)
    with og.init(tmp_path / "again.omni", schema=SCHEMA) as again, og.open(copied()) as original:
        again.load(tmp_path / "export.ndjson", mode="append")
        assert again.snapshot().rows("Person").num_rows == original.snapshot().rows("Person").num_rows
        assert again.snapshot().blob("Person", "Ada", "photo").read() == PHOTO


def test_records_are_nodes_then_edges(client: httpx.Client) -> None:
    records = export(client)
    assert [record.get("type") or record["edge"] for record in records] == ["Person"] * 4 + ["Knows"]
    assert records[0]["data"]["id"] == "Ada"  # type: ignore[index]
    edge = records[-1]
    assert (edge["from"], edge["to"]) == ("Ada", "Bob")


@pytest.mark.parametrize(
    "body",
    [
        {"type_names": ["Knows"]},
        {"table_keys": ["edge:Knows"]},
        {"type_names": ["Knows"], "table_keys": ["edge:Knows"]},
    ],
)
def test_types_are_chosen_under_both_names(client: httpx.Client, body: dict[str, object]) -> None:
    assert [record["edge"] for record in export(client, **body)] == ["Knows"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type_names": ["Knows"], "table_keys": ["node:Person"]}, 400),
        ({"types": ["Knows"]}, 400),
        ({"type_names": ["Nothing"]}, 400),
        ({"branch": "  "}, 400),
        ({"branch": "nowhere"}, 404),
        ({"branch": "main", "commit": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 400),
        ({"commit": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 404),
    ],
)
def test_wrong_requests_fail_before_the_stream(
    client: httpx.Client, body: dict[str, object], status: int
) -> None:
    answer = client.post("/export", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]
    # Nothing of it holds the slot.
    assert len(export(client, branch=" main ")) == 5


def test_export_shows_the_past(client: httpx.Client) -> None:
    oldest = client.get("/commits").json()["commits"][-1]["graph_commit_id"]
    assert export(client, commit=oldest) == []


def test_second_export_of_a_graph_is_refused_until_the_first_ends(large_server: RunningServer) -> None:
    with large_server.client() as client:
        with closing(start_export(large_server)):
            for _ in range(2):
                refused = client.post("/export", json={"branch": "side"})
                assert refused.status_code == 413
                limit = {"resource": "stream_export_slots", "limit": 1, "actual": 2}
                assert refused.json()["resource_limit"] == limit
            deletion = client.delete("/branches/side")
            assert deletion.status_code == 413
            assert deletion.json()["resource_limit"]["resource"] == "stream_export_slots"
        wait_until_free(client)
        with client.stream("POST", "/export", json={}) as answer:
            assert sum(1 for _ in answer.iter_lines()) == MANY


def test_reader_that_leaves_early_frees_the_slot(large_server: RunningServer) -> None:
    with large_server.client() as client:
        with client.stream("POST", "/export", json={}) as answer:
            assert next(answer.iter_lines())
        wait_until_free(client)


def wait_until_free(client: httpx.Client) -> None:
    """Ask until an export begins: the server hears of a closed connection a moment later."""
    for _ in range(2000):
        with client.stream("POST", "/export", json={"type_names": ["Knows"]}) as answer:
            if answer.status_code == 200:
                return
    raise AssertionError("the slot was not freed")


def test_actor_that_may_read_may_not_export(policy_server: RunningServer) -> None:
    with policy_server.client("reader") as reader:
        for body in ({}, {"branch": " main "}):
            answer = reader.post("/export", json=body)
            assert answer.status_code == 403
            assert answer.json()["error"] == (
                "policy denied action 'export' on branch 'main' for actor 'reader'"
            )


async def claim_all(slots: StreamSlots) -> str:
    held = [await slots.claim_transport() for _ in range(TRANSPORT_BYTES // STREAM_BYTES)]
    try:
        await slots.claim_transport()
    except og.errors.ResourceLimitExceeded as refused:
        held[0].release()
        (await slots.claim_transport()).release()
        return refused.resource
    raise AssertionError("there was room")


def test_transport_has_room_for_eight_streams(tmp_path: Path) -> None:
    assert asyncio.run(claim_all(StreamSlots(tmp_path))) == "stream_export_transport_bytes"


def test_slots_are_shared_by_those_who_share_the_folder(tmp_path: Path) -> None:
    ours, theirs = StreamSlots(tmp_path), StreamSlots(tmp_path)
    slot = ours.claim_export("a")
    theirs.claim_export("b").release()
    with pytest.raises(og.errors.ResourceLimitExceeded):
        theirs.claim_export("a")
    slot.release()
    slot.release()
    theirs.claim_export("a").release()
