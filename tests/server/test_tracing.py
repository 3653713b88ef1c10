"""Traces of requests, as a collector on loopback receives them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from omnigraph import failpoints
from omnigraph.errors import BadRequest, MissingExtra, RecoveryRequired
from omnigraph.graph import open as open_graph
from omnigraph.server.tracing import open_tracing
from tests.python_process import run
from tests.server.route_cases import READ, insert
from tests.server.running import TOKENS, start_server, with_tokens

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
POINT = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
SECRET = "a-token-that-nothing-may-repeat"


class Collector(ThreadingHTTPServer):
    """Receives traces."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.received: list[bytes] = []

    def spans(self) -> list[dict[str, object]]:
        found = []
        for body in self.received:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        facts = {one.key: _value(one.value) for one in span.attributes}
                        facts |= {"name": span.name, "id": span.span_id.hex()}
                        facts |= {"trace": span.trace_id.hex(), "parent": span.parent_span_id.hex()}
                        found.append(facts)
        return found


class _Receive(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _value(value: object) -> object:
    return getattr(value, str(value.WhichOneof("value")))  # type: ignore[attr-defined]


@contextmanager
def collector() -> Iterator[Collector]:
    with Collector() as receiving:
        thread = threading.Thread(target=receiving.serve_forever)
        thread.start()
        try:
            yield receiving
        finally:
            receiving.shutdown()
            thread.join()


def test_requests_are_traced_through_query_and_commit_and_recoveries_are_counted(
    copied: Callable[[], Path], policies: list[str], tmp_path: Path
) -> None:
    place = copied()
    with (
        open_graph(place) as graph,
        failpoints.arm(POINT, failpoints.error(POINT)),
        pytest.raises(RecoveryRequired),
    ):
        graph.mutate(insert("interrupted")["query"])
    with collector() as receiving:
        env = with_tokens(
            {
                "OMNIGRAPH_TRACES": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiving.server_port}",
            }
        )
        with start_server(place, tmp_path / "log", *policies, env=env) as server:
            with server.client("root") as client:
                above = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
                client.post("/mutate", json=insert("traced"), headers=above)
                client.post("/query", json={"query": READ})
                client.post("/query", json={"query": f"query q() {{ {SECRET}"})
                metrics = client.get("/metrics").text
                wrong = {"Authorization": f"Bearer {SECRET}"}
                assert client.get("/branches", headers=wrong).status_code == 401
            assert server.stop() == 0
        spans = receiving.spans()
        sent = b"".join(receiving.received)
    named = {str(span["name"]): span for span in spans}
    write = named["mutate"]
    assert (write["trace"], write["parent"]) == (TRACE, PARENT)
    assert (write["omnigraph.actor"], write["omnigraph.graph"]) == ("root", "default")
    assert (write["http.response.status_code"], write["omnigraph.rows"]) == (200, 1)
    assert named["write work"]["parent"] == write["id"]
    for phase in ("prepare", "gates", "record", "effects", "publish"):
        assert named[f"commit.{phase}"]["parent"] == named["write work"]["id"], phase
        assert f'omnigraph_phase_seconds_total{{phase="commit.{phase}"}}' in metrics
    reads = [span["id"] for span in spans if span["name"] == "query.read"]
    assert any(span["parent"] in reads for span in spans if str(span["name"]).startswith("query."))
    assert 'omnigraph_phase_seconds_total{phase="query.compile"}' in metrics
    failed = next(span for span in spans if span.get("http.response.status_code") == 400)
    assert failed["omnigraph.error_code"] == "parse_error"
    assert any(span.get("http.response.status_code") == 401 for span in spans)
    assert not any(token.encode() in sent for token in (SECRET, *TOKENS.values()))
    assert "omnigraph_recoveries_total 1" in metrics.splitlines()


def test_traces_are_off_unless_asked_for_and_cost_no_import() -> None:
    assert open_tracing({}) is None
    assert open_tracing({"OMNIGRAPH_TRACES": " none "}) is None
    program = "import omnigraph.server.start, sys; print('opentelemetry' in sys.modules)"
    assert run("-c", program).stdout == "False\n"


def test_traces_that_cannot_be_sent_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="OMNIGRAPH_TRACES must be otlp or none, got 'jaeger'"):
        open_tracing({"OMNIGRAPH_TRACES": "jaeger"})
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(MissingExtra, match="opentelemetry"):
        open_tracing({"OMNIGRAPH_TRACES": "otlp"})
