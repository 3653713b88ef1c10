"""Stored queries: listed to readers, run by those who may, unknown to all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.sources import read_query_files
from omnigraph.server.stored_queries import load_stored_queries, parse_stored_queries
from tests.server.running import SCHEMA, RunningServer, run_server, start_server, with_tokens


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


def test_list_describes_queries_and_their_parameters(client: httpx.Client) -> None:
    assert client.get("/queries").json() == {
        "queries": [
            {
                "name": "add_person",
                "tool_name": "add_person",
                "mutation": True,
                "params": [
                    {"name": "name", "kind": "string", "nullable": False},
                    {"name": "age", "kind": "bigint", "nullable": True},
                ],
            },
            {
                "name": "older_than",
                "tool_name": "older_than",
                "mutation": False,
                "params": [{"name": "age", "kind": "int", "nullable": False}],
                "description": "People above an age",
            },
        ]
    }


def test_read_answers_like_query(client: httpx.Client) -> None:
    answer = client.post("/queries/older_than", json={"params": {"age": 25}}).json()
    assert answer["query_name"] == "older_than"
    assert [row["p.name"] for row in answer["rows"]] == ["Ada", "Cy"]
    assert answer["target"] == {"branch": "main", "snapshot": None}


def test_mutation_answers_like_mutate(client: httpx.Client) -> None:
    body = {"params": {"name": "Stored", "age": "12"}, "expect_mutation": True}
    answer = client.post("/queries/add_person", json=body).json()
    assert (answer["query_name"], answer["affected_nodes"]) == ("add_person", 1)
    assert answer["commit"]["graph_commit_id"]


@pytest.mark.parametrize("body", [b"", b"null", b" null ", b"{}"])
def test_empty_body_means_all_defaults_whatever_its_type(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/queries/older_than", content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "parameter 'age' not provided"


@pytest.mark.parametrize(
    ("name", "body", "error"),
    [
        (
            "add_person",
            {"expect_mutation": False},
            "'add_person' is a mutation - use omnigraph mutate add_person",
        ),
        ("older_than", {"expect_mutation": True}, "'older_than' is a read - use omnigraph query older_than"),
        (
            "older_than",
            {"params": {"age": None}},
            "param 'age': null is not accepted for non-nullable parameter",
        ),
        ("older_than", {"params": {"age": "x"}}, "param 'age': expected integer string, got 'x'"),
        (
            "older_than",
            {"branch": "main", "snapshot": "x"},
            "request may specify branch or snapshot, not both",
        ),
        ("add_person", {"snapshot": "x"}, "'add_person' is a mutation, and a snapshot does not change"),
    ],
)
def test_wrong_invocations_say_what_is_wrong(
    client: httpx.Client, name: str, body: dict[str, object], error: str
) -> None:
    answer = client.post(f"/queries/{name}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == error


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b'{"params": 1}'])
def test_bodies_of_another_shape_are_refused(client: httpx.Client, body: bytes) -> None:
    assert client.post("/queries/older_than", content=body).status_code == 400


def test_conditional_mutation_needs_the_newest_commit(client: httpx.Client) -> None:
    head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    path, header = "/queries/add_person/if-graph-commit", "Omnigraph-If-Graph-Commit"
    bodies = [{"params": {"name": f"if-{n}"}} for n in range(2)]
    first, second = (client.post(path, json=body, headers={header: head}) for body in bodies)
    assert (first.status_code, second.status_code) == (200, 412)
    assert second.json()["precondition_failure"]["expected"] == head
    assert client.post(path, json=bodies[0]).status_code == 400
    read = client.post("/queries/older_than/if-graph-commit", json={}, headers={header: head})
    assert read.status_code == 400
    assert client.post("/queries/add_person", json=bodies[0], headers={header: head}).status_code == 400


def test_denied_query_is_answered_exactly_like_an_unknown_one(policy_server: RunningServer) -> None:
    with policy_server.client("reader") as reader, policy_server.client("root") as root:
        denied = reader.post("/queries/older_than", json={"params": {"age": 1}})
        unknown = root.post("/queries/nothing", json={"params": {"age": 1}})
        hidden = reader.post("/queries/nothing", json={})
    assert denied.status_code == unknown.status_code == hidden.status_code == 404
    assert denied.content == unknown.content == hidden.content
    assert denied.json()["error"] == "stored query not found"


def test_server_without_policy_invokes_nothing(
    copied: Callable[[], Path], stored_queries: list[str], tmp_path: Path
) -> None:
    with (
        start_server(copied(), tmp_path / "log", *stored_queries, env=with_tokens()) as server,
        server.client("root") as client,
    ):
        assert client.post("/queries/older_than", json={"params": {"age": 1}}).status_code == 404
        assert len(client.get("/queries").json()["queries"]) == 2
        assert client.post("/export", json={}).status_code == 403


def test_schema_that_breaks_a_stored_query_is_refused(client: httpx.Client) -> None:
    broken = SCHEMA.replace("age: I32?", "years: I32?")
    answer = client.post("/schema/apply", json={"schema_source": broken})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("stored query 'older_than' of ")
    assert "age: I32?" in client.get("/schema").json()["schema_source"]


def test_broken_query_keeps_the_server_from_starting(copied: Callable[[], Path], tmp_path: Path) -> None:
    (tmp_path / "wrong.gq").write_text("query q() { match { $p: Nothing } return { $p.name } }")
    status, _, errors = run_server(copied(), "--unauthenticated", "--queries", str(tmp_path))
    assert status == 1
    assert "stored query 'q'" in errors


def test_files_and_folders_are_read_and_names_are_unique(tmp_path: Path, copied: Callable[[], Path]) -> None:
    folder, text = tmp_path / "queries", "query one() { match { $p: Person } return { $p.name } }"
    folder.mkdir()
    with pytest.raises(og.errors.BadRequest, match=r"has no \.gq files"):
        parse_stored_queries(read_query_files([folder]))
    (folder / "one.gq").write_text(text)
    (tmp_path / "two.gq").write_text(text.replace("one", "two"))
    texts = read_query_files([folder, tmp_path / "two.gq"])
    with og.open(copied()) as graph:
        assert set(load_stored_queries(texts, graph)) == {
            "one",
            "two",
        }
    with pytest.raises(og.errors.BadRequest, match="stored query 'one' is in"):
        parse_stored_queries(read_query_files([folder, folder / "one.gq"]))
