"""Changes of commits and branches: pages, cursors, filters and baselines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec
import pytest

import omnigraph as og
from omnigraph.server.wire.changes import ChangeFeedOutput
from tests.server.running import SCHEMA, RunningServer, start_server


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


def write(client: httpx.Client, statement: str, branch: str = "main") -> str:
    body = {"query": f"query q() {{ {statement} }}", "branch": branch}
    commit: str = client.post("/mutate", json=body).json()["commit"]["graph_commit_id"]
    return commit


def head(client: httpx.Client) -> str:
    found: str = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    return found


def poll(client: httpx.Client, **params: Any) -> dict[str, Any]:
    answer = client.get("/changes", params=params)
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=ChangeFeedOutput)
    found: dict[str, Any] = answer.json()
    return found


def test_commit_has_its_cause_and_images(client: httpx.Client) -> None:
    parent = head(client)
    commit = write(client, 'update Person set { age: 21 } where name = "Bob"')
    answer = client.get(f"/commits/{commit}/changes").json()
    assert answer["cause"]["graph_commit_id"] == commit
    assert answer["cause"]["parent_commit_id"] == parent
    assert answer["cause"]["authored_branch"] == "main"
    (change,) = answer["changes"]
    assert (change["kind"], change["type"]["name"], change["id"], change["op"]) == (
        "node", "Person", "Bob", "update",
    )  # fmt: skip
    assert (change["before"]["properties"]["age"], change["after"]["properties"]["age"]) == (20, 21)
    assert "next_page_token" not in answer


def test_pages_of_a_commit_continue_by_token(client: httpx.Client) -> None:
    commit = write(client, " ".join(f'insert Person {{ name: "page-{n}" }}' for n in range(5)))
    seen: list[str] = []
    params: dict[str, str] = {"limit": "2"}
    while True:
        page = client.get(f"/commits/{commit}/changes", params=params).json()
        seen += [change["id"] for change in page["changes"]]
        if "next_page_token" not in page:
            break
        params["page_token"] = page["next_page_token"]
    assert seen == [f"page-{n}" for n in range(5)]


def test_feed_starts_now_and_continues_by_cursor(client: httpx.Client) -> None:
    start = poll(client)
    assert start["blocks"] == []
    assert start["caught_up"] is True
    commits = [write(client, f'insert Person {{ name: "feed-{n}" }}') for n in range(2)]
    page = poll(client, cursor=start["cursor"])
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == commits
    assert poll(client, cursor=page["cursor"])["blocks"] == []
    again = poll(client, cursor=start["cursor"])
    assert again["blocks"] == page["blocks"]


def test_feed_pages_have_a_cursor_only_at_the_end(client: httpx.Client) -> None:
    start = f"after:{head(client)}"
    for number in range(3):
        write(client, f'insert Person {{ name: "paged-{number}" }}')
    page = poll(client, start=start, limit=2)
    assert "cursor" not in page
    assert "caught_up" not in page
    last = poll(client, page_token=page["next_page_token"], limit=2)
    assert last["caught_up"] is True
    assert sum(len(block["changes"]) for block in (*page["blocks"], *last["blocks"])) == 3


def test_filters_repeat_and_belong_to_the_cursor(client: httpx.Client) -> None:
    start = head(client)
    write(client, 'insert Person { name: "filtered" } insert Knows { from: "filtered", to: "Ada" }')
    params = {"start": f"after:{start}", "kind": ["edge"], "op": ["insert", "delete"], "type": ["Knows"]}
    page = poll(client, **params)
    (block,) = page["blocks"]
    (change,) = block["changes"]
    assert change["after"]["endpoints"] == {"from": "filtered", "to": "Ada"}
    refused = client.get("/changes", params={"cursor": page["cursor"]})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("change cursor rejected: ")


def test_cursor_belongs_to_one_incarnation_of_a_branch(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "short"})
    cursor = poll(client, branch="short")["cursor"]
    assert (
        client.get("/changes", params={"cursor": cursor})
        .json()["error"]
        .startswith("change cursor rejected: ")
    )
    client.delete("/branches/short")
    client.post("/branches", json={"name": "short"})
    answer = client.get("/changes", params={"branch": "short", "cursor": cursor})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("change cursor rejected: ")


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ([("limit", "0")], 400),
        ([("limit", "x")], 400),
        ([("limit", "8193")], 413),
        ([("limit", "1"), ("limit", "2")], 400),
        ([("branch", "main"), ("branch", "main")], 400),
        ([("unknown", "1")], 400),
        ([("cursor", "beginning")], 400),
        ([("cursor", "")], 400),
        ([("cursor", "c1.AAAA")], 400),
        ([("page_token", "p1.AAAA")], 400),
        ([("start", "yesterday")], 400),
        ([("start", "now"), ("cursor", "c1.AAAA")], 400),
        ([("start", "after:nothing")], 400),
        ([("kind", "thing")], 400),
        ([("type", "Nothing")], 400),
        ([("branch", "nowhere")], 404),
    ],
)
def test_wrong_parameters_are_refused(
    client: httpx.Client, params: list[tuple[str, str]], status: int
) -> None:
    if ("type", "Nothing") in params:
        params = [*params, ("start", "beginning")]
    answer = client.get("/changes", params=httpx.QueryParams(urlencode(params)))
    assert answer.status_code == status, answer.text
    if status == 413:
        assert answer.json()["resource_limit"]["resource"] == "commit_changes_page_changes"


def test_first_commit_has_no_parent_to_compare_with(client: httpx.Client) -> None:
    first = client.get("/commits").json()["commits"][-1]["graph_commit_id"]
    answer = client.get(f"/commits/{first}/changes")
    assert answer.status_code == 409
    assert answer.json()["change_diff_refusal"] == {
        "reason": "parentless_commit",
        "graph_commit_id": first,
    }


def test_commit_that_may_not_be_read_is_answered_like_an_unknown_one(policy_server: RunningServer) -> None:
    with policy_server.client("root") as root, policy_server.client("stranger") as stranger:
        commit = write(root, 'insert Person { name: "hidden" }')
        denied = stranger.get(f"/commits/{commit}/changes")
        unknown = root.get("/commits/01ARZ3NDEKTSV4RRFFQ69G5FAV/changes")
        assert denied.status_code == unknown.status_code == 404
        assert denied.json()["error"] == f"commit '{commit}' not found"
        assert unknown.json()["error"] == "commit '01ARZ3NDEKTSV4RRFFQ69G5FAV' not found"
        assert denied.json().keys() == unknown.json().keys()
        assert stranger.get("/changes").status_code == 403


def test_baseline_and_feed_together_miss_nothing(client: httpx.Client) -> None:
    answer = client.post("/changes/baseline", json={"type": ["Person"]})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    *records, last = [json.loads(line) for line in answer.text.splitlines()]
    assert {record["type"] for record in records} == {"Person"}
    assert last["baseline"]["snapshot_commit_id"] == head(client)
    commit = write(client, 'insert Person { name: "after the baseline" }')
    page = poll(client, cursor=last["baseline"]["resume_cursor"], type=["Person"])
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [commit]


def test_baseline_of_a_filter_that_no_type_passes_is_only_its_last_line(
    tmp_path: Path, copied: Callable[[], Path]
) -> None:
    og.init(tmp_path / "nodes.omni", schema=SCHEMA.partition("edge")[0]).close()
    with (
        start_server(tmp_path / "nodes.omni", tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
    ):
        answer = client.post("/changes/baseline", json={"kind": ["edge"]})
        assert [list(json.loads(line)) for line in answer.text.splitlines()] == [["baseline"]]


def test_cleaned_up_history_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        for number in range(4):
            graph.mutate(f'query q() {{ insert Person {{ name: "{number}" }} }}')
        second = graph.commits.list()[-3].id
        graph.cleanup(keep=1)
    with (
        start_server(tmp_path / "g.omni", tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
    ):
        feed = client.get("/changes", params={"start": "beginning"})
        assert feed.status_code == 410, feed.text
        assert feed.json()["change_feed_gap"]["first_unreadable_commit_id"]
        assert "code" not in feed.json()
        assert client.get(f"/commits/{second}/changes").status_code == 410


def test_failures_of_the_store_are_not_described(copied: Callable[[], Path], tmp_path: Path) -> None:
    place = copied()
    with start_server(place, tmp_path / "log", "--unauthenticated") as server, server.client() as client:
        commit = client.get("/commits").json()["commits"][0]["graph_commit_id"]
        for file in [*place.rglob("*.lance")]:
            if file.is_file():
                file.write_bytes(b"damaged")
        answer = client.get(f"/commits/{commit}/changes")
        blob = client.get("/blob?entity=node&type=Person&id=Ada&property=photo")
    assert answer.status_code == 500, answer.text
    assert answer.json() == {"error": "internal error while reading changes", "code": "internal"}
    assert blob.status_code == 500, blob.text
    assert blob.json() == {"error": "Blob delivery failed before response headers", "code": "internal"}
