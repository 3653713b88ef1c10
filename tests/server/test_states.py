"""How a server starts and ends, and what it lets pass by the tokens and policies it has."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph.errors import BadRequest
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.boot import check_graph_id, decide_state
from omnigraph.server.listen import accept_connections, bind_socket, check_certificate
from omnigraph.server.settings import Bind, Limits, ServeOptions, is_set
from tests.server.route_cases import READ, insert
from tests.server.running import SCHEMA, RunningServer, run_server, start_server, with_tokens

SOME = Tokens("env-or-file", (("a", b"x" * 32),))


@pytest.mark.parametrize(
    ("tokens", "has_policy", "unauthenticated", "state"),
    [
        (Tokens(), False, False, None),
        (Tokens(), False, True, RuntimeState.OPEN),
        (SOME, False, False, RuntimeState.DEFAULT_DENY),
        (SOME, False, True, RuntimeState.DEFAULT_DENY),
        (Tokens(), True, False, None),
        (Tokens(), True, True, None),
        (SOME, True, False, RuntimeState.POLICY),
        (SOME, True, True, RuntimeState.POLICY),
    ],
)
def test_state_follows_from_tokens_and_policy(
    tokens: Tokens, has_policy: bool, unauthenticated: bool, state: RuntimeState | None
) -> None:
    if state is None:
        with pytest.raises(BadRequest):
            decide_state(tokens, has_policy=has_policy, unauthenticated=unauthenticated)
    else:
        assert decide_state(tokens, has_policy=has_policy, unauthenticated=unauthenticated) is state


def test_open_server_allows_all_but_the_list_of_graphs(open_server: RunningServer) -> None:
    with open_server.client() as client:
        assert client.post("/mutate", json=insert("open")).json()["actor_id"] is None
        assert client.get("/graphs").status_code == 403
    assert any(line["level"] == "warning" for line in open_server.log_lines())


def test_tokens_without_policy_allow_reads_only(copied: Callable[[], Path], tmp_path: Path) -> None:
    with start_server(copied(), tmp_path / "log", env=with_tokens()) as server:
        with server.client() as anonymous:
            assert anonymous.post("/query", json={"query": READ}).status_code == 401
            assert anonymous.get("/metrics").status_code == 401
        with server.client("reader") as client:
            assert client.post("/query", json={"query": READ}).status_code == 200
            assert client.get("/metrics").status_code == 200
            answer = client.post("/mutate", json=insert("denied"))
            assert answer.status_code == 403
            assert (
                answer.json()["error"] == "policy denied action 'change' on branch 'main' for actor 'reader'"
            )
            assert client.get("/graphs").status_code == 403
            wrong = client.get("/branches", headers={"Authorization": "Bearer nonsense"})
            assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid bearer token")
            for header in ("bearer token-reader", "Basic abc", "token-reader"):
                missing = client.get("/branches", headers={"Authorization": header})
                assert (missing.status_code, missing.json()["error"]) == (401, "missing bearer token")
        lines = server.log.read_text()
    assert "nonsense" not in lines
    assert "token-reader" not in lines


def test_server_refuses_to_start_without_tokens_or_consent(example_graph: Path, policies: list[str]) -> None:
    status, output, errors = run_server(example_graph)
    assert (status, output) == (1, "")
    assert "--unauthenticated" in errors
    status, output, errors = run_server(example_graph, "--unauthenticated", *policies)
    assert (status, output) == (1, "")
    assert "a policy needs bearer tokens" in errors


def test_server_refuses_to_start_without_a_graph(tmp_path: Path) -> None:
    status, output, errors = run_server(tmp_path / "nothing", "--unauthenticated")
    assert (status, output) == (1, "")
    assert "nothing' not found" in errors


def test_termination_finishes_what_is_under_way(copied: Callable[[], Path], tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with start_server(copied(), tmp_path / "log", "--unauthenticated") as server:
            server.process.send_signal(number)
            assert server.process.wait() == 0
            with socket.socket() as late, suppress(ConnectionRefusedError):
                late.connect((server.host, server.port))
                pytest.fail("the server still accepts connections")


def test_padded_branch_does_not_evade_a_rule(policy_server: RunningServer) -> None:
    with policy_server.client("reader") as client:
        for branch in ("main", " main "):
            answer = client.post("/mutate", json={**insert("x"), "branch": branch})
            assert answer.status_code == 403
            assert "on branch 'main'" in answer.json()["error"]


def test_denial_comes_before_a_conflict_and_after_the_token(policy_server: RunningServer) -> None:
    body = {"schema_source": f"{SCHEMA}node Extra {{ name: String @key }}"}
    with policy_server.client("root") as root:
        root.post("/branches", json={"name": "blocker"})
        assert root.post("/schema/apply", json=body).status_code == 409
        with policy_server.client("reader") as reader, policy_server.client() as anonymous:
            assert reader.post("/schema/apply", json=body).status_code == 403
            assert anonymous.post("/schema/apply", json=body).status_code == 401
        assert root.delete("/branches/blocker").status_code == 200


def test_commit_carries_the_actor_of_the_token_and_no_other(policy_server: RunningServer) -> None:
    with policy_server.client("root") as client:
        answer = client.post(
            "/mutate", json={**insert("signed"), "actor": "reader"}, headers={"X-Actor": "reader"}
        )
    assert answer.json()["actor_id"] == answer.json()["commit"]["actor_id"] == "root"


def test_connections_send_small_parts_of_answers_at_once() -> None:
    with bind_socket(Bind("127.0.0.1", 0)) as bound:
        accept_connections(bound)
        with socket.create_connection(bound.getsockname()), bound.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("[::1]:0", "::1", 0, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
    ],
)
def test_address_has_a_host_and_a_port(text: str, host: str, port: int, is_loopback: bool) -> None:
    found = Bind.parse(text)
    assert (found.host, found.port, found.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize("text", ["8080", "host:", "host:http", "host:70000", ""])
def test_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        Bind.parse(text)


def test_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("garbage")
    for name in ("bad.pem", "missing.pem"):
        options = ServeOptions("x", Bind("127.0.0.1", 0), tls_cert=tmp_path / name, tls_key=tmp_path / name)
        with pytest.raises(BadRequest, match=name):
            check_certificate(options)


def test_wrong_limits_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    found = Limits.from_environment({"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "many"})
    assert found == Limits()
    assert "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX" in caplog.text


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), (" False ", False), ("1", True)])
def test_switches_of_the_environment(value: str, expected: bool) -> None:
    assert is_set("SWITCH", {"SWITCH": value}) is expected


@pytest.mark.parametrize("graph_id", ["", "a_b", "a/b", "x" * 65, "healthz", "graphs", "policies", "openapi"])
def test_ids_that_no_graph_can_have(graph_id: str) -> None:
    with pytest.raises(BadRequest):
        check_graph_id(graph_id)
