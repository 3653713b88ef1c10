"""Writes that take effect only while a commit is the newest of a branch."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.server.running import RunningServer

HEADER = "Omnigraph-If-Graph-Commit"
PATH = "/mutate/if-graph-commit"


@pytest.fixture
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as client:
        yield client


def insert(name: str) -> dict[str, str]:
    return {"query": f'query q() {{ insert Person {{ name: "{name}" }} }}'}


def head(client: httpx.Client) -> str:
    found: str = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    return found


def test_write_takes_effect_on_the_expected_head(client: httpx.Client) -> None:
    answer = client.post(PATH, json=insert("first"), headers={HEADER: head(client)})
    assert answer.status_code == 200
    assert answer.json()["commit"]["graph_commit_id"] == head(client)


def test_write_that_lost_has_no_effect(client: httpx.Client) -> None:
    expected = head(client)
    client.post("/mutate", json=insert("rival"))
    actual = head(client)
    answer = client.post(PATH, json=insert("late"), headers={HEADER: expected})
    body = answer.json()
    assert answer.status_code == 412
    assert "code" not in body
    assert body["precondition_failure"] == {"expected": expected, "actual": actual}
    assert body["error_code"] == "precondition_failure"
    assert body["error"] == (
        f"precondition failed on branch 'main': expected head '{expected}' but current is '{actual}'"
    )
    assert head(client) == actual


@pytest.mark.parametrize("value", ["", "*", 'W/"x"', '"x"', "a,b", "a b"])
def test_header_that_is_not_one_plain_id_is_refused(client: httpx.Client, value: str) -> None:
    assert client.post(PATH, json=insert("x"), headers={HEADER: value}).status_code == 400


def test_header_must_be_there_exactly_once(client: httpx.Client) -> None:
    assert client.post(PATH, json=insert("x")).status_code == 400
    twice = httpx.Headers([(HEADER, "a"), (HEADER, "a")])
    assert client.post(PATH, json=insert("x"), headers=twice).status_code == 400


def test_route_without_conditions_refuses_the_header(client: httpx.Client) -> None:
    answer = client.post("/mutate", json=insert("x"), headers={HEADER: head(client)})
    assert answer.status_code == 400
    assert "/mutate/if-graph-commit" in answer.json()["remedy"]
