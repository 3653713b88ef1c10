"""What bodies look like: both spellings, cells, texts that clients match, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.running import RunningServer

NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } limit 2 }"
ONE = "query one($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
INSERT = 'query add() { insert Person { name: "Zoe" } }'


@pytest.fixture
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as client:
        yield client


def pairs(body: dict[str, Any], *names: tuple[str, str]) -> bool:
    return all(body[new] == body[old] for new, old in names)


def test_read_is_stable_byte_for_byte(client: httpx.Client) -> None:
    answer = client.post("/read", json={"query_source": NAMES})
    assert answer.content == (
        b'{"query_name":"q","target":{"branch":"main","snapshot":null},"row_count":2,'
        b'"columns":["p.name"],"rows":[{"p.name":"Ada"},{"p.name":"Bob"}]}'
    )


def test_query_returns_the_commit_that_it_read(client: httpx.Client) -> None:
    head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    body = client.post("/query", json={"query": NAMES}).json()
    assert list(body) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert body["graph_commit_id"] == head


def test_result_without_rows_still_has_rows(client: httpx.Client) -> None:
    body = client.post("/query", json={"query": ONE, "params": {"name": "Nemo"}}).json()
    assert body["rows"] == []
    assert body["columns"] == ["p.name", "p.age"]


def test_cells_are_encoded_by_their_type(client: httpx.Client) -> None:
    query = """query q() { match { $p: Person } return {
        $p.name as name, $p.age as age, $p.born as born, $p.score as score, $p.seen as seen, $p.tags as tags
    } order { $p.name } }"""
    ada, _, cy, di = client.post("/query", json={"query": query}).json()["rows"][:4]
    assert ada == {
        "name": "Ada",
        "age": 36,
        "born": "1815-12-10",
        "score": 1.5,
        "seen": None,
        "tags": ["x", "y"],
    }
    assert cy["seen"] == "2030-01-31T12:00:00.000Z"
    assert di["age"] is None


def test_snapshot_has_both_spellings_with_equal_values(client: httpx.Client) -> None:
    body = client.get("/snapshot").json()
    assert pairs(body, ("graph_branch", "branch"), ("graph_manifest_version", "manifest_version"))
    assert [table["table_key"] for table in body["tables"]] == ["edge:Knows", "node:Person"]
    for dataset, table in zip(body["datasets"], body["tables"], strict=True):
        assert f"{dataset['entity_kind']}:{dataset['type_name']}" == table["table_key"]
        assert dataset["dataset_path"] == table["table_path"]
        assert dataset["published_dataset_version"] == table["table_version"]
        assert dataset["native_dataset_branch"] == table["table_branch"]
        assert dataset["entity_count"] == table["row_count"]


def test_commits_have_both_spellings_with_equal_values(client: httpx.Client) -> None:
    commits = client.get("/commits").json()["commits"]
    assert len(commits) >= 3
    for commit in commits:
        assert pairs(
            commit, ("graph_branch", "manifest_branch"), ("graph_manifest_version", "manifest_version")
        )
    order = [(one["manifest_version"], one["created_at"], one["graph_commit_id"]) for one in commits]
    assert order == sorted(order, reverse=True)
    assert client.get(f"/commits/{commits[-1]['graph_commit_id']}").json() == commits[-1]


def test_commit_of_a_branch_names_it_and_one_of_main_does_not(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "named"})
    body = client.post("/mutate", json={"query": INSERT, "branch": " named "}).json()
    assert body["branch"] == "named"
    assert body["commit"]["graph_branch"] == body["commit"]["manifest_branch"] == "named"
    assert client.get("/commits").json()["commits"][0]["graph_branch"] is None
    assert client.get("/commits", params={"branch": "named"}).json()["commits"][0] == body["commit"]


def test_schema_apply_has_both_spellings_and_reports_no_change(
    open_server: RunningServer, client: httpx.Client
) -> None:
    for name in client.get("/branches").json()["branches"]:
        if name != "main":
            client.delete(f"/branches/{name}")
    source = client.get("/schema").json()["schema_source"]
    body = client.post("/schema/apply", json={"schema_source": source}).json()
    assert (body["supported"], body["applied"], body["steps"], body["step_count"]) == (True, False, [], 0)
    assert pairs(body, ("graph_manifest_version", "manifest_version"))


def test_requests_take_both_spellings(client: httpx.Client) -> None:
    for body in ({"query": INSERT, "name": "add"}, {"query_source": INSERT, "query_name": "add"}):
        answer = client.post("/mutate", json={**body, "branch": "nowhere"})
        assert answer.json()["error"] == "branch 'nowhere' not found"
    answer = client.post("/mutate", json={"query": INSERT, "query_source": NAMES})
    assert answer.status_code == 400
    assert "query_source" in answer.json()["error"]


def test_unknown_members_are_ignored(client: httpx.Client) -> None:
    assert client.post("/query", json={"query": NAMES, "color": "red"}).status_code == 200


def test_mutation_that_matches_nothing_has_no_commit(client: httpx.Client) -> None:
    query = 'query none() { update Person set { age: 1 } where name = "Nemo" }'
    body = client.post("/mutate", json={"query": query}).json()
    assert (body["affected_nodes"], body["commit"]) == (0, None)


def test_snapshot_read_shows_the_past(client: httpx.Client) -> None:
    before = client.post("/query", json={"query": ONE, "params": {"name": "Later"}}).json()
    client.post("/mutate", json={"query": 'query add() { insert Person { name: "Later" } }'})
    asked = {"query": ONE, "params": {"name": "Later"}}
    assert client.post("/query", json=asked).json()["row_count"] == 1
    for moment in ("snapshot", "commit"):
        past = client.post("/query", json={**asked, moment: before["graph_commit_id"]}).json()
        assert past["row_count"] == 0
        assert past["target"] == {"branch": None, "snapshot": before["graph_commit_id"]}


def test_read_ignores_main_beside_a_snapshot_and_query_does_not(client: httpx.Client) -> None:
    head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    moment = {"branch": "main", "snapshot": head}
    assert client.post("/read", json={"query_source": NAMES, **moment}).status_code == 200
    answer = client.post("/query", json={"query": NAMES, **moment})
    assert answer.status_code == 400
    assert answer.json()["error"] == "request may specify branch or snapshot, not both"


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("query", {"query": NAMES, "branch": "b"}, 404, "branch 'b' not found"),
        ("branches", {"name": "main"}, 409, "branch 'main' already exists"),
        ("query", {"query": NAMES, "snapshot": "nope"}, 404, "commit 'nope' not found"),
        (
            "query",
            {"query": INSERT},
            400,
            "query 'add' contains mutations (insert/update/delete); use POST /mutate for write queries",
        ),
        ("query", {"query": f"{NAMES}\n{ONE}"}, 400, "query file contains multiple queries; pass --name"),
        ("query", {"query": NAMES, "name": "other"}, 400, "query 'other' not found"),
        ("query", {"query": "query q( {"}, 400, None),
        ("query", {"query": NAMES, "params": [1]}, 400, None),
        ("query", {"query": ONE, "params": {"name": 7}}, 400, "param 'name': expected string, got number"),
        ("query", {"query": ONE, "params": {"name": None}}, 400, None),
        ("query", {"name": "q"}, 400, None),
        ("query", {"query": NAMES, "timeout": -1}, 400, None),
        ("query", {"query": NAMES, "max_rows": 1}, 413, None),
        ("mutate", {"query": NAMES}, 400, None),
        ("mutate", {}, 400, None),
        ("branches", {"name": "a..b"}, 400, None),
        ("branches", {"name": "new", "from": "nowhere"}, 404, "branch 'nowhere' not found"),
        ("branches/merge", {"source": "nowhere"}, 404, "branch 'nowhere' not found"),
        ("branches/merge", {"source": "main", "strategy": "best"}, 400, None),
        ("schema/apply", {"schema_source": "node {"}, 400, None),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    client: httpx.Client, path: str, body: Any, status: int, text: str | None
) -> None:
    answer = client.post(f"/{path}", json=body)
    found = answer.json()
    assert answer.status_code == status, found
    assert (
        found["code"] == {400: "bad_request", 404: "not_found", 409: "conflict", 413: "bad_request"}[status]
    )
    assert found["error_code"]
    if text is not None:
        assert found["error"] == text


def test_main_cannot_be_deleted_and_an_unknown_branch_is_not_found(client: httpx.Client) -> None:
    assert client.delete("/branches/main").status_code == 400
    assert client.delete("/branches/nowhere").json()["error"] == "branch 'nowhere' not found"
    assert client.get("/commits/01AAAAAAAAAAAAAAAAAAAAAAAA").json()["error"] == (
        "commit '01AAAAAAAAAAAAAAAAAAAAAAAA' not found"
    )


def test_name_below_a_branch_is_a_conflict(client: httpx.Client) -> None:
    assert client.post("/branches", json={"name": "top"}).status_code == 200
    assert client.post("/branches", json={"name": "top/below"}).status_code == 409


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_other_content_types_are_refused(client: httpx.Client, media: str | None) -> None:
    headers = {} if media is None else {"Content-Type": media}
    answer = client.post("/query", content=json.dumps({"query": NAMES}), headers=headers)
    assert answer.status_code == 415
    assert answer.json()["code"] == "bad_request"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"query": 7}', b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_not_the_wanted_json_are_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/query", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"


def test_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    body = {"query": NAMES, "params": {"x": "y" * (1 << 20)}}
    answer = client.post("/query", json=body)
    assert answer.status_code == 413
    limit = answer.json()["resource_limit"]
    assert (limit["resource"], limit["limit"]) == ("request_body_bytes", 1 << 20)
    assert answer.json()["error"] == (
        f"resource limit exceeded for request_body_bytes: actual {limit['actual']}, limit 1048576"
    )


def test_merge_conflicts_have_both_spellings_and_change_nothing(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "rival"})
    for branch, age in (("rival", 1), ("main", 2)):
        query = f'query q() {{ update Person set {{ age: {age} }} where name = "Di" }}'
        assert client.post("/mutate", json={"query": query, "branch": branch}).status_code == 200
    head = client.get("/commits").json()["commits"][0]
    answer = client.post("/branches/merge", json={"source": "rival"})
    body = answer.json()
    assert (answer.status_code, body["code"], body["error_code"]) == (409, "conflict", "merge_conflicts")
    [conflict] = body["merge_conflicts"]
    assert pairs(conflict, ("entity_id", "row_id"))
    assert (conflict["table_key"], conflict["kind"]) == ("node:Person", "divergent_update")
    assert client.get("/commits").json()["commits"][0] == head
    done = client.post("/branches/merge", json={"source": "rival", "strategy": "theirs"}).json()
    assert (done["outcome"], done["resolved"]) == ("merged", 1)
    assert "branch_deleted" not in done
    again = client.post("/branches/merge", json={"source": "rival", "delete_branch": True}).json()
    assert (again["outcome"], again["branch_deleted"]) == ("already_up_to_date", True)


def test_request_id_is_echoed_or_made(client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "mine-7"}).headers["x-request-id"] == "mine-7"
    assert len(client.get("/nothing", headers={"X-Request-Id": "no spaces"}).headers["x-request-id"]) == 26
