"""What a server reports about itself: a line for each request, and counters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from omnigraph.server.metrics import Counter, Gauge, Histogram
from omnigraph.server.numbers import NumberFile, read_numbers
from tests.server.route_cases import READ, insert
from tests.server.running import TOKENS, RunningServer, start_server, with_tokens

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+')


def test_each_request_has_one_line_with_its_facts(policy_server: RunningServer) -> None:
    with policy_server.client("root") as client:
        answer = client.post("/mutate", json=insert("logged"), headers={"X-Request-Id": "log-1"})
        client.post("/graphs/default/query", json={"query": READ}, headers={"X-Request-Id": "log-2"})
        client.get("/graphs/unknown/branches", headers={"X-Request-Id": "log-3"})
    lines = {line["request_id"]: line for line in policy_server.log_lines() if line["message"] == "request"}
    write, read, unknown = (lines[f"log-{number}"] for number in (1, 2, 3))
    assert (write["operation"], write["graph"], write["actor"]) == ("mutate", "default", "root")
    assert (write["status"], write["rows"]) == (200, 1)
    assert write["commit"] == answer.json()["commit"]["graph_commit_id"]
    assert (read["operation"], read["status"]) == ("query", 200)
    assert isinstance(read["rows"], int)
    assert isinstance(read["duration_ms"], float)
    assert (unknown["status"], unknown["error_code"]) == (404, "graph_not_found")


def test_decisions_of_policy_are_logged_and_tokens_are_not(policy_server: RunningServer) -> None:
    with policy_server.client("reader") as client:
        client.post("/mutate", json=insert("denied"))
    decisions = [line for line in policy_server.log_lines() if "allowed" in line]
    assert any(
        (line["actor"], line["action"], line["branch"], line["allowed"])
        == ("reader", "change", "main", False)
        for line in decisions
    )
    text = policy_server.log.read_text()
    assert not any(token in text for token in TOKENS.values())


def test_counters_are_in_the_form_of_prometheus(open_server: RunningServer) -> None:
    with open_server.client() as client:
        client.post("/mutate", json=insert("counted"))
        client.post("/query", json={"query": READ})
        client.post("/branches", json={"name": "main"})
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    for wanted in (
        'omnigraph_http_requests_total{operation="query",status="200"} 1',
        'omnigraph_commits_total{operation="mutate"} 1',
        'omnigraph_conflicts_total{code="branch_exists"} 1',
        'omnigraph_http_request_seconds_count{operation="query"} 1',
        "omnigraph_http_in_flight 1",
    ):
        assert wanted in samples
    assert any(line.startswith("omnigraph_cache_bytes ") for line in samples)
    assert any('phase="work"' in line for line in samples)
    assert "default" not in answer.text


def test_timings_are_on_data_and_not_on_health(open_server: RunningServer) -> None:
    with open_server.client() as client:
        timing = client.post("/query", json={"query": READ}).headers["server-timing"]
        assert "server-timing" not in client.get("/healthz").headers
    assert [part.partition(";")[0] for part in timing.split(", ")][-1] == "total"
    assert {"queue", "work", "encode", "total"} == {part.partition(";")[0] for part in timing.split(", ")}


def test_log_level_and_warnings_about_the_address(copied: Callable[[], Path], tmp_path: Path) -> None:
    quiet = with_tokens({"OMNIGRAPH_LOG": "error"})
    with start_server(copied(), tmp_path / "quiet", env=quiet) as server, server.client("reader") as client:
        client.get("/branches")
        assert server.log.read_text() == ""
    with start_server(copied(), tmp_path / "far", "--unauthenticated", "--bind", "0.0.0.0:0") as far:
        warnings = [str(line["message"]) for line in far.log_lines() if line["level"] == "warning"]
    assert any("--tls-cert" in text for text in warnings)
    assert any("--unauthenticated" in text for text in warnings)


def test_browsers_of_named_origins_may_call(copied: Callable[[], Path], tmp_path: Path) -> None:
    env = {"OMNIGRAPH_CORS_ORIGINS": "https://one.example, https://two.example"}
    with (
        start_server(copied(), tmp_path / "log", "--unauthenticated", env=env) as server,
        server.client() as client,
    ):
        named = client.get("/healthz", headers={"Origin": "https://two.example"})
        other = client.get("/healthz", headers={"Origin": "https://evil.example"})
        asked = {"Origin": "https://one.example", "Access-Control-Request-Method": "DELETE"}
        preflight = client.options("/branches/x", headers=asked)
    assert named.headers["access-control-allow-origin"] == "https://two.example"
    assert "x-request-id" in named.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers
    assert preflight.status_code == 200


def test_counters_render_labels_and_buckets(tmp_path: Path) -> None:
    numbers = NumberFile(tmp_path / "numbers")
    counter = Counter("c_total", "C.", numbers)
    counter.add(2, name='a"b\\c\nd')
    histogram = Histogram("h", "H.", numbers)
    histogram.observe(0.001)
    histogram.observe(99)
    gauge = Gauge("g", "G.", numbers, lambda: {"x": 12345678}, "label")
    gauge.share()
    found = read_numbers(tmp_path / "numbers")
    assert list(counter.lines(found))[-1] == 'c_total{name="a\\"b\\\\c\\nd"} 2'
    lines = list(histogram.lines(found))
    assert 'h_bucket{le="0.001"} 1' in lines
    assert lines[-3:] == ['h_bucket{le="+Inf"} 2', "h_sum 99.001", "h_count 2"]
    assert list(gauge.lines(found))[-1] == 'g{label="x"} 12345678'
