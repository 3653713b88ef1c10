"""What the two lines of the TypeScript SDK send, and what they and their end-to-end suite read, as raw HTTP.

Both are given `http://host:port/graphs/<id>` and call flat paths below it. A reads members by their wire
names; B also sends `Accept: application/json, application/x-ndjson`, and chooses its errors by `code`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from tests.server.running import RunningServer

ACCEPT = {
    "A": {"Accept": "*/*"},
    "B": {"Accept": "application/json, application/x-ndjson"},
}
UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
BY_NAME = "query find($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
OLDER = "query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name } }"
CLASSES = {
    "bad_request": "BadRequestError",
    "unauthorized": "UnauthorizedError",
    "forbidden": "ForbiddenError",
    "not_found": "NotFoundError",
    "conflict": "ConflictError",
    "internal": "InternalServerError",
}


@pytest.fixture(params=["A", "B"])
def line(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def sdk(policy_server: RunningServer, line: str) -> Iterator[httpx.Client]:
    with policy_server.client("root") as client:
        client.base_url = httpx.URL(f"{policy_server.url}/graphs/default")
        client.headers.update(ACCEPT[line])
        yield client


def error_class(answer: httpx.Response) -> str:
    """Return the class that B throws."""
    assert not answer.is_success
    return CLASSES[answer.json()["code"]]


def test_health(sdk: httpx.Client) -> None:
    body = sdk.get("/healthz").json()
    assert body["status"] == "ok"
    assert isinstance(body["version"], str)


def test_snapshot_has_people(sdk: httpx.Client) -> None:
    body = sdk.get("/snapshot", params={"branch": "main"}).json()
    assert body["branch"] == "main"
    assert isinstance(body["manifest_version"], int)
    (table,) = [one for one in body["tables"] if "Person" in one["table_key"]]
    assert table["row_count"] >= 4
    assert {"table_path", "table_version", "table_branch"} <= table.keys()


def test_branches_round_trip(sdk: httpx.Client, line: str) -> None:
    name = f"sdk/{line}"
    assert "main" in sdk.get("/branches").json()["branches"]
    made = sdk.post("/branches", json={"name": name, "from": "main"}).json()
    assert (made["name"], made["from"], made["actor_id"]) == (name, "main", "root")
    assert made["uri"]
    assert name in sdk.get("/branches").json()["branches"]
    gone = sdk.delete(f"/branches/{quote(name, safe='')}").json()
    assert (gone["name"], gone["actor_id"]) == (name, "root")
    assert name not in sdk.get("/branches").json()["branches"]


def test_merge_twice(sdk: httpx.Client, line: str) -> None:
    name = f"merge-{line}"
    sdk.post("/branches", json={"name": name})
    first = sdk.post("/branches/merge", json={"source": name}).json()
    assert first["outcome"] in ("fast_forward", "already_up_to_date")
    again = sdk.post("/branches/merge", json={"source": name, "target": "main"}).json()
    assert (again["source"], again["target"], again["outcome"]) == (name, "main", "already_up_to_date")


def test_read_with_parameters(sdk: httpx.Client) -> None:
    body = sdk.post("/read", json={"query_source": BY_NAME, "params": {"name": "Ada"}}).json()
    assert body["row_count"] == 1
    assert body["rows"] == [{"p.name": "Ada", "p.age": 36}]
    assert body["columns"] == ["p.name", "p.age"]
    assert body["target"] == {"branch": "main", "snapshot": None}
    older = sdk.post(
        "/read", json={"query_source": OLDER, "query_name": "older", "params": {"age": 25}, "branch": "main"}
    ).json()
    assert "Ada" in [row["p.name"] for row in older["rows"]]


def test_change_on_a_fresh_branch(sdk: httpx.Client, line: str) -> None:
    name = f"change-{line}"
    sdk.post("/branches", json={"name": name})
    source = "query add($name: String) { insert Person { name: $name } }"
    body = sdk.post(
        "/change", json={"query_source": source, "params": {"name": "Eve"}, "branch": name}
    ).json()
    assert body["affected_nodes"] >= 1
    assert (body["branch"], body["query_name"], body["affected_edges"]) == (name, "add", 0)


def test_ingest_creates_a_branch_and_reads_back(sdk: httpx.Client, line: str) -> None:
    name = f"ingest-{line}"
    data = json.dumps({"type": "Person", "data": {"name": "Ingested", "age": 5}})
    body = sdk.post("/ingest", json={"data": data, "branch": name, "from": "main", "mode": "merge"}).json()
    assert (body["branch"], body["base_branch"], body["branch_created"]) == (name, "main", True)
    assert body["mode"] == "merge"
    assert body["tables"] == [{"table_key": "node:Person", "rows_loaded": 1}]
    found = sdk.post(
        "/read", json={"query_source": BY_NAME, "params": {"name": "Ingested"}, "branch": name}
    ).json()
    assert found["rows"] == [{"p.name": "Ingested", "p.age": 5}]


def test_commits(sdk: httpx.Client) -> None:
    commits = sdk.get("/commits").json()["commits"]
    assert isinstance(commits[0]["graph_commit_id"], str)
    assert sdk.get(f"/commits/{commits[0]['graph_commit_id']}").json() == commits[0]
    names = {"manifest_branch", "manifest_version", "parent_commit_id", "actor_id", "created_at"}
    assert names <= commits[0].keys()
    assert error_class(sdk.get(f"/commits/{UNKNOWN}")) == "NotFoundError"


def test_schema(sdk: httpx.Client) -> None:
    source = sdk.get("/schema").json()["schema_source"]
    assert "node Person" in source
    for name in sdk.get("/branches").json()["branches"]:
        if name != "main":
            sdk.delete(f"/branches/{quote(name, safe='')}")
    body = sdk.post("/schema/apply", json={"schema_source": source}).json()
    assert (body["supported"], body["applied"], body["step_count"], body["steps"]) == (True, False, 0, [])
    assert isinstance(body["manifest_version"], int)


@pytest.mark.parametrize("body", [{}, {"type_names": ["Person"]}, {"table_keys": ["node:Person"]}])
def test_export_yields_objects(sdk: httpx.Client, body: dict[str, object]) -> None:
    answer = sdk.post("/export", json=body)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert "content-encoding" not in answer.headers
    assert len([json.loads(one) for one in answer.text.splitlines() if one.strip()]) >= 4


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/runs"), ("GET", "/runs/1"), ("POST", "/runs/1/abort"), ("POST", "/runs/1/publish")],
)
def test_runs_are_gone(sdk: httpx.Client, method: str, path: str) -> None:
    assert error_class(sdk.request(method, path)) == "NotFoundError"


def test_errors_have_their_classes(sdk: httpx.Client) -> None:
    assert error_class(sdk.post("/read", json={"query_source": "query q() {"})) == "BadRequestError"
    assert error_class(sdk.post("/branches", json={"name": "main"})) == "ConflictError"
    refused = sdk.get("/branches", headers={"Authorization": "Bearer wrong"})
    assert error_class(refused) == "UnauthorizedError"
    assert refused.headers["x-request-id"]


def test_bridge_may_name_main_beside_a_snapshot(sdk: httpx.Client) -> None:
    commit = sdk.get("/commits").json()["commits"][0]["graph_commit_id"]
    body = {"query_source": BY_NAME, "params": {"name": "Ada"}, "branch": "main", "snapshot": commit}
    assert sdk.post("/read", json=body).json()["target"] == {"branch": None, "snapshot": commit}
