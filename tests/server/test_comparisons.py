"""Differences, explanations and previews of merges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.running import RunningServer


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


def write(client: httpx.Client, statement: str, branch: str = "main") -> None:
    body = {"query": f"query q() {{ {statement} }}", "branch": branch}
    assert client.post("/mutate", json=body).status_code == 200


def diff(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/diff", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_diff_of_two_branches_has_counts_and_changes(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "compared"})
    write(
        client, 'insert Person { name: "New" } update Person set { age: 99 } where name = "Bob"', "compared"
    )
    found = diff(client, **{"from": "main", "to": "compared"})
    assert (found["from"]["graph_branch"], found["to"]["graph_branch"]) == ("main", "compared")
    assert found["stats"] == {"node:Person": {"inserted": 1, "updated": 1, "deleted": 0}}
    assert [(change["id"], change["op"]) for change in found["changes"]] == [
        ("Bob", "update"),
        ("New", "insert"),
    ]
    counted = diff(client, **{"from": "main", "to": "compared", "stat": True})
    assert "changes" not in counted
    assert counted["stats"] == found["stats"]
    some = diff(client, **{"from": "main", "to": "compared", "ops": ["insert"], "types": ["Person"]})
    assert [change["id"] for change in some["changes"]] == ["New"]


def test_diff_of_many_changes_is_one_object(client: httpx.Client) -> None:
    lines = "".join(f'{{"type": "Person", "data": {{"name": "many-{n:04}"}}}}\n' for n in range(1200))
    body = {"data": lines, "branch": "many", "from": "main"}
    assert client.post("/load", json=body).status_code == 200
    found = diff(client, **{"from": "main", "to": "many"})
    assert len(found["changes"]) == 1200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"from": "main"}, 400),
        ({"from": "main", "to": "nowhere"}, 404),
        ({"from": "main", "to": "main", "types": ["Nothing"]}, 400),
        ({"from": "main", "to": "main", "ops": ["rename"]}, 400),
        ({"from": "main@v999999", "to": "main"}, 404),
    ],
)
def test_wrong_moments_get_a_typed_error(client: httpx.Client, body: dict[str, Any], status: int) -> None:
    answer = client.post("/diff", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_explain_shows_the_steps(client: httpx.Client) -> None:
    source = "query people() { match { $p: Person } return { $p.name } }"
    answer = client.post("/explain", json={"query": source}).json()
    assert answer["query_name"] == "people"
    assert answer["steps"]
    refused = client.post("/explain", json={"query": 'query q() { insert Person { name: "x" } }'})
    assert refused.status_code == 400
    assert "use POST /mutate" in refused.json()["error"]


def test_preview_shows_conflicts_and_its_resolutions_decide_the_merge(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "contested"})
    write(client, 'update Person set { age: 41 } where name = "Cy"', "contested")
    write(client, 'update Person set { age: 42 } where name = "Cy"')
    preview = client.post("/branches/merge/preview", json={"source": "contested"}).json()
    (conflict,) = preview["merge_conflicts"]
    assert (conflict["entity_id"], conflict["row_id"], conflict["kind"]) == ("Cy", "Cy", "divergent_update")
    assert preview["target"] == "main"
    decisions = preview["resolutions"]
    decisions["conflicts"][0]["take"] = "theirs"
    decided = client.post(
        "/branches/merge/preview", json={"source": "contested", "resolutions": decisions}
    ).json()
    assert (decided["merge_conflicts"], decided["resolved"], len(decided["met"])) == ([], 1, 1)
    assert client.post("/branches/merge", json={"source": "contested"}).status_code == 409
    merged = client.post("/branches/merge", json={"source": "contested", "resolutions": decisions})
    assert merged.status_code == 200, merged.text
    rows = client.post(
        "/query", json={"query": 'query q() { match { $p: Person { name: "Cy" } } return { $p.age } }'}
    ).json()["rows"]
    assert rows == [{"p.age": 41}]


def test_every_branch_that_is_named_must_be_readable(policy_server: RunningServer) -> None:
    with policy_server.client("stranger") as stranger, policy_server.client("root") as root:
        root.post("/branches", json={"name": "secret"})
        for path, body in (
            ("/diff", {"from": "main", "to": "secret"}),
            ("/diff", {"from": "main", "to": "nowhere"}),
            ("/branches/merge/preview", {"source": "secret"}),
            ("/explain", {"query": "query q() { match { $p: Person } return { $p.name } }"}),
        ):
            assert stranger.post(path, json=body).status_code == 403
