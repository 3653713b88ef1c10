"""Every route: without a token, with one that policy does not know, and as it is meant."""

from __future__ import annotations

import re
import sys
from typing import Any, get_args

import httpx
import msgspec
import pytest

from omnigraph.server.handlers import HANDLERS
from omnigraph.server.pages import recorded_examples
from omnigraph.server.route import JSON, Route
from omnigraph.server.routes import ROUTES
from tests.server.record_examples import record
from tests.server.route_cases import CASES, Case
from tests.server.running import RunningServer

PER_GRAPH = [route for route in ROUTES if route.is_per_graph and not route.is_public]


def by_operation(route: Route) -> str:
    return route.operation


def send(client: httpx.Client, route: Route, case: Case, prefix: str, head: str) -> httpx.Response:
    return client.request(
        route.method,
        f"{prefix}/{case.path.replace('HEAD', head)}",
        json=case.body(head),
        content=case.content,
        params={name: value.replace("HEAD", head) for name, value in case.params.items()},
        headers={name: value.replace("HEAD", head) for name, value in case.headers.items()},
    )


def newest(client: httpx.Client) -> str:
    found: str = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    return found


def run_all(client: httpx.Client, steps: tuple[tuple[str, str, Any], ...]) -> None:
    for method, path, body in steps:
        assert client.request(method, f"/{path}", json=body).status_code == 200


def test_every_route_has_a_handler_and_a_case() -> None:
    assert {route.operation for route in ROUTES} == set(HANDLERS)
    assert {route.operation for route in PER_GRAPH} == set(CASES)


@pytest.mark.parametrize("route", PER_GRAPH, ids=by_operation)
def test_request_without_a_token_is_refused(policy_server: RunningServer, route: Route) -> None:
    with policy_server.client() as client:
        answer = send(client, route, CASES[route.operation], "/graphs/default", "x")
    assert answer.status_code == 401
    if route.method != "HEAD":
        assert answer.json()["error"] == "missing bearer token"
        assert answer.json()["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("route", PER_GRAPH, ids=by_operation)
def test_actor_that_no_rule_knows_is_denied(policy_server: RunningServer, route: Route) -> None:
    case = CASES[route.operation]
    with policy_server.client("stranger") as client, policy_server.client("root") as root:
        answer = send(client, route, case, "/graphs/default", newest(root))
    assert answer.status_code == case.denied, answer.text
    if route.method != "HEAD" and case.denied == 403:
        assert answer.json()["code"] == "forbidden"
        assert "for unknown actor 'stranger'" in answer.json()["error"]


@pytest.mark.parametrize("prefix", ["/graphs/default", ""], ids=["nested", "flat"])
@pytest.mark.parametrize("route", PER_GRAPH, ids=by_operation)
def test_route_answers_what_its_type_says(policy_server: RunningServer, route: Route, prefix: str) -> None:
    case = CASES[route.operation]
    with policy_server.client("root") as client:
        run_all(client, case.before)
        answer = send(client, route, case, prefix, newest(client))
        run_all(client, case.after)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == route.media
    assert "total;dur=" in answer.headers["server-timing"]
    if route.media == JSON and route.response is not None and route.method != "HEAD":
        # Of a union, the first: msgspec decodes unions of tagged types only.
        msgspec.json.decode(answer.content, type=(get_args(route.response) or (route.response,))[0])


def test_examples_of_the_docs_are_what_the_server_answers(policy_server: RunningServer) -> None:
    now, recorded = record(policy_server, sys.maxsize), recorded_examples()
    assert set(now) == set(recorded) >= {route.operation for route in ROUTES if route.listed}
    for operation, example in now.items():
        assert shape_of(example["request"]) == shape_of(recorded[operation].request)
        (head, members), text = shape_of(example["answer"]), recorded[operation].answer
        assert head == shape_of(text)[0]
        assert shape_of(text)[1] == (members[: len(shape_of(text)[1])] if text.endswith("...") else members)


def shape_of(message: str) -> tuple[list[str], list[str]]:
    """Return the head of a message without ids and numbers, and the members of its body."""
    head, _, body = message.partition("\n\n")
    members = re.findall(r'^ {0,2}"(\w+)":', body, re.MULTILINE) if body.startswith("{\n") else []
    return [re.sub(r"01[0-9A-Z]{24}|[0-9a-f]{16,}", "ID", line) for line in head.splitlines()], members


def test_deprecated_routes_name_their_successor(policy_server: RunningServer) -> None:
    deprecated = [route for route in PER_GRAPH if route.successor]
    assert {route.operation for route in deprecated} >= {"read", "change"}
    with policy_server.client("root") as client:
        for route in deprecated:
            answer = send(client, route, CASES[route.operation], "/graphs/default", newest(client))
            assert answer.headers["deprecation"] == "true"
            assert answer.headers["link"] == f'<{route.successor}>; rel="successor-version"'


def test_graphs_are_listed_to_those_the_server_policy_names(policy_server: RunningServer) -> None:
    with policy_server.client("root") as root, policy_server.client("reader") as reader:
        listed = root.get("/graphs").json()["graphs"]
        assert [one["graph_id"] for one in listed] == ["default"]
        assert listed[0]["uri"].endswith("people.omni")
        assert reader.get("/graphs").status_code == 403
    with policy_server.client() as anonymous:
        assert anonymous.get("/graphs").status_code == 401


def test_health_needs_no_token_and_no_graph(policy_server: RunningServer) -> None:
    with policy_server.client() as client:
        bodies = [client.get(path).json() for path in ("/healthz", "/graphs/nowhere/healthz")]
    assert bodies[0] == bodies[1]
    assert bodies[0]["status"] == "ok"
    assert set(bodies[0]) == {"status", "version", "internal_schema_version"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/runs", 404),
        ("POST", "/graphs", 404),
        ("DELETE", "/graphs", 405),
        ("DELETE", "/graphs/default", 404),
        ("POST", "/runs/7/abort", 404),
        ("PUT", "/query", 405),
        ("GET", "/graphs/default/query", 405),
        ("GET", "/graphs/not_an_id/branches", 400),
        ("GET", "/graphs/policies/branches", 400),
        ("GET", "/graphs/unknown/branches", 404),
    ],
)
def test_paths_that_are_not_served_get_a_typed_error(
    policy_server: RunningServer, method: str, path: str, status: int
) -> None:
    with policy_server.client("root") as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert (status == 405) == ("allow" in answer.headers)


def test_unknown_graph_is_named_in_the_error(policy_server: RunningServer) -> None:
    with policy_server.client("root") as client:
        answer = client.get("/graphs/unknown/branches")
    assert answer.json()["error"] == "graph 'unknown' not found"


def test_branch_may_have_the_name_of_a_route_and_a_slash(policy_server: RunningServer) -> None:
    with policy_server.client("root") as client:
        for name, path in (("merge", "merge"), ("a/b", "a%2Fb")):
            assert client.post("/branches", json={"name": name}).status_code == 200
            assert client.delete(f"/branches/{path}").json()["name"] == name
